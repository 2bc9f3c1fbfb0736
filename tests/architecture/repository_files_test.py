"""GitHub accepts the workflow, the issue forms and CITATION.cff; what the workflow runs exists; every
file that states a version states the one of kernels/base/version.cmake.

usage: repository_files_test.py SOURCE_DIR
"""

import json
import pathlib
import re
import subprocess
import sys
import unittest

try:
    import check_jsonschema  # noqa: F401
    import ruamel.yaml
except ImportError as missing:
    sys.exit(f"{sys.executable}: {missing}. This test needs the packages of tests/requirements.txt: "
             "tests/run installs them; or set BERTHA_TEST_PYTHON to a Python that has them.")

ROOT = pathlib.Path(sys.argv[1]).resolve()
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = ROOT / ".github/ISSUE_TEMPLATE"
EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")


def run_scripts(node):
    """Every script of a workflow, also the ones that its matrix lists."""
    if isinstance(node, list):
        return [script for item in node for script in run_scripts(item)]
    if not isinstance(node, dict):
        return []
    scripts = [value for key, value in node.items() if key == "run" and isinstance(value, str)]
    return scripts + run_scripts(list(node.values()))


class RepositoryFiles(unittest.TestCase):
    def expect_schema(self, name, *paths):
        ended = subprocess.run(
            [sys.executable, "-m", "check_jsonschema", "--builtin-schema", name, *map(str, paths)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stdout)

    def test_files_follow_their_schemas(self):
        self.expect_schema("vendor.github-workflows", *WORKFLOWS)
        self.expect_schema("custom.github-workflows-require-timeout", *WORKFLOWS)
        self.expect_schema("vendor.github-issue-config", FORMS / "config.yml")
        self.expect_schema("vendor.github-issue-forms",
                           *(file for file in FORMS.glob("*.yml") if file.name != "config.yml"))
        self.expect_schema("vendor.citation-file-format", ROOT / "CITATION.cff")

    def test_jobs_use_what_their_matrix_and_the_steps_before_define(self):
        for file in WORKFLOWS:
            for name, job in ruamel.yaml.YAML(typ="safe").load(file)["jobs"].items():
                rows = job.get("strategy", {}).get("matrix", {}).get("include", [])
                self.assertEqual(len({row["name"] for row in rows}), len(rows), "rows of one name")
                defined = {f"matrix.{key}" for row in rows for key in row}
                used = set(re.findall(r"\bmatrix\.\w+", json.dumps(job)))
                self.assertLessEqual(used, defined, f"{file.name}, job {name}")
                for expression in EXPRESSION.findall(file.read_text()):
                    self.assertRegex(expression, r"^ (github|matrix|env)\.\w+( == '\w+')? $")

    def test_scripts_of_jobs_are_sound_and_name_what_exists(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
        names = {preset["name"] for preset in presets}
        scripts = [script for file in WORKFLOWS
                   for script in run_scripts(ruamel.yaml.YAML(typ="safe").load(file))]
        self.assertGreater(len(scripts), 5)
        for script in scripts:
            script = EXPRESSION.sub("expression", script)
            ended = subprocess.run(["shellcheck", "--shell=bash", "-"], input=script,
                                   stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual(ended.returncode, 0, ended.stdout)
            for preset in re.findall(r"--preset (\S+)", script):
                self.assertIn(preset, names)
            for path in re.findall(r"(?:^|\s)(?:\./)?((?:\.ci|kernels|launch|tests)/\S+)", script):
                self.assertTrue((ROOT / path).is_file(), f"{path} does not exist")

    def test_one_version(self):
        text = (ROOT / "kernels/base/version.cmake").read_text()
        version, suffix = re.search(
            r"^set\(bertha_version (\S+)\)\nset\(bertha_version_suffix (\S+)\)$", text, re.M).groups()
        suffix = suffix.strip('"')
        for package in ("harness/tools", "kernels/rows/python"):
            stated = re.search('^version = "(.*)"$', (ROOT / package / "pyproject.toml").read_text(), re.M)[1]
            self.assertEqual(stated, version + (".dev0" if suffix else ""), package)
        citation = ruamel.yaml.YAML(typ="safe").load(ROOT / "CITATION.cff")
        self.assertEqual(citation["version"], version + suffix)
        notes = (ROOT / ".github/RELEASE_NOTES.md").read_text()
        newest, state = re.search(r"^## \[(.*)\] - (.*)$", notes, re.M).groups()
        self.assertEqual((newest, state == "Unreleased"), (version, bool(suffix)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
