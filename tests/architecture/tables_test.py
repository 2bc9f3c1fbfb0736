"""Tables that no program prints: launch/environment.md names every environment variable that the program
or a script uses, launch/exit_codes.md every exit code, data/FORMAT.md every field of manifest.json.

usage: tables_test.py SOURCE_DIR
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


class Tables(unittest.TestCase):
    def test_every_environment_variable_is_named_and_used(self):
        page = (ROOT / "launch/environment.md").read_text()
        # A variable, or the beginning of names as `NCCL_*`.
        named = {name for line in page.splitlines() if line.startswith("| `")
                 for name in re.findall(rf"`({NAME})\*?`", line.split(" | ")[0])}
        used = of_sources() | of_scripts() - OTHERS
        self.assertGreater(len(used), 50)
        self.assertEqual(sorted(used - named), [], "not in a table of launch/environment.md")
        self.assertEqual(sorted(named - used), [], "in a table, but nothing uses them")

    def test_every_exit_code_is_listed(self):
        page = (ROOT / "launch/exit_codes.md").read_text()
        listed = [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)]
        codes = re.search(r"enum class ExitCode.*?\};", (ROOT / "kernels/base/error.h").read_text(), re.S)[0]
        returned = [int(code) for code in re.findall(r"= (\d+),", codes)]
        self.assertGreater(len(returned), 10)
        self.assertEqual(listed, [*returned, 255])  # ssh's, by run_mpirun.sh

    def test_every_field_of_a_manifest_is_described(self):
        table = (ROOT / "data/FORMAT.md").read_text().split("\n## manifest.json\n")[1]
        source = (ROOT / "data/format/manifest.cpp").read_text()
        written = set(re.findall(r'\{"(\w+)", ', source))
        self.assertGreater(len(written), 15)
        self.assertEqual(sorted(written - set(re.findall(r"`(\w+)`", table))), [], "not in the table")
        fields = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
        self.assertEqual([name for name in fields if f'"{name}"' not in source], [], "nothing writes them")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
