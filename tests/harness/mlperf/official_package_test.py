"""What `bertha submit` builds passes the benchmark's own checkers, and what would not is not built.

usage: official_package_test.py BERTHA WRITE_MLLOG
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from official_mlperf import (RULE_SETS, check_training_result_files, mlp_compliance,  # noqa: E402
                             system_desc_checker)

BERTHA, WRITE_MLLOG = sys.argv[1:3]
SYSTEM = {
    "nodes": 2, "ranks_per_node": 8,
    "host": {"name": "n1", "operating_system": "Debian 12", "kernel": "Linux 6.1",
             "cpu_model": "Some CPU", "sockets": 2, "cores": 128, "logical_cpus": 256,
             "max_mhz": 3800.0, "caches": "L1d 48K", "memory_bytes": 1 << 41,
             "network": "8x InfiniBand 400 Gb/sec (4X NDR)"},
    "accelerator": {"name": "NVIDIA H200", "memory_bytes": 141 << 30, "driver": "580.1"},
    "versions": {"bertha": "0.1.0", "HDF5": "1.10.8"},
}


def run(*words, cwd=None):
    done = subprocess.run([str(word) for word in words], cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    return done.returncode, done.stdout.decode()


class OfficialPackage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.output = self.folder / "my org"
        self.sources = self.folder / "sources"
        self.sources.mkdir()
        (self.sources / "README.md").write_text("the sources\n")
        git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "first")):
            code, said = run(*git, *words, cwd=self.sources)
            self.assertEqual(code, 0, said)
        self.commit = run("git", "rev-parse", "--short", "HEAD", cwd=self.sources)[1].strip()

    def make_runs(self, count=10, samples=2400384, git_hash=None):
        """Run folders as launch/run_and_time.sh leaves them."""
        runs = self.folder / "runs"
        for index in range(count):
            run_folder = runs / f"run_{index}"
            (run_folder / "mllog").mkdir(parents=True, exist_ok=True)
            subprocess.run([WRITE_MLLOG, str(run_folder / "mllog" / "result_0.txt"), "448",
                            str(100 + index), "success", "68000", str(900_000 + index),
                            "150080:0.37", f"{samples + index}:0.7202"], check=True, timeout=60)
            (run_folder / "resolved.yaml").write_text(f"train:\n  seed: {100 + index}\n")
            facts = {**SYSTEM, "git_hash": git_hash or self.commit}
            (run_folder / "system.json").write_text(json.dumps(facts))
        return runs

    def submit(self, runs, *more):
        return run(BERTHA, "submit", runs, "--system", "box_8xH200", "--output", self.output,
                   "--sources", self.sources, *more)

    def test_ten_good_runs_pass_the_package_checker(self):
        code, said = self.submit(self.make_runs())
        self.assertEqual(code, 0, said)
        results = self.output / "results" / "box_8xH200" / "bert"
        self.assertEqual(sorted(p.name for p in results.iterdir()),
                         [f"result_{i}.txt" for i in range(10)])
        self.assertEqual((results / "result_9.txt").read_text(),
                         (self.folder / "runs/run_9/mllog/result_0.txt").read_text())
        code_folder = self.output / f"benchmarks/bert/implementations/bertha-{self.commit}"
        self.assertEqual((code_folder / "README.md").read_text(), "the sources\n")
        self.assertIn("seed: 100", (code_folder / "configs/box_8xH200.yaml").read_text())
        system = self.output / "systems" / "box_8xH200.json"
        for rule_set in RULE_SETS:
            mlp_compliance.enqueued_configs.clear()
            self.assertTrue(check_training_result_files(
                str(self.output), "training", rule_set, True, False, False, False, False))
            self.assertTrue(system_desc_checker.check_system_desc(str(system), "training",
                                                                  rule_set)[0])
        self.assertEqual(sorted(p.name for p in self.output.iterdir()),
                         ["benchmarks", "results", "systems"])

    def test_the_description_says_what_the_machine_said_and_keeps_what_a_person_wrote(self):
        runs = self.make_runs()
        path = self.output / "systems" / "box_8xH200.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"cooling": "air", "hw_notes": "", "rack": "7"}))
        code, said = self.submit(runs)
        self.assertEqual(code, 0, said)
        system = json.loads(path.read_text())
        for name, value in (("number_of_nodes", "2"), ("accelerators_per_node", "8"),
                            ("accelerator_model_name", "NVIDIA H200"),
                            ("accelerator_memory_capacity", "141.0 GiB"),
                            ("host_processors_per_node", "2"), ("host_processor_core_count", "64"),
                            ("host_processor_vcpu_count", "128"),
                            ("host_processor_frequency", "3800 MHz"), ("division", "closed"),
                            ("host_networking", "8x InfiniBand 400 Gb/sec (4X NDR)"),
                            ("other_software_stack", "NVIDIA driver 580.1, HDF5 1.10.8"),
                            ("cooling", "air"), ("rack", "7"), ("host_storage_type", "")):
            self.assertEqual(system[name], value, name)
        self.assertIn("host_storage_type", said)
        self.assertNotIn("cooling", said)

    def test_what_breaks_a_rule_is_not_built_unless_as_a_draft(self):
        runs = self.make_runs(count=9)
        code, said = self.submit(runs)
        self.assertEqual(code, 8, said)
        self.assertIn("9 result files, want exactly 10", said)
        self.assertIn("nothing written", said)
        self.assertFalse(self.output.exists())
        code, said = self.submit(runs, "--draft")
        self.assertEqual(code, 8, said)
        self.assertEqual(len(list((self.output / "results/box_8xH200/bert").iterdir())), 9)

    def test_runs_of_unknown_sources_are_refused(self):
        runs = self.make_runs(git_hash=f"{self.commit}+")
        code, said = self.submit(runs)
        self.assertEqual(code, 4, said)
        self.assertIn("not by a commit without changes", said)
        self.assertFalse(self.output.exists())
        code, said = self.submit(runs, "--draft")
        self.assertEqual(code, 0, said)
        self.assertIn("no sources in this draft", said)
        self.assertFalse((self.output / "benchmarks").exists())

    def test_a_commit_that_the_checkout_lacks_leaves_nothing_behind(self):
        runs = self.make_runs(git_hash="0123456789ab")
        code, said = self.submit(runs)
        self.assertEqual(code, 4, said)
        self.assertIn("no git checkout with commit 0123456789ab", said)
        self.assertFalse(self.output.exists())
        self.output.mkdir()  # a person's: it stays
        self.assertEqual(self.submit(runs)[0], 4)
        self.assertEqual(list(self.output.iterdir()), [])

    def test_results_are_never_replaced(self):
        runs = self.make_runs()
        self.assertEqual(self.submit(runs)[0], 0)
        before = (self.output / "results/box_8xH200/bert/result_0.txt").read_bytes()
        code, said = self.submit(runs)
        self.assertEqual(code, 4, said)
        self.assertIn("is there already", said)
        self.assertEqual((self.output / "results/box_8xH200/bert/result_0.txt").read_bytes(), before)

    def test_bad_names_and_folders_are_refused(self):
        runs = self.make_runs()
        code, said = run(BERTHA, "submit", runs, "--system", "../x", "--output", self.output)
        self.assertEqual(code, 2, said)
        code, said = self.submit(self.folder)
        self.assertEqual(code, 4, said)
        self.assertIn("neither a run folder nor", said)
        (runs / "run_3/system.json").write_text("{}")
        code, said = self.submit(runs)
        self.assertEqual(code, 4, said)
        self.assertIn("run_3/system.json", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
