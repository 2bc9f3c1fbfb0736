"""bertha-tools submit builds the tree that the C++ command builds, byte for byte, which passes the
official checkers; and what breaks a rule is not built.

usage: submit_test.py BERTHA
"""

import filecmp
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from mllog_case import TOOLS, Log, MllogCase, program, ten, tool  # noqa: E402
from official_mlperf import (RULE_SETS, check_training_result_files,  # noqa: E402
                             mlp_compliance, system_desc_checker)

SYSTEM = {
    "nodes": 2, "ranks_per_node": 8,
    "host": {"name": "n1", "operating_system": "Debian 12", "kernel": "Linux 6.1",
             "cpu_model": "Some CPU", "sockets": 2, "cores": 128, "logical_cpus": 256,
             "max_mhz": 3800.0, "caches": "L1d 48K", "memory_bytes": 1 << 41,
             "network": "8x InfiniBand 400 Gb/sec (4X NDR)"},
    "accelerator": {"name": "NVIDIA H200", "memory_bytes": 141 << 30, "driver": "580.1"},
    "versions": {"bertha": "0.1.0", "HDF5": "1.10.8"},
}


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class Submit(MllogCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sources = cls.folder / "sources"
        cls.sources.mkdir()
        (cls.sources / "README.md").write_text("the sources\n")
        git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "first")):
            subprocess.run([*git, *words], cwd=cls.sources, check=True)
        cls.commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=cls.sources,
                                    check=True, capture_output=True, text=True).stdout.strip()

    def setUp(self):
        self.home = self.folder / self.id().rpartition(".")[2]
        self.home.mkdir()
        self.output = self.home / "my org"

    def make_runs(self, runs=None, **facts):
        """Run folders as launch/run_and_time.sh leaves them."""
        folder = self.home / "runs"
        for i, run in enumerate(runs or ten(2_500_000)):
            log = folder / f"run_{i}" / "mllog" / "result_0.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(Log(self.good).as_run(**run).text())
            shutil.copy(self.run_dir / "resolved.yaml", folder / f"run_{i}" / "resolved.yaml")
            (folder / f"run_{i}" / "system.json").write_text(
                json.dumps({**SYSTEM, "git_hash": self.commit, **facts}))
        return folder

    def words(self, runs, *more):
        return ("submit", runs, "--system", "box_8xH200", "--output", self.output, "--sources",
                self.sources, *more)

    def both(self, runs, *more):
        """The tool's (code, output), after the same from the program, into another folder."""
        native = self.home / "native"
        words = [native if word == self.output else word for word in self.words(runs, *more)]
        code, said = program(self.bertha, *words)
        found, out, err = tool(*self.words(runs, *more))
        self.assertEqual(found, code, (said, out, err))
        self.assertEqual(native.exists(), self.output.exists())
        if native.exists():
            names = files_below(native)
            self.assertEqual(files_below(self.output), names)
            self.assertEqual(filecmp.cmpfiles(native, self.output, names, shallow=False),
                             (names, [], []))
        return found, out + err

    def test_ten_good_runs_pass_the_package_checker(self):
        code, said = self.both(self.make_runs())
        self.assertEqual(code, 0, said)
        self.assertIn("to fill in by hand in", said)
        system = self.output / "systems" / "box_8xH200.json"
        for rule_set in RULE_SETS:
            mlp_compliance.enqueued_configs.clear()
            self.assertTrue(check_training_result_files(
                str(self.output), "training", rule_set, True, False, False, False, False))
            self.assertTrue(system_desc_checker.check_system_desc(str(system), "training",
                                                                  rule_set)[0])

    def test_the_facts_of_the_real_run_are_described_alike(self):
        real = json.loads((self.run_dir / "system.json").read_text())
        code, said = self.both(self.make_runs(**{**real, "git_hash": self.commit}))
        self.assertEqual(code, 0, said)

    def test_runs_that_are_scaled_leave_no_file_of_the_checker(self):
        code, said = self.both(self.make_runs(ten(2_350_000)))
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"score +\S+ minutes \(olympic mean, times 1\.0[1-9]")

    def test_what_a_person_wrote_stays(self):
        for output in (self.output, self.home / "native"):
            (output / "systems").mkdir(parents=True)
            (output / "systems" / "box_8xH200.json").write_text(
                json.dumps({"cooling": "air", "hw_notes": "", "rack": "7", "aisle": ""}))
        code, said = self.both(self.make_runs())
        self.assertEqual(code, 0, said)
        self.assertNotIn("cooling", said)
        self.assertIn("host_storage_type", said)

    def test_a_description_that_the_official_checker_refuses_breaks_a_rule(self):
        (self.output / "systems").mkdir(parents=True)
        path = self.output / "systems" / "box_8xH200.json"
        path.write_text(json.dumps({"status": "soon"}))
        code, said, _ = tool(*self.words(self.make_runs()))
        self.assertEqual(code, 8, said)
        self.assertIn("Field status contains a non valid value: soon", said)
        path.write_text("{")
        code, _, said = tool(*self.words(self.home / "runs"))
        self.assertEqual(code, 4, said)
        self.assertIn("want a system description, or remove it", said)

    def test_a_second_system_shares_the_sources(self):
        runs = self.make_runs()
        self.assertEqual(self.both(runs)[0], 0)
        for output in (self.output, self.home / "native"):
            words = ["other" if word == "box_8xH200" else output if word == self.output else word
                     for word in self.words(runs)]
            found = tool(*words) if output == self.output else program(self.bertha, *words)
            self.assertEqual(found[0], 0, found)
        names = files_below(self.output)
        self.assertEqual(filecmp.cmpfiles(self.home / "native", self.output, names, shallow=False),
                         (names, [], []))

    def test_what_breaks_a_rule_is_not_built_unless_as_a_draft(self):
        runs = self.make_runs(ten(2_500_000, runs=9))
        code, said = self.both(runs)
        self.assertEqual(code, 8, said)
        self.assertIn("found 9, expected 10", said)
        self.assertIn("nothing written", said)
        self.assertFalse(self.output.exists())
        code, said = self.both(runs, "--draft")
        self.assertEqual(code, 8, said)
        self.assertEqual(len(list((self.output / "results/box_8xH200/bert").iterdir())), 9)

    def test_runs_of_unknown_sources_are_refused(self):
        runs = self.make_runs(git_hash=f"{self.commit}+")
        code, said = self.both(runs)
        self.assertEqual(code, 4, said)
        self.assertIn("not by a commit without changes", said)
        self.assertFalse(self.output.exists())
        code, said = self.both(runs, "--draft")
        self.assertEqual(code, 0, said)
        self.assertIn("no sources in this draft", said)

    def test_a_commit_that_the_checkout_lacks_leaves_nothing_behind(self):
        runs = self.make_runs(git_hash="0123456789ab")
        code, said = self.both(runs)
        self.assertEqual(code, 4, said)
        self.assertIn("no git checkout with commit 0123456789ab", said)
        self.output.mkdir()  # a person's: it stays
        self.assertEqual(tool(*self.words(runs))[0], 4)
        self.assertEqual(list(self.output.iterdir()), [])

    def test_results_are_never_replaced(self):
        runs = self.make_runs()
        self.assertEqual(self.both(runs)[0], 0)
        code, said = self.both(runs)
        self.assertEqual(code, 4, said)
        self.assertIn("is there already", said)

    def test_a_full_disk_leaves_nothing_behind(self):
        runs = self.make_runs()
        for most_bytes in (0, 1000, 10_000):  # of a file, instead of a disk
            done = subprocess.run(
                ["prlimit", f"--fsize={most_bytes}", sys.executable, "-m", "bertha_tools.main",
                 *map(str, self.words(runs))], env={**os.environ, "PYTHONPATH": str(TOOLS)},
                capture_output=True, text=True, check=False)
            self.assertIn(done.returncode, (4, 5), done)
            self.assertRegex(done.stderr, "^bertha-tools: error: [^\n]+\n$")
            self.assertFalse(self.output.exists())

    def test_bad_names_and_folders_are_refused(self):
        runs = self.make_runs()
        code, said = self.both(self.folder / "sources")
        self.assertEqual(code, 4, said)
        self.assertIn("neither a run folder nor", said)
        self.assertEqual(tool("submit", runs, "--system", "../x", "--output", self.output)[0], 2)
        facts = (runs / "run_3/system.json")
        for text in ("{}", "[", "[1]", json.dumps({**SYSTEM, "git_hash": 7}),
                     json.dumps({**SYSTEM, "git_hash": self.commit, "nodes": -1})):
            facts.write_text(text)
            code, said = self.both(runs)
            self.assertEqual(code, 4, said)
            self.assertIn("run_3/system.json", said)

    def test_a_target_of_its_own_and_the_open_division(self):
        def opened(log):
            return log.edited("submission_division", value="open")
        runs = [dict(run, accuracy=0.3, change=opened) for run in ten(1_000_000)]
        code, said = self.both(self.make_runs(runs), "--target-accuracy", "0.2")
        self.assertEqual(code, 0, said)
        description = json.loads((self.output / "systems" / "box_8xH200.json").read_text())
        self.assertEqual(description["division"], "open")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2, warnings="ignore")
