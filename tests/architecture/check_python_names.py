#!/usr/bin/env python3
"""Checks that every name that a Python file imports from a file in its folder exists.

usage: check_python_names.py [--root DIR]   lists missing names; exit 1 when there are any
       check_python_names.py --self-test    plants missing names and expects their report

Comparisons that need a GPU or PyTorch do not run with the other tests, so a broken import in them would
go unnoticed. Checked are `from module import name` and `module.name` after `import module`, unless the
file reuses the module's name for a variable. Names created at run time are not supported.
"""
import ast

import rule_check

FOLDERS = ("kernels", "data", "harness", "launch", "tests")


def names_of(tree):
    """Names defined at the top level of a module, inside branches too."""
    names = set()
    todo = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue  # names inside are local
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
                             ast.Lambda)):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        todo += ast.iter_child_nodes(node)
    return names


def missing_in(path, tree, beside):
    """Violations; beside: {module: its names}."""
    imported = {}
    taken = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    taken |= {node.id for node in ast.walk(tree)
              if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name: alias.name for alias in node.names
                         if alias.name in beside}
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in beside:
            for alias in node.names:
                if alias.name not in beside[node.module] | {"*"}:
                    yield path, node.lineno, "name", f"{node.module} has no {alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = imported.get(node.value.id)
            is_name = node.attr.startswith("__") or (module and node.attr in beside[module])
            if module and node.value.id not in taken and not is_name:
                yield path, node.lineno, "name", f"{module} has no {node.attr}"


def check(root):
    trees = {path: ast.parse(path.read_text(), str(path))
             for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))}
    found = []
    for path, tree in trees.items():
        beside = {other.stem: names_of(trees[other]) for other in trees
                  if other.parent == path.parent}
        found += missing_in(path.relative_to(root).as_posix(), tree, beside)
    return found if trees else [(root, 1, "files", f"no Python file in {', '.join(FOLDERS)}")]


# --- the self-test ---

CLEAN = {
    "tests/here.py": "import sys\nif sys.argv:\n    A, (B, *C) = 1, (2, 3)\nE = [x for x in C]\n"
                     "def there(): local = 1\n",
    "tests/user.py": "from here import A, B, C, there, sys\nimport here as h\nimport os\n"
                     "h.there()\nh.__file__\nos.nothing\nimport here\ndef f(here): return here.shape\n",
    "tests/names.py": "from here import there\nimport here\n",
}
PLANTED = [
    ("name", "tests/names.py", "from here import local\n"),
    ("name", "tests/names.py", "from here import x\n"),
    ("name", "tests/names.py", "def f():\n    return here.gone(here.A)\n"),
]

if __name__ == "__main__":
    rule_check.main(__doc__, check, CLEAN, PLANTED)
