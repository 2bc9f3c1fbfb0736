#!/usr/bin/env python3
"""Enforces the rules of include_rules.txt on every source file.

usage: check_includes.py [--root DIR]   lists violations; exit 1 when there are any
       check_includes.py --self-test    plants one violation of each rule and expects its report

Rules: include arrows and third-party headers (include_rules.txt), includes from the repository root
with the own header first, the closed list of macros, environment reads, parsers of JSON, process-wide
state, and 500 lines per file.
"""

import fnmatch
import pathlib
import re

import rule_check

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = ("kernels", "data", "harness", "tests")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
MOST_LINES = 500

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]*)"|<([^>]*)>|(\S.*))')
DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)")
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b|\bsetenv\s*\(|\bputenv\s*\(")
PARSER = re.compile(r"\b\w*[Jj]son::(?:parse|accept|sax_parse)\s*\(")
# A declaration at the start of a line is at namespace scope, because nothing there is indented.
KEYWORDS = r"(?!(?:using|typedef|return|namespace|class|struct|enum|union|template|friend|extern|goto|case|concept)\b)"
GLOBAL = re.compile(
    r"^" + KEYWORDS + r"(?:(?:static|inline|thread_local)\s+)*[A-Za-z_][\w:]*(?:<.*>)?[\s*&]+"
    r"\w+(?:\[[^\]]*\])*\s*(?:=[^=].*|\{.*)?;?$"
)
LOCAL_STATIC = re.compile(
    r"^\s+(?:static|thread_local)\s+(?:thread_local\s+|inline\s+)?[A-Za-z_][\w:]*(?:<.*>)?[\s*&]+\w+"
    r"(?:\[[^\]]*\])*\s*(?:=.*|\{.*)?;$"
)
CONSTANT = re.compile(r"\b(?:const|constexpr|constinit const|static_assert)\b")


class Rules:
    """The lines of include_rules.txt by kind: [(pattern, [patterns])], with @NAME replaced by its set."""

    KINDS = ("files", "third", "macro", "environment", "parser", "mutable", "long")

    def __init__(self, text):
        self.lines = {kind: [] for kind in self.KINDS}
        sets = {}
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.split("#", 1)[0].strip()
            if not line:
                continue
            head, _, tail = line.partition(" : ")
            words = head.split()
            tail = re.sub(r"@(\w+)", lambda name: sets[name[1]], tail)
            if words[0] == "set":
                sets[words[1]] = tail
                continue
            if len(words) != 2 or words[0] not in self.KINDS:
                raise SystemExit(f"include_rules.txt:{number}: cannot read '{raw}'")
            self.lines[words[0]].append((words[1], tail.split()))

    def of(self, kind, name):
        """What the longest matching pattern allows, or None."""
        found = [entry for entry in self.lines[kind] if fnmatch.fnmatchcase(name, entry[0])]
        return max(found, key=lambda entry: len(entry[0]))[1] if found else None

    def names(self, kind, path):
        return self.of(kind, path) is not None


def any_match(path, patterns):
    """Whether the last pattern that matches does not begin with !."""
    hits = [p for p in patterns if fnmatch.fnmatchcase(path, p.lstrip("!"))]
    return bool(hits) and not hits[-1].startswith("!")


def without_comments_and_strings(text):
    """The same lines, with comments and the insides of literals blanked."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",
        re.S,
    )

    def blank(match):
        text = match.group(0)
        if text.startswith(("//", "/*")):
            return "\n" * text.count("\n")
        return '""' + "\n" * text.count("\n")

    return token.sub(blank, text)


class Checker:
    def __init__(self, root, rules):
        self.root = root
        self.rules = rules
        self.found = []

    def report(self, path, line, rule, sentence):
        self.found.append((path, line, rule, sentence))

    def run(self):
        for folder in FOLDERS:
            for file in sorted((self.root / folder).rglob("*")):
                if file.suffix in SUFFIXES and file.is_file():
                    self.check_file(file.relative_to(self.root).as_posix(), file)
        return self.found

    def check_file(self, path, file):
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines()
        if len(lines) > MOST_LINES and not self.rules.names("long", path):
            self.report(path, len(lines), "long", f"{len(lines)} lines, want at most {MOST_LINES}")
        if file.suffix in (".h", ".cuh") and "#pragma once" not in text:
            self.report(path, 1, "pragma", "a header without #pragma once")
        self.check_includes(path, lines)
        self.check_code(path, without_comments_and_strings(text).splitlines())

    def check_includes(self, path, lines):
        allowed = self.rules.of("files", path)
        if allowed is None:
            self.report(path, 1, "files", "no rule in include_rules.txt has this file")
            return
        own = re.sub(r"\.(cpp|cu)$", ".h", path)
        first = True
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            ours, brackets, other = match.groups()
            if first and own != path and (self.root / own).exists() and ours != own:
                self.report(path, number, "own-header", f'want "{own}" as the first include')
            first = False
            if other is not None:
                self.report(path, number, "include-form", f"includes {other}, want a header's name")
            elif ours is not None:
                self.check_ours(path, number, ours, allowed)
            else:
                self.check_brackets(path, number, brackets)

    def check_ours(self, path, number, header, allowed):
        if ".." in header.split("/") or not (self.root / header).is_file():
            self.report(path, number, "include-root", f'"{header}" is no path from the repository root')
        elif not any_match(header, allowed):
            self.report(path, number, "arrow", f'may not include "{header}"')
        elif header.endswith(".cuh") and not path.endswith((".cu", ".cuh")):
            self.report(path, number, "cuh", f'"{header}" is for .cu files only')

    def check_brackets(self, path, number, header):
        if "/" not in header and "." not in header:
            return  # the standard library
        places = self.rules.of("third", header)
        if places is None:
            self.report(path, number, "third", f"<{header}> has no line in include_rules.txt")
        elif not any_match(path, places):
            self.report(path, number, "third", f"<{header}> is allowed in {' '.join(places)} only")

    def check_code(self, path, lines):
        for number, line in enumerate(lines, 1):
            define = DEFINE.match(line)
            if define and path not in (self.rules.of("macro", define[1]) or []):
                self.report(path, number, "macro", f"{define[1]} is not in the closed list of macros")
            if ENVIRONMENT.search(line) and not self.rules.names("environment", path):
                self.report(path, number, "environment", "reads or sets the environment")
            if PARSER.search(line) and not self.rules.names("parser", path):
                self.report(path, number, "parser", "parses JSON without data/files/json_file.h")
            state = GLOBAL.match(line) or LOCAL_STATIC.match(line)
            if state and not CONSTANT.search(line) and not self.rules.names("mutable", path):
                self.report(path, number, "mutable", "process-wide state that can change")


# --- the self-test ---

CLEAN = {
    "kernels/base/error.h": "#pragma once\n#include <string>\n#define BERTHA_CHECK(x) x\n",
    "kernels/ops.h": '#pragma once\n#include "kernels/base/error.h"\n',
    "kernels/cuda/tile.cuh": "#pragma once\n",
    "kernels/cuda/gather_scatter.cu": '#include "kernels/cuda/tile.cuh"\n#include <cuda_runtime.h>\n',
    "data/pipeline/batch.h": '#pragma once\n#include "kernels/base/error.h"\n',
    "data/pipeline/transport.h": "#pragma once\n",
    "data/format/hdf5_input.h": "#pragma once\n",
    "data/format/hdf5_input.cpp": '#include "data/format/hdf5_input.h"\n\n#include <hdf5.h>\n',
    "data/prepare/text.h": "#pragma once\n",
    "harness/comm/world.h": '#pragma once\n#include "data/pipeline/transport.h"\n',
    "harness/model/bert.h": '#pragma once\n#include "data/pipeline/batch.h"\n',
    "harness/model/bert.cpp": (
        '#include "harness/model/bert.h"\n\n#include <vector>\n\n'
        "namespace bertha {\nnamespace {\n\nconstexpr int kRows = 1;\nconst char* const kName = \"x\";\n"
        "// int counter = 0;\nint twice(int x) { return 2 * x; }\n"
        "const char* text() { return \"getenv(1) #define X\"; }\n\n}\n\n"
        "void run() {\n  static const int once = 1;\n  int local = once;\n}\n\n}  // namespace bertha\n"
    ),
    "harness/main.cpp": '#include "harness/comm/world.h"\n',
    "tests/a_test.cpp": '#include "harness/model/bert.h"\n#include <gtest/gtest.h>\n\nint counter = 0;\n',
}

PLANTED = [
    ("arrow", "kernels/base/error.h", '#include "kernels/ops.h"\n'),
    ("arrow", "kernels/ops.h", '#include "data/pipeline/batch.h"\n'),
    ("arrow", "kernels/rows/ops/a.h", '#pragma once\n#include "kernels/ops.h"\n'),
    ("arrow", "data/pipeline/batch.h", '#include "data/prepare/text.h"\n'),
    ("arrow", "data/pipeline/batch.h", '#include "harness/comm/world.h"\n'),
    ("arrow", "harness/model/bert.cpp", '#include "harness/comm/world.h"\n'),
    ("arrow", "kernels/cuda/attention/choice.cpp", '#include "kernels/cuda/attention/kernels.h"\n'),
    ("third", "kernels/cuda/attention/choice.cpp", "#include <cuda_runtime_api.h>\n"),
    ("arrow", "harness/comm/world.h", '#include "data/pipeline/batch.h"\n'),
    ("arrow", "harness/main.cpp", '#  include "kernels/ops.h"\n'),
    ("third", "harness/model/bert.cpp", "#include <mpi.h>\n"),
    ("third", "data/pipeline/batch.h", "#include <hdf5.h>\n"),
    ("third", "harness/main.cpp", "#include <CLI/CLI.hpp>\n"),
    ("third", "harness/main.cpp", "#include <boost/any.hpp>\n"),
    ("third", "kernels/base/error.h", "#include <unistd.h>\n"),
    ("include-root", "harness/model/bert.cpp", '#include "bert.h"\n'),
    ("include-root", "harness/model/bert.cpp", '#include "harness/../harness/model/bert.h"\n'),
    ("include-form", "harness/model/bert.cpp", "#include HEADER\n"),
    ("own-header", "harness/model/dims.cpp", "#include <vector>\n"),
    ("cuh", "kernels/cuda/cuda_device.cpp", '#include "kernels/cuda/tile.cuh"\n'),
    ("pragma", "harness/model/layer.h", "class Layer;\n"),
    ("files", "harness/attic/old.cpp", "\n"),
    ("macro", "harness/model/bert.cpp", "#define TILE 16\n"),
    ("macro", "harness/model/bert.cpp", "# define BERTHA_CHECK(x)\n"),
    ("macro", "tests/a_test.cpp", "#define BERTHA_OTHER\n"),
    ("environment", "harness/model/bert.cpp", 'bool on() { return std::getenv("X"); }\n'),
    ("environment", "data/format/hdf5_input.cpp", 'void set() { setenv("X", "1", 1); }\n'),
    ("parser", "harness/model/bert.cpp", "auto a() { return nlohmann::json::parse(b); }\n"),
    ("parser", "data/format/manifest.cpp", "auto a() { return Json::parse(b); }\n"),
    ("mutable", "harness/model/bert.cpp", "int counter = 0;\n"),
    ("mutable", "harness/model/bert.cpp", "static std::vector<int> cache;\n"),
    ("mutable", "harness/model/bert.cpp", "thread_local std::map<int, int> seen{};\n"),
    ("mutable", "harness/model/bert.cpp", "void f() {\n  static int calls = 0;\n}\n"),
    ("mutable", "harness/model/bert.cpp", "void f() {\n  static Registry registry;\n}\n"),
    ("long", "harness/model/bert.cpp", "\n" * MOST_LINES),
]


EXTRA = {"harness/model/dims.cpp": {"harness/model/dims.h": "#pragma once\n"},
         "kernels/cuda/attention/choice.cpp": {"kernels/cuda/attention/kernels.h": "#pragma once\n"}}


if __name__ == "__main__":
    RULES = Rules((HERE / "include_rules.txt").read_text(encoding="utf-8"))
    rule_check.main(__doc__, lambda root: Checker(root, RULES).run(), CLEAN, PLANTED, EXTRA)
