"""The tables of launch/README.md name every environment variable that the program or a script uses.

usage: environment_page_test.py SOURCE_DIR
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
NAME = r"[A-Z][A-Z0-9_]{2,}"
# Where check_includes.py lets sources read or set the environment.
SOURCES = ("harness/config/*.cpp", "harness/comm/*.cpp", "harness/main.cpp")
READS = re.compile(r"getenv\(|setenv\(|\benviron\b|EnvironmentLookup")
SCRIPTS = ("launch/*", "launch/container/*", "tests/run", ".ci/run")
# Of bash, awk and apt, and the word of a usage text.
OTHERS = {"BASH_REMATCH", "BASH_SOURCE", "DEBIAN_FRONTEND", "EUID", "IFS", "ORS", "PATH", "PWD", "VARIABLE"}


def of_sources():
    names = set()
    for pattern in SOURCES:
        for file in ROOT.glob(pattern):
            text = file.read_text()
            if READS.search(text):
                names.update(re.findall(f'"({NAME})"', text))
    return names


def of_scripts():
    names = set()
    for pattern in SCRIPTS:
        for file in ROOT.glob(pattern):
            if file.suffix in (".md", ".yml") or not file.is_file():
                continue
            text = "\n".join(line for line in file.read_text().splitlines()
                             if not re.match(r"\s*#", line))
            names.update(re.findall(r"\$\{?(" + NAME + r")\b", text))
            names.update(re.findall(r"(?<!-D )\b(" + NAME + r")=", text))
            names.update(re.findall(r'^  "(' + NAME + ") [a-z]", text, re.M))  # run_and_time.sh, `mapped`
    return names


class EnvironmentPage(unittest.TestCase):
    def test_the_tables_name_what_is_used_and_nothing_else(self):
        page = (ROOT / "launch/README.md").read_text()
        section = page.split("\n## Environment variables\n")[1].split("\n## ")[0]
        # A variable, or the beginning of names as `NCCL_*`.
        named = {name for line in section.splitlines() if line.startswith("| `")
                 for name in re.findall(rf"`({NAME})\*?`", line.split(" | ")[0])}
        used = of_sources() | of_scripts() - OTHERS
        self.assertGreater(len(used), 50)
        self.assertEqual(sorted(used - named), [], "not in a table of launch/README.md")
        self.assertEqual(sorted(named - used), [], "in a table, but nothing uses them")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
