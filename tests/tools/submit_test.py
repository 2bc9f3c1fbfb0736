"""bertha-tools submit builds a tree that passes the official checkers; what breaks a rule is not built."""

import json
import shutil
import subprocess

from mllog_case import Log, MllogCase, ten
from official_mlperf import RULE_SETS, check_training_result_files, mlp_compliance, system_desc_checker
from tool_case import main, process

SYSTEM = {
    "nodes": 2, "ranks_per_node": 8,
    "host": {"name": "n1", "operating_system": "Debian 12", "kernel": "Linux 6.1",
             "cpu_model": "Some CPU", "sockets": 2, "cores": 128, "logical_cpus": 256,
             "max_mhz": 3800.0, "caches": "L1d 48K", "memory_bytes": 1 << 41,
             "network": "8x InfiniBand 400 Gb/sec (4X NDR)"},
    "accelerator": {"name": "NVIDIA H200", "memory_bytes": 141 << 30, "driver": "580.1"},
    "versions": {"hwloc": "2.9.0", "bertha": "0.1.0", "HDF5": "1.10.8", "MPI": ""},
}
DESCRIBED = {
    "submitter": "bertha", "division": "closed", "status": "Research, Development, or Internal (RDI)",
    "system_name": "box_8xH200", "number_of_nodes": "2", "host_processors_per_node": "2",
    "host_processor_model_name": "Some CPU", "host_processor_core_count": "64",
    "host_processor_vcpu_count": "128", "host_processor_frequency": "3800 MHz",
    "host_processor_caches": "L1d 48K", "host_memory_capacity": "2.0 TiB",
    "host_networking": "8x InfiniBand 400 Gb/sec (4X NDR)", "accelerators_per_node": "8",
    "accelerator_model_name": "NVIDIA H200", "accelerator_memory_capacity": "141.0 GiB",
    "other_software_stack": "NVIDIA driver 580.1, HDF5 1.10.8, hwloc 2.9.0",
    "operating_system": "Debian 12"}
TO_FILL_IN = ["host_processor_interconnect", "host_storage_type", "host_storage_capacity",
              "host_networking_topology", "host_memory_configuration", "accelerator_host_interconnect",
              "accelerator_frequency", "accelerator_on-chip_memories", "accelerator_memory_configuration",
              "accelerator_interconnect", "accelerator_interconnect_topology", "cooling"]


