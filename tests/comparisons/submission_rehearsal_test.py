"""The logic of submission_rehearsal.py with a toy model on the CPU backend: a sound program passes,
a broken log and a slow start do not, and the times of a log become the right figures.

usage: submission_rehearsal_test.py BERTHA
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import time
import unittest

from script_case import HERE, ScriptCase
import official_mlperf  # noqa: F401  says so where the official checker is missing
from small_data import make_text
from submission_rehearsal import Failed, measured

BERTHA = sys.argv[1]

TOY = {"model.layers": 1, "model.hidden": 16, "model.heads": 2, "model.feed_forward": 16,
       "model.vocab_size": 320, "data.max_seq_tokens": 32, "data.max_masked_per_seq": 5,
       "train.global_batch_seqs": 16, "train.init_warmup_steps": 1, "train.threads_per_rank": 1,
       "eval.max_samples": 24, "eval.batch_seqs": 8}


def record(key, seconds, value=None, **metadata):
    return ":::MLLOG " + json.dumps({"key": key, "time_ms": int(1000 * seconds), "value": value,
                                     "metadata": metadata})


class TimesOfALog(ScriptCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "result_0.txt"
        self.records = [
            record("init_start", 100), record("global_batch_size", 101, 192),
            record("run_start", 107.5),
            record("eval_start", 120, epoch_num=9000), record("eval_stop", 123, epoch_num=9000),
            record("eval_start", 128, epoch_num=18000), record("eval_stop", 129, epoch_num=18000),
            record("eval_start", 133.5, epoch_num=27000), record("eval_stop", 136.5, epoch_num=27000),
            record("run_stop", 137.5, status="aborted")]

    def test_become_figures(self):
        self.path.write_text("\n".join(self.records) + "\n")
        found = measured(self.path)
        self.assertEqual((found["init_s"], found["first_eval_s"], found["eval_s"]), (7.5, 3.0, 2.0))
        # 9,000 samples in 5 s after the first evaluation and in 4.5 s after the second.
        self.assertAlmostEqual(found["train_seqs_per_s"], (1800 + 2000) / 2)
        self.assertEqual((found["run_s"], found["run_seqs_per_s"]), (30.0, 900.0))
        self.assertEqual((found["evaluations"], found["global_batch_seqs"]), (3, 192))

    def test_are_missed_where_a_run_broke_off(self):
        self.path.write_text("\n".join(self.records[:-1]) + "\n")
        with self.assertRaises(Failed):
            measured(self.path)


class SubmissionRehearsal(ScriptCase):
    def setUp(self):
        super().setUp()
        (self.folder / "text.txt").write_text(make_text(1, 2500), encoding="utf-8")

    def wrapped(self, lines):
        """A program that does something else."""
        path = self.folder / "wrapped"
        path.write_text("#!/usr/bin/env bash\n" + lines)
        path.chmod(0o755)
        return path

    def start(self, bertha=BERTHA, more=()):
        settings = [word for key, value in TOY.items() for word in ("--set", f"{key}={value}")]
        self.output = self.folder / "rehearsal"
        return subprocess.Popen(
            [sys.executable, "-B", str(HERE / "submission_rehearsal.py"), "--backend", "cpu",
             "--ranks", "2", "--bertha", str(bertha), "--output", str(self.output), "--text",
             str(self.folder / "text.txt"), "--eval-every-samples", "48", *settings, *more],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "DOCTOR": "0"})  # it refuses a machine that runs other tests beside

    def rehearse(self, bertha=BERTHA, more=()):
        process = self.start(bertha, more)
        text = process.communicate()[0].decode()
        return process.returncode, text

    def test_both_layouts_are_rehearsed_and_only_the_target_is_missed(self):
        code, text = self.rehearse()
        self.assertEqual(code, 0, text)
        runs = json.loads((self.output / "summary.json").read_text())["runs"]
        self.assertEqual(list(runs), ["unpacked", "packed"])
        for layout, run in runs.items():
            self.assertEqual((run["evaluations"], run["samples"]), (3, 144))
            self.assertIn(f"{layout}: rule set 5.0.0: Failed checks for eval_accuracy", text)
            self.assertIn(f"{layout}: rule set 5.0.0: eval_accuracy: evaluation 1 comes after 48 samples",
                          text)
        # Of the recipe on 2 ranks instead of 8.
        config = (self.output / "packed.yaml").read_text()
        self.assertIn("base_learning_rate: 0.00048\n", config)
        self.assertIn("schedule_steps: 14720\n", config)

    def test_a_log_that_lacks_a_key_fails(self):
        code, text = self.rehearse(self.wrapped(f"""
code=0
{shlex.quote(BERTHA)} "$@" || code=$?
if [[ $1 == train && $OMPI_COMM_WORLD_RANK == 0 ]]; then
  for word in "$@"; do
    if [[ $word == log.run_dir=* ]]; then sed -i /opt_lamb_beta_1/d "${{word#*=}}/mllog/result_0.txt"; fi
  done
fi
exit $code
"""))
        self.assertEqual(code, 1, text)
        self.assertIn("opt_lamb_beta_1", text.splitlines()[-1])

    def test_a_slow_start_fails(self):
        code, text = self.rehearse(more=["--most-init-seconds", "0"])
        self.assertEqual(code, 1, text)
        self.assertIn("unpacked: init took ", text)

    def test_its_end_is_the_end_of_the_ranks(self):
        ranks = self.folder / "ranks"
        process = self.start(self.wrapped(f"""
if [[ $1 == train ]]; then
  echo $$ >> {shlex.quote(str(ranks))}
  exec sleep 1000
fi
exec {shlex.quote(BERTHA)} "$@"
"""))

        def wait_until(condition, what):
            limit = time.monotonic() + 120
            while not condition():
                self.assertLess(time.monotonic(), limit, what)
                time.sleep(0.05)

        wait_until(lambda: ranks.exists() and len(ranks.read_text().split()) == 2, "no ranks")
        process.terminate()
        text = process.communicate()[0].decode()
        self.assertEqual(process.returncode, 1, text)
        self.assertIn("stopped by SIGTERM", text)
        wait_until(lambda: not any(pathlib.Path("/proc", rank, "exe").exists()
                                   for rank in ranks.read_text().split()), "a rank is still there")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
