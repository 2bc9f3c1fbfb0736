#!/usr/bin/env python3
"""Checks formatting, file headers and commit hashes.

usage: check_style.py [--root DIR]   lists violations; exit 1 when there are any
       check_style.py --self-test    plants one violation of each rule and expects its report

Rules: C++ and CUDA files are as clang-format 14 writes them (.clang-format), and their comments end
at column 100; a file begins with at most 30 lines of comment, and a README has at most 150 lines; no
commit hash in sources and READMEs (kernels/measured/ has them); `folder/file` in a README exists,
perhaps with an ending, and so does what a link or picture names. Files that other programs wrote
(tests/golden/) or that are not text (tests/fuzz/corpus/) are exempt.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import rule_check

FOLDERS = ("kernels", "data", "harness", "configs", "launch", "tests", ".github")
TOP_FILES = ("README.md", "CMakeLists.txt")
CODE = (".h", ".cpp", ".cu", ".cuh")
TEXT = CODE + (".py", ".sh", ".sub", ".cmake", ".yaml", ".yml", ".md", ".in", "")
EXEMPT = ("tests/golden/", "kernels/rows/tests/golden/", "tests/fuzz/corpus/", "tests/architecture/check_style.py")
MEASURED = ("kernels/measured/", "kernels/rows/measured/")
MOST_HEADER_LINES = 30
MOST_README_LINES = 150
MOST_COLUMNS = 100
FORMAT_MAJOR = 14

# Abbreviated and full hashes; digits and letters both, which spares numbers and words. 0b1011 is a
# number, and 0f3f800000 a float of PTX.
HASH = re.compile(r"(?<![0-9A-Za-z_.\"'#-])(?!0[bf])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])"
                  r"(?:[0-9a-f]{7,12}|[0-9a-f]{40})(?![0-9A-Za-z_.\"'-])")

# A path from the root in backticks: `data/pipeline/exchange`, `tests/*_test.py`.
PATH = re.compile(r"`((?:%s)/[\w.*/-]+)`" % "|".join(FOLDERS[:-1]))
# The target of a link inside the repository: [text](pipeline/exchange.md), ![text](exchange.svg).
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]+)")


def header_lines(text):
    """Length of the first block of // lines, when only #pragma once and includes precede it."""
    count = 0
    for line in text.splitlines():
        if line.startswith("//"):
            count += 1
        elif count or not (line == "" or line.startswith(("#pragma once", "#include"))):
            break
    return count


class Checker:
    def __init__(self, root, formatter):
        self.root = root
        self.formatter = formatter
        self.found = []

    def files(self):
        for name in TOP_FILES:
            if (self.root / name).is_file():
                yield name
        for folder in FOLDERS:
            for file in sorted((self.root / folder).rglob("*")):
                path = file.relative_to(self.root).as_posix()
                is_text = file.suffix in TEXT or file.name == "CMakeLists.txt"
                if is_text and file.is_file() and not path.startswith(EXEMPT):
                    yield path

    def run(self):
        code = []
        for path in self.files():
            text = (self.root / path).read_text(encoding="utf-8")
            if path.endswith(CODE):
                code.append(path)
                count = header_lines(text)
                if count > MOST_HEADER_LINES:
                    self.report(path, count, "header",
                                f"{count} lines of comment, want at most {MOST_HEADER_LINES}")
            lines = text.splitlines()
            if path.endswith("README.md") and len(lines) > MOST_README_LINES:
                self.report(path, len(lines), "length",
                            f"{len(lines)} lines, want at most {MOST_README_LINES}")
            self.check_lines(path, lines)
        self.check_format(code)
        return self.found

    def report(self, path, line, rule, sentence):
        self.found.append((path, line, rule, sentence))

    def check_lines(self, path, lines):
        measured = path.startswith(MEASURED)
        for number, line in enumerate(lines, 1):
            if path.endswith(CODE) and line.lstrip().startswith("//") and \
                    len(line.rstrip("-")) > MOST_COLUMNS:
                self.report(path, number, "width", f"{len(line)} columns, want {MOST_COLUMNS}")
            for name in PATH.findall(line) if path.endswith(".md") and not measured else ():
                if not any(self.root.glob(name)) and not any(self.root.glob(name + ".*")):
                    self.report(path, number, "path", f"{name} does not exist")
            for name in LINK.findall(line) if path.endswith(".md") else ():
                if not (self.root / path).parent.joinpath(name).exists():
                    self.report(path, number, "link", f"{name} does not exist")
            found = None if measured else HASH.search(line)
            if found:
                self.report(path, number, "hash", f"{found[0]}: commits stand in {MEASURED[0]} only")

    def check_format(self, paths):
        if not paths:
            return
        wanted = subprocess.run(
            [self.formatter, "--dry-run", "--style=file", *paths], cwd=self.root,
            stderr=subprocess.PIPE, text=True, check=False)
        places = {tuple(line.split(":", 2)[:2]) for line in wanted.stderr.splitlines()
                  if "[-Wclang-format-violations]" in line}
        for path, line in sorted(places, key=lambda place: (place[0], int(place[1]))):
            self.report(path, int(line), "format", f"run {pathlib.Path(self.formatter).name} -i on it")
        if wanted.returncode != 0 and not places:
            self.report(paths[0], 1, "format", wanted.stderr.strip())


