"""What the checks of sources share: the command line, and a self-test that plants violations."""

import argparse
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check_tree(files, check):
    """What is found in a folder with these files."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        return check(root)


def self_test(check, clean, planted, extra):
    """Every rule fires on what it forbids, and on nothing else: planted are rule, file and what is added at
    its end; extra the files that are needed beside one."""
    wrong = [f"clean tree: {found}" for found in check_tree(clean, check)]
    for rule, path, text in planted:
        found = check_tree({**clean, **extra.get(path, {}), path: clean.get(path, "") + text}, check)
        if [(place, kind) for place, _, kind, _ in found] != [(path, rule)]:
            wrong.append(f"planted {rule} in {path} ({text.strip()[:60]!r}): found {found}")
    print("\n".join(wrong) if wrong else f"{len(planted)} planted violations were found")
    return 1 if wrong else 0


def main(description, check, clean, planted, extra=None):
    """check(root): violations as (file, line, rule, sentence)."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        sys.exit(self_test(check, clean, planted, extra or {}))
    found = check(arguments.root)
    for path, line, rule, sentence in found:
        print(f"{path}:{line}: {rule}: {sentence}")
    print(f"{len(found)} violations of the rules")
    sys.exit(1 if found else 0)
