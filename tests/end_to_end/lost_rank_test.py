"""A rank that is killed takes the others down promptly, and the run can go on from its checkpoints."""

import os
import pathlib
import re
import signal
import time

from support import (MOST_FAILURE_SECONDS, EndToEnd, Running, bertha, checkpoints, main, parent,
                     rank_of, records)


class LostRank(EndToEnd):
    def check(self, ranks, victim):
        folder = self.new_folder()
        words = self.data.config(log__run_dir=folder, train__max_steps=10**6,
                                 train__log_every_steps=10, checkpoint__every_steps=20,
                                 eval__every_samples=10**9)
        with Running("train", *words, ranks=ranks) as run:
            run.wait_for(lambda: checkpoints(folder), "a checkpoint")
            ours = sorted(run.rank_processes(), key=rank_of)
            self.assertEqual([rank_of(process) for process in ours], list(range(ranks)))
            os.kill(ours[victim], signal.SIGKILL)
            killed = time.monotonic()
            done = run.wait()
            self.assertLess(time.monotonic() - killed, MOST_FAILURE_SECONDS, done)
            self.assertEqual(done.code, 137, done)  # 128 + the signal
            errors = done.errors()
            self.assertEqual(len(errors), 1, done)
            self.assertIn(f"error: rank {victim % ranks} of {ranks} on ", errors[0])
            self.assertIn(f"(process {ours[victim]}) ended without a message", errors[0])
            for process in ours:
                self.assertFalse(os.path.exists(f"/proc/{process}/exe") and
                                 process in run.rank_processes(), "a rank is left")
        log, = (folder / "logs").iterdir()
        for rank in range(ranks):  # the killed one's lines too
            self.assertIn(f"[rank {rank}] debug: rank {rank} of {ranks} on ", log.read_text())
        self.assertIn("ended without a message", log.read_text())
        kept = checkpoints(folder)
        self.assertGreaterEqual(len(kept), 1)
        self.assertEqual(bertha("checkpoint", "show", folder).code, 0)
        last = int(kept[-1][len("step_"):]) + 3
        self.train(folder, ranks=ranks, train__max_steps=last)
        self.assertEqual(records(folder, "run")[-1]["first_step"], last - 3)

    def test_the_first_rank(self):
        self.check(2, 0)

    def test_the_last_rank(self):
        self.check(3, -1)

    def test_the_script_of_one_machine_names_the_signal(self):
        folder = self.new_folder()
        config = self.new_folder("config").with_suffix(".yaml")
        config.write_text("train: {seed: 3}\n")
        words = self.data.config(log__run_dir=folder, train__max_steps=10**6,
                                 eval__every_samples=10**9)
        with Running("--ranks", 2, config, *words, script="run_local.sh") as job:
            job.wait_for(lambda: (folder / "metrics.jsonl").exists(), "the log")
            os.kill(job.rank_processes()[-1], signal.SIGKILL)
            done = job.wait()
        self.assertEqual(done.code, 137, done)
        last = done.err.splitlines()[-1]
        self.assertRegex(last, r"run_local.sh: signal 9 \(KILL\) ended rank 1 of 2 on \S+ \(process ")
        self.assertIn(f"Saved: nothing yet in {folder}. To resume", last)
        self.assertIn(f"'--ranks' '2' '{config}' '--set' ", last)

    def test_what_a_killed_launcher_leaves_in_memory_goes_at_the_next_start(self):
        config = self.new_folder("config").with_suffix(".yaml")
        config.write_text("train: {seed: 3}\n")
        train = lambda **more: Running("--ranks", 2, config, *self.data.config(**more), script="run_local.sh")
        folder = self.new_folder()
        with train(log__run_dir=folder, train__max_steps=10**6, eval__every_samples=10**9) as job:
            job.wait_for(lambda: (folder / "metrics.jsonl").exists(), "the log")
            ranks = job.rank_processes()
            segments = {pathlib.Path(path) for process in ranks for path in re.findall(
                r"/dev/shm/\w+_segment\.\S+$", pathlib.Path(f"/proc/{process}/maps").read_text(), re.M)}
            os.kill(parent(ranks[0]), signal.SIGKILL)
            self.assertEqual(job.wait().code, 137)
            while any(os.path.exists(f"/proc/{process}") for process in ranks):
                time.sleep(0.02)
        self.assertEqual(len(segments), 2)
        for segment in filter(pathlib.Path.exists, segments):
            os.utime(segment, (0, 0))  # as if long ago
        with train(log__run_dir=self.new_folder(), train__max_steps=1) as job:
            self.assertIn(job.wait().code, (0, 3))
        self.assertEqual([segment for segment in segments if segment.exists()], [])


if __name__ == "__main__":
    main()
