"""bertha-tools watch shows a run, ends with it and with its exit code, and sees a process that is gone
without permission to write."""

import fcntl
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from tool_case import (BERT_LARGE, BERTHA, ESCAPES, SMALL_MODEL, ToolCase, evaluation, evaluations, main,
                       metrics_of, on_terminal, process, run_records, step, tool, write)
from published_runs import PUBLISHED_RUNS
from bertha_tools import watch

BARS = 48 * "▁"
GPUS = f"""
run         gpus   bert-large   336M parameters   8 ranks on 8 x NVIDIA H200
state       stopped: its numbers were not finite   last record >1000d ago
progress    step 110 of 6,700   ░░░░░░░░░░ 2 %   3,520 samples
training    mlm loss 4.000   accuracy 1.000   nsp loss 0.700
            learning rate 1.0e0   gradient norm 1   110 updates skipped
            3 spikes of the norm
evaluation  accuracy 0.7199, target 0.7200   mlm loss 1.300   nsp accuracy 0.970
            at step 670   2.0 s
speed       1 sequences/s   1 tokens/s   1.0 ms per step   MFU 50 %
            5.20k watts   lowest clock 1,755 MHz   64.0 GiB of device memory
a step      waiting for data 1.0 ms, 100 %   forward 1.0 ms, 100 %
            backward 1.0 ms, 100 %   communication 1.0 ms, 100 %
            optimizer 1.0 ms, 100 %
ranks       forward + backward longest on rank 5: 54 ms, the others 50 ms
            data waited for longest by rank 2: 1.5 ms, mean 0.5 ms
alarms      none
curves      train loss  {BARS}  4 to 4
            eval loss   █▁  3 to 1.30
            train acc.  {BARS}  1 to 1
            eval acc.   ▁█  0.40 to 0.72
events      (time) saved a
"""


def frame(columns, folder, *words):
    """(exit code, lines) of one frame in a pipe."""
    done = process("watch", folder.name, *words, columns=columns, cwd=folder.parent)
    return done.returncode, [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]


