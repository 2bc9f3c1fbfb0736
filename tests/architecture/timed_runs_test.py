"""launch/run_and_time.sh: seeds, folders, results and verdicts of timed runs.

usage: timed_runs_test.py SOURCE_DIR
"""

import pathlib
import shutil
import subprocess
import sys
import time
import unittest

from launch_case import LAUNCH, LaunchCase


class TimedRuns(LaunchCase):
    def setUp(self):
        super().setUp()
        self.tools = self.stand_in("bertha-tools")

    def timed(self, *words, script="run_and_time.sh", **variables):
        """run_and_time.sh with stand-ins: exit code, output, and the arguments of each training."""
        self.stand_in("nvidia-smi", "exit 9")
        variables.setdefault("LOGDIR", str(self.folder / "runs"))
        code, output = self.start(script, *words, **variables)
        return code, output, [line for line in output.splitlines() if line.startswith("bertha <train>")]

    def test_timed_runs_have_distinct_seeds_and_folders_and_a_verdict_each(self):
        self.stand_in("bertha", "if [[ $1 == config ]]; then echo ' run_dir:' ${!##*log.run_dir=}; exit; fi")
        code, output, trainings = self.timed(self.config, "--quiet", NEXP="10", SEED="40")
        self.assertEqual(code, 0, output)
        self.assertEqual(len(trainings), 10, output)
        for run, line in enumerate(trainings):
            self.assertIn(f"<train.seed={40 + run}>", line)
            self.assertIn(f"<log.run_dir={self.folder}/runs/run_{run}>", line)
            for command in ("plot", "check"):
                self.assertEqual(output.count(f"bertha-tools <{command}> <{self.folder}/runs/run_{run}>\n"), 1)
        code, output, trainings = self.timed(self.config, NEXP="11", SEED="7")
        self.assertEqual((code, trainings), (2, []), output)
        self.assertIn("began with seed 40", output)
        for runs, seed in (("11", {"SEED": "40"}), ("12", {})):
            code, output, trainings = self.timed(self.config, NEXP=runs, **seed)
            self.assertEqual((code, len(trainings)), (0, 1), output)  # the others are kept

    def test_timed_runs_take_no_option_that_each_run_sets_itself(self):
        words = {"--seed": "SEED", "--seed=7": "SEED", "-o": "LOGDIR", "--output-dir=a": "LOGDIR"}
        for word, variable in words.items():
            code, output, trainings = self.timed(self.config, word, "7")
            self.assertEqual((code, trainings), (2, []), output)
            self.assertRegex(output, f"{word}: each run has a .*{variable}=")

    def test_a_results_folder_runs_no_code_and_wants_its_numbers_whole(self):
        folder = self.folder / "runs"
        (folder / "run_0").mkdir(parents=True)
        for name, good in (("first_seed", "40\n"), ("run_0/exit_code", "3\n")):
            script = f"runs[$(touch '{self.folder}/ran')0]"
            for text in (script, "", "-1", "010", "9" * 40, "4 4", "\x1b[2J"):
                (folder / name).write_text(text)
                code, output, trainings = self.timed(self.config, SEED="40")
                self.assertEqual((code, trainings), (4, []), output)
                self.assertIn(f"{folder / name}", output.splitlines()[-1])
                self.assertNotIn("\x1b", output)
            (folder / name).write_text(good)
        self.assertFalse((self.folder / "ran").exists())
        self.assertEqual(self.timed(self.config)[0::2], (3, []))

    def test_a_full_disk_leaves_no_empty_seed_behind(self):
        folder = self.folder / "runs"
        folder.mkdir()
        # No file may grow, as on a full disk.
        run = subprocess.run(
            ["bash", "-c", f"trap '' XFSZ; ulimit -f 0; . '{LAUNCH}/common.sh'; write_file first_seed 777"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(run.returncode, 4, run.stderr)
        self.assertIn("first_seed could not be written", run.stderr.decode())
        self.assertEqual(list(folder.iterdir()), [])

    def test_a_link_in_a_results_folder_is_replaced_and_not_followed(self):
        folder = self.folder / "runs"
        folder.mkdir()
        (folder / "first_seed").symlink_to(self.folder / "victim")
        self.assertEqual(self.timed(self.config, SEED="40")[0], 0)
        self.assertFalse((self.folder / "victim").exists())
        self.assertEqual((folder / "first_seed").read_text(), "40\n")

    def test_a_kept_run_is_checked_again(self):
        self.stand_in("bertha-tools", "if [[ $1 == check ]]; then exit 8; fi")
        self.assertEqual(self.timed(self.config, NEXP="2")[0], 8)
        code, output, trainings = self.timed(self.config, NEXP="2")
        self.assertEqual((code, trainings), (8, []), output)

    def test_without_the_tools_runs_are_made_and_said_to_be_unchecked(self):
        pathlib.Path(self.tools).unlink()
        # A copy, whose folder has no .venv.
        copy = shutil.copytree(LAUNCH, self.folder / "launch")
        code, output, trainings = self.timed(self.config, script=copy / "run_and_time.sh")
        self.assertEqual((code, len(trainings)), (0, 1), output)
        self.assertLess(output.index("logs are not checked; python3 -m venv"), output.index("bertha <train>"))

    def test_timed_runs_draw_their_seeds_when_none_is_given(self):
        seeds = set()
        for name in ("a", "b"):
            _, output, trainings = self.timed(self.config, NEXP="3", LOGDIR=str(self.folder / name))
            found = [word for line in trainings for word in line.split() if "train.seed=" in word]
            self.assertEqual(len(found), 3, output)
            seeds.update(found)
        self.assertEqual(len(seeds), 6)

    def test_published_variables_become_keys_and_the_command_line_wins(self):
        code, output, trainings = self.timed(
            "--ranks", "1", self.config, "--set", "train.max_steps=9", BATCHSIZE="56", LR="3.5e-4",
            MAX_STEPS="7100", GRADIENT_STEPS="2", WARMUP_PROPORTION="0.1", EXTRA_PARAMS="--unpad",
            DATADIR_PHASE2="/a shard folder", TARGET_MLM_ACCURACY="0.3", PHASE="2")
        self.assertEqual(code, 0, output)
        line = trainings[0]
        for word in ("train.global_batch_seqs=56", "optimizer.base_learning_rate=3.5e-4",
                     "train.accumulation_steps=2", "optimizer.warmup_steps=710",
                     "data.train=/a shard folder", "train.target_accuracy=0.3"):
            self.assertIn(f"<--set> <{word}>", line)
        self.assertLess(line.index("train.max_steps=7100"), line.index("train.max_steps=9"))
        self.assertIn("LR -> optimizer.base_learning_rate=3.5e-4", output)
        self.assertIn("EXTRA_PARAMS is not used", output)
        self.assertIn("<--target> <0.3>", output)

    def test_timed_runs_refuse_what_does_not_fit(self):
        for words, variables, text in (
                ([self.config], {"NEXP": "none"}, "NEXP='none'"),
                ([self.config], {"NEXP": "010"}, "NEXP='010'"),
                ([self.config], {"SEED": "-3"}, "SEED='-3'"),
                ([self.config], {"SEED": "9" * 30}, "SEED='9999"),
                ([self.config], {"BATCHSIZE": "many"}, "BATCHSIZE='many'"),
                ([self.config], {"PHASE": "1"}, "PHASE=1, want 2"),
                ([self.config], {"WARMUP_PROPORTION": "0.1"}, "MAX_STEPS"),
                ([self.config], {"DGXNNODES": "2", "DGXNGPU": "8"}, "16 ranks, but 1"),
                ([], {}, "config")):
            code, output, trainings = self.timed(*words, **variables)
            self.assertEqual((code, trainings), (2, []), output)
            self.assertIn(text, output)

    def test_a_timed_run_that_fails_ends_the_set_with_its_code(self):
        self.stand_in("bertha", "", 4)
        code, output, trainings = self.timed(self.config, NEXP="3")
        self.assertEqual((code, len(trainings)), (4, 1), output)
        self.stand_in("bertha", "", 3)  # a missed target is a result
        code, output, trainings = self.timed(self.config, NEXP="3")
        self.assertEqual((code, len(trainings)), (3, 3), output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