class Submit(MllogCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sources = cls.scratch / "sources"
        cls.sources.mkdir()
        (cls.sources / "README.md").write_text("the sources\n")
        git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "first")):
            subprocess.run([*git, *words], cwd=cls.sources, check=True)
        cls.commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=cls.sources, check=True,
                                    capture_output=True, text=True).stdout.strip()

    def setUp(self):
        super().setUp()
        self.output = self.folder / "my org"
        self.system = self.output / "systems" / "box_8xH200.json"
        self.code = self.output / "benchmarks/bert/implementations" / f"bertha-{self.commit}"

    def make_runs(self, runs=None, **facts):
        """Run folders as launch/run_and_time.sh leaves them."""
        folder = self.folder / "runs"
        for i, run in enumerate(runs or ten(2_500_000)):
            log = folder / f"run_{i}" / "mllog" / "result_0.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(Log(self.good).as_run(**run).text())
            shutil.copy(self.run_dir / "resolved.yaml", folder / f"run_{i}" / "resolved.yaml")
            (folder / f"run_{i}" / "system.json").write_text(
                json.dumps({**SYSTEM, "git_hash": self.commit, **facts}))
        return folder

    def words(self, runs, *more, system="box_8xH200"):
        return ("submit", runs, "--system", system, "--output", self.output, "--sources", self.sources, *more)

    def submit(self, *words, code=0, **more):
        return self.tool(*self.words(*words, **more), code=code)

    def described(self):
        return json.loads(self.system.read_text())

    def assert_whole(self, *systems):
        """Nothing but the files of these systems is there."""
        code = self.code.relative_to(self.output)
        wanted = [f"{code}/README.md"]
        for system in systems:
            wanted += [f"results/{system}/bert/result_{i}.txt" for i in range(10)]
            wanted += [f"{code}/README-{system}.md", f"{code}/configs/{system}.yaml",
                       f"systems/{system}.json"]
        found = [path for path in self.output.rglob("*") if path.is_file()]
        self.assertEqual(sorted(str(path.relative_to(self.output)) for path in found), sorted(wanted))

    def test_ten_good_runs_pass_the_package_checker(self):
        runs = self.make_runs()
        said = self.submit(runs)
        self.assertIn("score    11.125 minutes (olympic mean, times 1.0000)", said)
        self.assertEqual(said.partition(f"to fill in by hand in {self.system}:\n")[2].split(), TO_FILL_IN)
        self.assert_whole("box_8xH200")
        for rule_set in RULE_SETS:
            mlp_compliance.enqueued_configs.clear()
            self.assertTrue(check_training_result_files(
                str(self.output), "training", rule_set, True, False, False, False, False))
            self.assertTrue(system_desc_checker.check_system_desc(str(self.system), "training", rule_set)[0])
        found = self.described()
        self.assertEqual({name: text for name, text in found.items() if text},
                         {**DESCRIBED, "framework": f"Bertha 0.1.0 ({self.commit})"})
        self.assertEqual([name for name in found if not found[name]], [*TO_FILL_IN, "hw_notes", "sw_notes"])
        for i in range(10):
            self.assertEqual((self.output / f"results/box_8xH200/bert/result_{i}.txt").read_text(),
                             (runs / f"run_{i}/mllog/result_0.txt").read_text())
        settings = (self.code / "configs/box_8xH200.yaml").read_text()
        for line, original in zip(settings.splitlines(), (self.run_dir / "resolved.yaml").read_text().splitlines(),
                                  strict=True):
            if '"/' in original:  # of a path the name alone
                key, _, path = original.partition(': "')
                original = f'{key}: "{path.rpartition("/")[2]}'
            self.assertEqual(line, original)
        self.assertNotIn('"/', settings)
        readme = (self.code / "README-box_8xH200.md").read_text()
        self.assertIn(f"# Bertha on box_8xH200\n\nCommit {self.commit}.\n", readme)
        self.assertIn("\n    NEXP=10 LOGDIR=results launch/run_and_time.sh configs/box_8xH200.yaml\n", readme)

    def test_a_real_run_without_an_accelerator_is_described(self):
        real = json.loads((self.run_dir / "system.json").read_text())
        self.submit(self.make_runs(**{**real, "git_hash": self.commit}))
        found = self.described()
        self.assertEqual(found["host_processor_model_name"], real["host"]["cpu_model"])
        self.assertEqual(found["number_of_nodes"], "1")
        self.assertEqual(found["host_networking_topology"], "N/A")
        self.assertEqual((found["accelerators_per_node"], found["accelerator_model_name"],
                          found["accelerator_interconnect"]), ("0", "N/A", "N/A"))

    def test_runs_that_are_scaled_leave_no_file_of_the_checker(self):
        self.assertRegex(self.submit(self.make_runs(ten(2_350_000))),
                         r"score +\S+ minutes \(olympic mean, times 1\.0[1-9]")
        self.assert_whole("box_8xH200")

    def test_what_a_person_wrote_stays(self):
        self.system.parent.mkdir(parents=True)
        self.system.write_text(json.dumps({"cooling": "air", "hw_notes": "", "rack": "7", "aisle": ""}))
        said = self.submit(self.make_runs())
        self.assertNotIn("cooling", said)
        self.assertIn("host_storage_type", said)
        self.assertIn("aisle", said)
        found = self.described()
        self.assertEqual((found["cooling"], found["hw_notes"], found["rack"]), ("air", "", "7"))
        self.assertEqual(list(found)[-3:], ["sw_notes", "aisle", "rack"])

    def test_a_description_that_the_official_checker_refuses_breaks_a_rule(self):
        self.system.parent.mkdir(parents=True)
        self.system.write_text(json.dumps({"status": "soon"}))
        runs = self.make_runs()
        self.assertIn("Field status contains a non valid value: soon", self.submit(runs, code=8))
        self.system.write_text("{")
        self.assertIn("want a system description, or remove it", self.refusal(4, *self.words(runs)))

    def test_a_second_system_shares_the_sources(self):
        runs = self.make_runs()
        self.submit(runs)
        self.submit(runs, system="other")
        self.assert_whole("box_8xH200", "other")

    def test_what_breaks_a_rule_is_not_built_unless_as_a_draft(self):
        runs = self.make_runs(ten(2_500_000, runs=9))
        said = self.submit(runs, code=8)
        self.assertIn("found 9, expected 10", said)
        self.assertIn("nothing written", said)
        self.assertFalse(self.output.exists())
        self.submit(runs, "--draft", code=8)
        self.assertEqual(len(list((self.output / "results/box_8xH200/bert").iterdir())), 9)

    def test_runs_of_unknown_sources_are_refused(self):
        runs = self.make_runs(git_hash=f"{self.commit}+")
        self.assertIn("not one commit without changes", self.submit(runs, code=4))
        self.assertFalse(self.output.exists())
        self.assertIn("no sources in this draft", self.submit(runs, "--draft"))
        self.assertFalse((self.output / "benchmarks").exists())

    def test_a_commit_that_the_checkout_lacks_leaves_nothing_behind(self):
        runs = self.make_runs(git_hash="0123456789ab")
        self.assertIn("is not a git checkout with commit 0123456789ab", self.submit(runs, code=4))
        self.assertFalse(self.output.exists())
        self.output.mkdir()  # a person's: it stays
        self.submit(runs, code=4)
        self.assertEqual(list(self.output.iterdir()), [])

    def test_results_are_never_replaced(self):
        runs = self.make_runs()
        self.submit(runs)
        self.assertIn("already exists", self.submit(runs, code=4))
        self.assert_whole("box_8xH200")

    def test_a_full_disk_leaves_nothing_behind(self):
        runs = self.make_runs()
        for most_bytes in (0, 1000, 10_000):
            done = process(*self.words(runs), most_bytes=most_bytes)
            self.assertIn(done.returncode, (4, 5), done)
            self.assertRegex(done.stderr, "^bertha-tools: error: [^\n]+\n$")
            self.assertFalse(self.output.exists())

    def test_bad_names_and_folders_are_refused(self):
        self.assertIn("neither a run folder nor", self.refusal(4, *self.words(self.sources)))
        runs = self.make_runs()
        self.refusal(2, *self.words(runs, system="../x"))
        for text in ("{}", "[", "[1]", json.dumps({**SYSTEM, "git_hash": 7}),
                     json.dumps({**SYSTEM, "git_hash": self.commit, "nodes": -1})):
            (runs / "run_3/system.json").write_text(text)
            self.assertIn("run_3/system.json", self.refusal(4, *self.words(runs)))

    def test_a_target_of_its_own_and_the_open_division(self):
        def opened(log):
            return log.edited("submission_division", value="open")
        runs = [dict(run, accuracy=0.3, change=opened) for run in ten(1_000_000)]
        self.submit(self.make_runs(runs), "--target-accuracy", "0.2")
        self.assert_whole("box_8xH200")
        self.assertEqual(self.described()["division"], "open")


if __name__ == "__main__":
    main()