def find_formatter():
    """clang-format of the one version that formats alike everywhere, or an exit with a sentence."""
    beside = pathlib.Path(sys.executable).parent / "clang-format"
    seen = []
    for name in (str(beside), f"clang-format-{FORMAT_MAJOR}", "clang-format"):
        program = shutil.which(name)
        if not program:
            continue
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        version = re.search(r"version (\d+)", said.stdout)
        if version and int(version[1]) == FORMAT_MAJOR:
            return program
        seen.append(f"{program} is version {version[1] if version else 'unknown'}")
    raise SystemExit(f"check_style.py: clang-format {FORMAT_MAJOR} was not found "
                     f"({'; '.join(seen) or 'none in PATH'}); tests/run installs it from "
                     "tests/requirements.txt, or: apt-get install clang-format-14")


# --- the self-test ---

CLEAN = {
    ".clang-format": "BasedOnStyle: Google\nReflowComments: false\n",
    "README.md": "# A title\n\n`kernels/a`, `kernels/*.cu`, 1234567 sequences, 2026-11-22, #ffe1e1e\n"
                 "[a](kernels/a.h), ![b](kernels/b.cu), [c](https://a.b/c)\n",
    "kernels/a.h": "#pragma once\n\n" + "// why\n" * MOST_HEADER_LINES + "\nint f();\n",
    "kernels/b.cu": '#include "kernels/a.h"\n\nint f() { return 0x1234abc + 0b10110011 + "0123abc"[0]; }\n',
    "kernels/measured/a.md": "at 738783c\n",
    "launch/run": "#!/usr/bin/env bash\necho done\n",
    "tests/golden/a.md": "at 738783c\n",
}
PLANTED = [
    ("hash", "README.md", "as of 738783c\n"),
    ("hash", "kernels/b.cu", "// measured at 60512e0f\n"),
    ("hash", "kernels/a.h", "// " + "60512e0a9b" * 4 + "\n"),
    ("format", "kernels/b.cu", "int  g();\n"),
    ("width", "kernels/b.cu", "// " + "w" * MOST_COLUMNS + "\n"),
    ("path", "README.md", "`kernels/gone.h`\n"),
    ("link", "kernels/measured/a.md", "![a](a.svg)\n"),
    ("length", "README.md", "\n" * MOST_README_LINES),
    ("header", "kernels/c.cuh", "#pragma once\n" + "// why\n" * (MOST_HEADER_LINES + 1)),
]


if __name__ == "__main__":
    FORMATTER = find_formatter()
    rule_check.main(__doc__, lambda root: Checker(root, FORMATTER).run(), CLEAN, PLANTED)
