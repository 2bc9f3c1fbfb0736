"""What the scripts do and say when a run did not end as planned: the last line, and the next try.

usage: restart_test.py SOURCE_DIR
"""

import mmap
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

from launch_case import LAUNCH, LaunchCase

PMIX = 'if [[ $1 == --mpi=list ]]; then echo pmix; exit 0; fi\n'


class Restart(LaunchCase):
    def failing(self, code, times):
        """Lines of a stand-in that ends its first trainings with this code."""
        count = self.folder / "count"
        count.write_text("")
        return (f"if [[ \" $* \" == *' train '* ]]; then echo >> '{count}'; "
                f"if (($(wc -l < '{count}') <= {times})); then exit {code}; fi; fi\n")

    def test_a_run_that_lost_a_rank_goes_on_within_its_tries(self):
        self.stand_in("scontrol")
        self.stand_in("nvidia-smi", "exit 9")
        for script, tool, variables in (
                ("run_slurm.sub", "srun", {"SLURM_JOB_ID": "7"}), ("run_and_time.sh", "bertha", {})):
            for code, losses, tries, wanted, runs in (
                    (137, 2, {}, 0, 3), (124, 1, {}, 0, 2), (137, 9, {}, 137, 4),
                    (137, 9, {"RETRIES": "1"}, 137, 2), (137, 9, {"RETRIES": "0"}, 137, 1),
                    (139, 1, {}, 139, 1), (143, 1, {}, 143, 1), (4, 1, {}, 4, 1), (75, 1, {}, 75, 1)):
                self.stand_in(tool, PMIX + self.failing(code, losses))
                found, output = self.start(script, self.config, **variables, **tries,
                                           LOGDIR=tempfile.mkdtemp(dir=self.folder))
                self.assertEqual(found, wanted, output)
                self.assertEqual((self.folder / "count").read_text().count("\n"), runs, output)
                self.assertEqual(output.count("resuming the run from its last checkpoint"), runs - 1)
            found, output = self.start(script, self.config, **variables, RETRIES="-1")
            self.assertEqual(found, 2, output)
            self.assertIn("RETRIES='-1'", output)

    def test_slurm_is_asked_for_a_signal_in_time_and_for_requeueing(self):
        head = (LAUNCH / "run_slurm.sub").read_text().split("\n# ")[0].splitlines()
        for option in ("--signal=USR1@180", "--requeue", "--open-mode=append"):
            self.assertIn(f"#SBATCH {option}", head)

    def test_nodes_are_examined_before_a_run_goes_on(self):
        self.stand_in("nvidia-smi", "exit 9")
        sick = "if [[ $1 == doctor && -s '%s' ]]; then echo 'node7: sick'; exit 5; fi\n"
        for code, trainings in ((137, 1), (5, 1)):
            body = self.failing(code, 1)
            self.stand_in("bertha", sick % (self.folder / "count") + body)
            found, output = self.start("run_and_time.sh", self.config, DOCTOR="1",
                                       LOGDIR=tempfile.mkdtemp(dir=self.folder))
            self.assertEqual(found, 5, output)
            self.assertEqual((self.folder / "count").read_text().count("\n"), trainings, output)
            self.assertIn("node7: sick", output)

    def test_a_slurm_job_leaves_out_the_node_that_doctor_refuses(self):
        said = ("not started: repair b.site or leave it out (sbatch --exclude=b, or another list of hosts), "
                "then run this again")
        self.stand_in("srun", PMIX + f"if [[ \" $* \" == *' doctor '* ]]; then echo '{said}'; exit 5; fi")
        scontrol = ('if [[ $1 == show && $2 == job ]]; then echo "  ReqNodeList=(null) ExcNodeList=%s"; exit 0; fi\n'
                    'if [[ $1 == show ]]; then tr , "\\n" <<< "$3"; exit 0; fi\n'
                    'if [[ $1 == %s ]]; then exit 1; fi')
        for script in (["run_slurm.sub"], ["run_slurm.sub", "--timed"]):
            start = lambda: self.start(*script, self.config, DOCTOR="1", SLURM_JOB_ID="17", RETRIES="2",
                                       LOGDIR=tempfile.mkdtemp(dir=self.folder))
            for before, nodes in (("(null)", "b.site"), ("a", "a,b.site")):
                self.stand_in("scontrol", scontrol % (before, "nothing"))
                code, output = start()
                self.assertEqual(code, 5, output)
                self.assertRegex(output, "scontrol <requeuehold> <17>\n"
                                 f"scontrol <update> <JobId=17> <ExcNodeList={nodes}>\n"
                                 "scontrol <release> <17>\n.*refused b.site; the job is in the queue again "
                                 f"and leaves out {nodes}\n$")
                self.assertNotIn("<train>", output)
            for before, fails, wanted in (("a,c", "nothing", "more nodes than RETRIES=2: a,c,b.site"),
                                          ("(null)", "requeuehold", "submit it again with --exclude=b.site"),
                                          ("(null)", "update", "held in the queue: scontrol update JobId=17")):
                self.stand_in("scontrol", scontrol % (before, fails))
                code, output = start()
                self.assertEqual(code, 5, output)
                self.assertIn(wanted, output)
                self.assertNotIn("<release>", output)

    def test_the_last_line_says_who_was_lost_what_is_saved_and_what_goes_on(self):
        run = self.folder / "run"
        for place in ("logs", "ckpt/step_00000020", "ckpt/step_00000040", "ckpt/step_00000060"):
            (run / place).mkdir(parents=True)
        for step in (20, 40):
            (run / f"ckpt/step_000000{step}/DONE").touch()
        (run / "logs/b.log").write_text(
            "2026-01-01 10:00:00 [rank 2] error: rank 3 of 4 on b (process 77) ended without a message\n"
            "2026-01-01 10:00:01 [rank 2] info: rank 1 of 4 on a\n")
        (run / "logs/a.log").write_text(
            "2026-01-01 09:00:00 [rank 0] error: rank 1 of 4 on a (process 66) ended without a message\n")
        self.stand_in("bertha", f"if [[ $1 == config ]]; then printf 'log:\\n  run_dir: {run}\\n'; exit; fi")
        self.stand_in("srun", PMIX, 137)
        for code, what in ((137, "signal 9 (KILL) ended rank 3 of 4 on b (process 77): the kernel sends it"),
                           (124, "no progress of rank 3 of 4 on b (process 77)"),
                           (134, "signal 6 (ABRT) ended rank 3 of 4 on b (process 77): a crash"),
                           (75, "the run has stopped and saved its state"),
                           (4, "exit code 4, for the reason above")):
            self.stand_in("mpirun", "", code)
            for script in (["run_local.sh", "--ranks", "2"], ["run_mpirun.sh", "--hosts", "a:2,b:2"]):
                found, output = self.start(*script, self.config)
                self.assertEqual(found, code, output)
                last = output.splitlines()[-1]
                self.assertIn(f"{script[0]}: {what}", last)
                self.assertIn(f"Saved: {run}/ckpt/step_00000040. ", last)
                self.assertIn(f"'{script[1]}' '{script[2]}' '{self.config}'", last)
        found, output = self.start("run_slurm.sub", self.config, SLURM_JOB_ID="7", RETRIES="0")
        self.assertEqual(found, 137, output)
        self.assertTrue(output.splitlines()[-1].endswith(
            f"'sbatch' 'launch/run_slurm.sub' '{self.config}' '--output-dir' '{run}'"), output)
        self.stand_in("nvidia-smi", "exit 9")
        self.stand_in("bertha", "echo 'bertha: error: said once' >&2", 4)
        found, output = self.start("run_local.sh", "--ranks", "1", self.config)
        self.assertEqual((found, output.splitlines()[0]), (4, "bertha: error: said once"), output)
        self.assertNotIn("run_local.sh", output)

    def test_what_open_mpi_5_says_of_ranks_that_ended_is_left_to_the_last_line(self):
        line = "-" * 74 + "\n"
        refused = line + "There are not enough slots available in the system.\n" + line
        ended = ("prterun detected that one or more processes exited with non-zero status,\nthus causing the "
                 "job to be terminated. The first process to do so was:\n\n   Exit code:    4\n",
                 "prterun noticed that process rank 1 with PID 34 on node b exited on\nsignal 9 (Killed).\n")
        self.stand_in("bertha", f"if [[ $1 == config ]]; then printf 'log:\\n  run_dir: {self.folder}\\n'; exit; fi")
        for code, epilogue in zip((4, 137), ended):
            file = self.folder / "said"
            file.write_text("before\n" + refused + "between\n" + line + epilogue + line + "\0")
            self.stand_in("mpirun", f"cat '{file}' >&2", code)
            found, output = self.start("run_local.sh", "--ranks", "2", self.config)
            self.assertEqual(found, code, output)
            *said, last = [each for each in output.splitlines(keepends=True) if not each.startswith("mpirun ")]
            self.assertEqual("".join(said), "before\n" + refused + "between\n")
            self.assertEqual("signal 9 (KILL) ended rank 1 on b (process 34): " in last, code == 137, last)

    def test_a_reader_that_is_gone_changes_no_exit_code(self):
        self.stand_in("mpirun", "sleep 0.2; exit 75")
        for ranks, code in ((2, 75), ("two", 2)):
            run = self.launch("run_local.sh", "--ranks", ranks, self.config)
            run.stdout.close()  # as `2>&1 | head` does once it has read enough
            self.assertEqual(run.wait(timeout=60), code)

    def test_a_signal_reaches_ranks_here_whose_mpirun_passes_none_on(self):
        self.stand_in("bertha", f"""
[[ " $* " == *' train '* ]] || exit 0
trap 'echo saved; exit 75' USR1
echo $$ >> '{self.folder}/ready'
for _ in {{1..600}}; do sleep 0.05; done""")
        self.stand_in("mpirun", """
trap : USR1
for _ in 1 2; do "$BERTHA" train & done
wait -n; wait -n; exit 75""")
        run = self.launch("run_local.sh", "--ranks", "2", self.config)
        while not (self.folder / "ready").exists() or \
                len((self.folder / "ready").read_text().split()) < 2:
            self.assertIsNone(run.poll())
            time.sleep(0.02)
        run.terminate()
        output = run.communicate(timeout=60)[0].decode()
        self.assertEqual(run.returncode, 75, output)
        self.assertEqual(output.count("saved\n"), 2, output)

    def test_what_a_killed_launcher_left_goes_at_the_next_start_once_nobody_uses_it(self):
        temporary = self.folder / "temporary"
        temporary.mkdir()
        words = ("run_local.sh", "--ranks", 2, self.config)
        self.stand_in("mpirun", 'echo $$ > "$TMPDIR/part"; mv "$TMPDIR/part" "$TMPDIR/id"; exec sleep 100')
        killed = self.launch(*words, TMPDIR=str(temporary))
        limit = time.monotonic() + 60
        while not list(temporary.glob("*/id")) and time.monotonic() < limit:
            time.sleep(0.02)
        left, = temporary.iterdir()
        os.utime(left, (0, 0))  # as if long ago
        mpirun = int((left / "id").read_text())
        killed.kill()
        self.stand_in("mpirun")
        self.assertEqual(self.start(*words, TMPDIR=str(temporary))[0], 0)
        self.assertEqual(list(temporary.iterdir()), [left], "its mpirun still runs")
        os.kill(mpirun, signal.SIGKILL)
        killed.communicate(timeout=60)
        self.assertEqual(self.start(*words, TMPDIR=str(temporary))[0], 0)
        self.assertEqual(list(temporary.iterdir()), [])

    def test_shared_memory_of_killed_ranks_goes_at_the_next_start_once_nobody_maps_it(self):
        self.stand_in("mpirun")
        host = os.uname().nodename.split(".")[0]
        names = ("vader_segment.{}.0.%x.0", "sm_segment.{}.0.%x.0", "sm_segment.{}.0.%x.1", "nccl-%x")
        segments = [pathlib.Path("/dev/shm", name.format(host) % os.getpid()) for name in names]
        segments.append(pathlib.Path("/dev/shm", f"sm_segment.not{host}.0.{os.getpid():x}.0"))
        for segment in segments:
            self.addCleanup(segment.unlink, missing_ok=True)
            segment.write_bytes(b"0" * 4096)
            os.utime(segment, (0, 0))
        os.utime(segments[2])  # just made: its rank may map it soon
        with open(segments[1], "r+b") as file, mmap.mmap(file.fileno(), 4096):
            self.assertEqual(self.start("run_local.sh", "--ranks", 2, self.config)[0], 0)
            self.assertEqual([segment.exists() for segment in segments], [False, True, True, True, True])
        self.assertEqual(self.start("run_local.sh", "--ranks", 2, self.config)[0], 0)
        self.assertEqual([segment.exists() for segment in segments], [False, False, True, True, True])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
