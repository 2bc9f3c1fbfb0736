"""A rank that stands still ends the run with 124 and is named itself, not one that waits for it."""

import os
import pathlib
import signal
import time

from support import (ON_A_SMALL_DISK, EndToEnd, Running, bertha, checkpoints, command, main,
                     per_rank, rank_of, run, steps_so_far)

LIMIT_SECONDS = 4.0
# Beside the limit: a look of the watchdog every quarter of a second, and the end of the ranks.
MOST_REPORT_SECONDS = 10.0


def threads(process):
    """The names of its threads."""
    return {(task / "comm").read_text().strip()
            for task in pathlib.Path(f"/proc/{process}/task").iterdir()}


class Hang(EndToEnd):
    def words(self, folder=None, **changes):
        if folder is not None:
            changes.update(log__run_dir=folder, train__max_steps=10**6, eval__every_samples=10**9)
        return self.data.config(train__hang_timeout_minutes=LIMIT_SECONDS / 60, **changes)

    def watched(self, job, rank):
        """The process of the rank once its watchdog runs."""
        found = []
        def is_there():
            try:
                found[:] = [p for p in job.rank_processes()
                            if rank_of(p) == rank and "watchdog" in threads(p)]
            except OSError:  # gone meanwhile, or not yet the program
                found.clear()
            return bool(found)
        job.wait_for(is_there, f"watchdog of rank {rank}")
        return found[0]

    def assert_named(self, job, rank, process, *texts):
        begin = time.monotonic()
        done = job.wait()
        self.assertEqual(done.code, 124, done)
        self.assertLess(time.monotonic() - begin, LIMIT_SECONDS + MOST_REPORT_SECONDS, done)
        errors = done.errors()
        self.assertEqual(len(errors), 1, done)
        for text in (f"error: rank {rank} of 2", f"(process {process})", *texts):
            self.assertIn(text, errors[0])
        self.assertNotIn(f"rank {1 - rank} of 2", errors[0])
        self.assertEqual(job.rank_processes(), [])
        return done

    def test_a_rank_that_is_stopped_while_it_trains(self):
        for rank in (0, 1):
            folder = self.new_folder()
            with Running("train", *self.words(folder), ranks=2) as job:
                job.wait_for(lambda: len(steps_so_far(folder)) > 2, "three steps")
                process = self.watched(job, rank)
                os.kill(process, signal.SIGSTOP)
                done = self.assert_named(job, rank, process, "has not answered for 4 s", "step ",
                                         " collective call ", f"; rank {1 - rank} waits in step ")
                self.assertIn("which cannot show its stack: state T (stopped by a signal)", done.err)

    def test_a_rank_that_is_stopped_during_initialisation(self):
        folder = self.new_folder()
        with Running("train", *self.words(folder, train__init_warmup_steps=10000), ranks=2) as job:
            process = self.watched(job, 1)
            os.kill(process, signal.SIGSTOP)
            self.assert_named(job, 1, process, "has not answered", "step 0, phase starting")

    def test_a_rank_that_is_stopped_before_it_starts_mpi(self):
        for rank in (0, 1):
            words = command(["train", *self.words(self.new_folder())], 0)
            scripts = [":", ":"]
            scripts[rank] = "kill -STOP $$"
            done = run(per_rank(scripts, words), {"BERTHA_START_TIMEOUT_S": str(LIMIT_SECONDS)})
            self.assert_failure(done, 124, "after 4 s not all of 2 ranks have started MPI",
                                f"rank {rank} of 2", "is stopped")
            self.assertLess(done.seconds, LIMIT_SECONDS + MOST_REPORT_SECONDS, done)

    def test_a_rank_that_never_starts_mpi(self):
        words = command(["train", *self.words(self.new_folder())], 0)
        done = run(per_rank(["exec sleep 100", ":"], words), {"BERTHA_START_TIMEOUT_S": "1"})
        self.assert_failure(done, 124, "not all of 2 ranks have started MPI", " has rank 0, 1;")

    def test_a_start_timeout_that_is_no_number(self):
        done = bertha("train", *self.words(self.new_folder()), ranks=2,
                      extra={"BERTHA_START_TIMEOUT_S": "soon"})
        self.assertEqual(done.code, 5, done)
        self.assertIn("BERTHA_START_TIMEOUT_S='soon', want the seconds", done.err + done.out)

    def test_a_rank_that_is_stopped_in_a_benchmark(self):
        words = self.words(train__init_warmup_steps=0)
        with Running("bench", "step", *words, "--steps", 10**6, ranks=2) as job:
            process = self.watched(job, 1)
            os.kill(process, signal.SIGSTOP)
            self.assert_named(job, 1, process, "has not answered for 4 s")

    def test_a_rank_that_is_stopped_in_an_evaluation_of_its_own(self):
        folder = self.new_folder()
        large = {"model__layers": 8, "model__hidden": 256, "model__feed_forward": 1024}  # seconds
        self.train(folder, train__max_steps=1, **large)
        checkpoint = folder / "ckpt" / checkpoints(folder)[0]
        words = self.words(data__eval=self.data.train, **large)
        with Running("eval", *words, "--checkpoint", checkpoint, ranks=2) as job:
            process = self.watched(job, 1)
            os.kill(process, signal.SIGSTOP)
            self.assert_named(job, 1, process, "has not answered", "step 0")

    def test_a_disk_error_names_the_rank_that_met_it(self):
        folder = self.new_folder()
        words = command(["train", *self.data.config(log__run_dir=folder, train__max_steps=2)], 0)
        done = run(per_rank([":", ON_A_SMALL_DISK], words))
        self.assert_failure(done, 4, "(rank 1 of 2 on ", "optimizer-00001-of-00002")
        self.assertNotIn("rank 0 of 2", done.err)


if __name__ == "__main__":
    main()