class RunOnce(ToolCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_dir = cls.train("train.target_accuracy=0.0001")
        lines = (cls.run_dir / "metrics.jsonl").read_text().splitlines()
        cls.records = [json.loads(line) for line in lines]

    def copy_with(self, records, name="copy"):
        folder = self.folder / name
        shutil.copytree(self.run_dir, folder, dirs_exist_ok=True)
        write(folder, records)
        return folder


class Frames(RunOnce):
    def test_have_the_facts_of_a_run(self):
        for columns in (80, 100, 160):
            code, lines = frame(columns, self.run_dir, "--once")
            self.assertEqual(code, 0)
            self.assertLessEqual(max(map(len, lines)), columns)
            text = re.sub(r"\d[\d.,]*[kM]?", "#", " ".join(" ".join(lines).split()))
            self.assertRegex(text, "bert-large # parameters # rank on cpu, .* ended as planned last record "
                             "#s ago progress step # of # █.* # % # samples .* target # .* # MiB of device ")
            self.assertIn("alarms none curves train loss", text)

    def test_have_the_facts_of_gpus_and_ranks(self):
        records = [*run_records(BERT_LARGE, world_size=8, device="8 x NVIDIA H200", max_steps=6700,
                                peak_flops_per_second=10e12),
                   *[step(i, flops_per_second=5e12, power_watts=5_200.0, lowest_sm_mhz=1755.0,
                          memory_bytes=64 * 2**30, slowest_rank=5, slowest_rank_compute_ms=54.0,
                          other_ranks_compute_ms=50.0, longest_waiting_rank=2, spikes=3,
                          longest_data_wait_ms=1.5, mean_data_wait_ms=0.5) for i in range(1, 111)],
                   *evaluations([(0.40, 3.0), (0.7199, 1.3)]),
                   {"kind": "event", "time_ms": 5_000, "text": "saved a\nb"},
                   {"kind": "stop", "time_ms": 6_000, "status": "aborted", "exit_code": 7}]
        code, lines = frame(80, self.copy_with(records, "gpus"))
        self.assertEqual(code, 7)
        self.assertEqual(re.sub(r"\d\d:\d\d:\d\d", "(time)", "\n".join(lines)), GPUS.strip())
        wide = frame(200, self.folder / "gpus")[1]
        self.assertEqual(len(wide), 14)  # one for each name, and for each curve
        self.assertEqual(*(re.sub("[▁░]+", "", " ".join(found)).split() for found in (wide, lines)))

    def test_fit_narrow_terminals(self):
        event = {"kind": "event", "time_ms": 5_000, "text": "saved " + "x" * 200}
        folder = self.copy_with([*self.records[:-1], step(900, 30.0), event], "y" * 100)
        for columns in (20, 40, 80):
            lines = frame(columns, folder)[1]
            self.assertLessEqual(max(map(len, lines)), columns, lines)
        self.assertIn("divergence: ", " ".join(lines))

    def test_cannot_steer_the_terminal(self):
        event = {"kind": "event", "time_ms": 10**300, "text": ESCAPES}
        records = [*run_records({**SMALL_MODEL, "model": ESCAPES}), event]
        folder = self.copy_with(records, ESCAPES)
        self.assert_cannot_steer("".join(frame(80, folder)[1]))

    def test_of_odd_records_are_shown(self):
        for odd in (None, "text", [], True, float("nan"), float("inf"), 1e308, -1e308, 10**400):
            odd_step = {name: odd for name in step(1)}
            records = [{**record, **{name: odd for name in record if name != "kind"}}
                       for record in run_records(SMALL_MODEL)]
            records += [*run_records(SMALL_MODEL, max_steps=odd, world_size=odd)] + [
                {**odd_step, "kind": "step", "time_ms": 1, "step": i, "samples": i} for i in (1, 2)]
            records += evaluations([(odd, odd, odd)] * 6)
            records += [{"kind": "event", "time_ms": 0, "text": odd},
                        {"kind": "stop", "time_ms": 0, "status": odd, "exit_code": odd}]
            code, out, err = tool("watch", self.copy_with(records, "odd"), "--once")
            self.assertIn(code, (0, 1, 3), err)
            self.assertIn("step 2 of", out)

    def test_of_a_folder_without_a_run_are_refused(self):
        self.assertIn("metrics.jsonl", self.refusal(4, "watch", self.folder))

    def test_come_from_the_latest_run(self):
        (self.folder / "runs").mkdir()
        (self.folder / "runs" / "latest").symlink_to(self.run_dir)
        self.enter(self.folder)
        self.assertIn("runs/latest", self.tool("watch"))


class Ends(RunOnce):
    """Of runs; the lock stays in the folder and says nothing unless a process holds it."""

    def test_have_the_exit_code_of_the_run(self):
        for stop, code in (({"status": "aborted", "exit_code": 75}, 75), ({"status": "aborted"}, 3),
                           ({"status": "success"}, 0), ({"status": "aborted", "exit_code": 124}, 124)):
            records = [*self.records[:-1], {"kind": "stop", "time_ms": 1, **stop}]
            self.tool("watch", self.copy_with(records), code=code)

    def gone(self):
        folder = self.copy_with(self.records[:-1])
        with open(folder / "metrics.jsonl", "a") as file:
            file.write('{"kind":"st')
        return folder

    def test_without_a_record_are_seen_without_permission_to_write(self):
        folder = self.gone()
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        for path in (folder / "run.lock", folder / "metrics.jsonl", folder):
            path.chmod(0o555 if path.is_dir() else 0o444)
            self.addCleanup(path.chmod, 0o755)
        code, lines = frame(80, folder)
        self.assertEqual(code, 137)
        self.assertTrue(any("ended without a recorded reason" in line for line in lines), lines)
        self.assertEqual({path: path.stat().st_mtime_ns for path in folder.rglob("*")}, before)

    def test_are_not_seen_while_a_process_has_the_lock(self):
        folder = self.gone()
        with open(folder / "run.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertIn("running", self.tool("watch", folder))
        self.tool("watch", folder, code=137)

    def test_two_views_do_not_take_each_other_for_the_run(self):
        folder = self.gone()
        with open(folder / "run.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            self.assertIs(watch.is_locked(folder), False)

    def test_without_a_lock_are_judged_by_the_last_record(self):
        folder = self.gone()
        (folder / "run.lock").unlink()
        last = max(record["time_ms"] for record in self.records[:-1])
        records = metrics_of(self.records[:-1])
        for silence_ms, goes_on in ((1_000, True), (500_000, True), (700_000, False)):
            state = watch.state_of(records, watch.is_locked(folder), last + silence_ms)
            self.assertEqual(state[1:], (goes_on, 0 if goes_on else 137))
        os.mkfifo(folder / "run.lock")
        self.assertIn(watch.is_locked(folder), (None, False))


class LiveView(ToolCase):
    def test_redraws_until_the_run_ends(self):
        for killed in (False, True):
            folder = self.folder / f"live_{killed}"
            words = ("--config", self.config(), "--output-dir", folder, "--set", "train.max_steps=600")
            with subprocess.Popen([BERTHA, "train", *words], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as run:
                while not (folder / "metrics.jsonl").exists():
                    self.assertIsNone(run.poll())
                    time.sleep(0.05)

                def seen(shown):
                    if killed and "running" in shown:
                        run.send_signal(signal.SIGKILL)

                code, shown = on_terminal(80, "watch", folder, "--every", "0.2", seen=seen)
                self.assertEqual(code, 137 if killed else 0, shown[-2000:])
            self.assertIn("running", shown)
            self.assertIn("ended without a recorded reason" if killed else "ended as planned", shown)
            self.assertGreater(len(re.findall("\x1b\\[1A", shown)), 1)


class TimeToTarget(unittest.TestCase):
    def left(self, accuracies, target, every=100, first=1):
        evals = [evaluation(first + i, one, 3.0, every=every) for i, one in enumerate(accuracies)]
        return watch.samples_to_target(evals, target)

    def test_is_that_of_a_curve_that_bends(self):
        exact = [0.5 - 1 / (10 + i) for i in range(5)]
        low, middle, high = self.left(exact, 0.5 - 1 / 17, first=10)
        self.assertAlmostEqual(middle, 300, delta=1e-3)
        self.assertTrue(0 < low < middle <= high)

    def test_begins_with_that_of_a_straight_line(self):
        low, middle, high = self.left([0.10, 0.12, 0.14, 0.16, 0.18], 0.20, every=1000, first=10)
        self.assertAlmostEqual(low, 1000, delta=1)
        self.assertTrue(low <= middle <= high)

    def test_is_not_said_if_it_is_not_known(self):
        for accuracies, target in (([0.1, 0.2, 0.3, 0.4], 0.5), ([0.1, 0.2, 0.3, 0.4, 0.5], 0),
                                   ([0.1, 0.2, 0.3, 0.4, 0.5], 0.45), ([0.1] * 5, 0.5),
                                   ([0.10, 0.13, 0.08, 0.12, 0.11], 0.5),
                                   ([0.10, 0.11, 0.12, 0.13, 0.14], 0.9),
                                   ([0.1, 0.4, 0.6, 0.61, 0.615], 0.63)):
            self.assertIsNone(self.left(accuracies, target), accuracies)

    def test_holds_on_published_runs(self):
        ratios, within = [], 0
        for _, _, runs in PUBLISHED_RUNS:
            for run in runs:
                reached = next((i for i, one in enumerate(run) if one >= 0.72), 0)
                for end in range(1, reached + 1):
                    if left := self.left(run[:end], 0.72, every=1):
                        evals_left = reached - end + 1
                        ratios.append(left[1] / evals_left)
                        # The next evaluation sees that the target has been reached.
                        within += math.ceil(left[0]) <= evals_left <= math.ceil(left[2])
        ratios.sort()
        self.assertGreaterEqual(len(ratios), 100)
        self.assertGreaterEqual(within, 0.95 * len(ratios))
        self.assertGreater(ratios[len(ratios) // 10], 0.6)
        self.assertAlmostEqual(ratios[len(ratios) // 2], 1.0, delta=0.2)

    def test_counts_training_and_evaluations_from_the_last_step(self):
        records = [*run_records(SMALL_MODEL, target_accuracy=0.2), step(100, seqs_per_second=10.0)]
        evals = evaluations([(0.5 - 1 / (10 + i), 3.0) for i in range(5)], 100)
        for i, one in enumerate(evals):
            one["samples"], one["step"] = 100 * (10 + i), 10 + i
        records[2]["samples"] = 1_450
        found = metrics_of([*records[:2], *evals, {**records[2], "step": 50}])
        found.run["target_accuracy"] = 0.5 - 1 / 17
        # 250 of the 300 samples are left, at 0.1 s each and with 2 s in 100 samples.
        self.assertRegex(watch.time_to_target(found), r"^30s \(\d+s to 3\ds\)$")


if __name__ == "__main__":
    main()
