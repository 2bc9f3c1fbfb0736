"""Every call that a result depends on fails once, or is the last of its process: nothing whole is lost,
one sentence says why, and the same command then ends with the same results.

    failure_points_test.py BERTHA MPIEXEC MALFORMED_SHARDS SCRATCH FAILING_CALLS [all]

The program runs with a library before the C library (tests/support/failing_calls.cpp) that counts its
calls and makes one of them fail. Without `all` a few calls of each command are taken, at the same
distance from each other.
"""

import os
import shutil
import signal
import sys
import unittest

from support import (EndToEnd, Running, bertha, checkpoints, count_gpus, main, records, steps_so_far,
                     tree)

FAILING_CALLS = sys.argv[5]
TAKES_ALL = sys.argv[6:] == ["all"]
CALLS_OF_A_COMMAND = 8
IO_ERROR, NO_SPACE, KILL, HANG = "5", "28", "kill", "hang"
LEAST_BYTES = 32768  # of allocations that fail: smaller ones are those of libraries at their start


class Calls(EndToEnd):
    """Commands whose calls fail. `results` are the files that must be the same in the end."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.failed = cls.taken = 0

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.__name__}: {cls.taken} calls, {cls.failed} of them ended the command")

    def failing(self, folder, what, at, how, rank):
        """The environment in which a call fails, with a new list of calls. Rank -1: any process."""
        self.log = self.scratch / "calls"
        self.log.unlink(missing_ok=True)
        extra = {"LD_PRELOAD": FAILING_CALLS, "FAIL_WHAT": what, "FAIL_BELOW": str(folder),
                 "FAIL_AT": str(at), "FAIL_HOW": how, "FAIL_OUTPUT": str(self.log),
                 "FAIL_BYTES": str(LEAST_BYTES)}
        return {**extra, "FAIL_RANK": str(rank)} if rank >= 0 else extra

    def calls(self):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.split(" ", 1)[1] for line in lines]

    def run_with(self, words, folder, what, at, how=IO_ERROR, ranks=0):
        done = bertha(*words(folder), ranks=ranks,
                      extra=self.failing(folder, what, at, how, ranks - 1))
        return done, self.calls()

    def chosen(self, calls, most=CALLS_OF_A_COMMAND):
        """Numbers of calls, from 1. Of equal ones in a row the first and the last are enough."""
        ends = [n for n in range(len(calls)) if n in (0, len(calls) - 1) or
                not calls[n - 1] == calls[n] == calls[n + 1]]
        step = 1 if TAKES_ALL else max(1, len(ends) // most)
        return [(ends[n] + 1, n // step) for n in range(0, len(ends), step)]

    def sweep(self, words, results, start=lambda folder: None, ranks=0,
              hows=(IO_ERROR, KILL, NO_SPACE)):
        """`words(folder)` is the command, `start(folder)` makes what it finds there."""
        whole = self.new_folder("whole")
        start(whole)
        done, calls = self.run_with(words, whole, "files", 0, ranks=ranks)
        self.assertEqual(done.code, 0, done)
        self.assertGreater(len(calls), 3, calls)
        wanted = results(whole)
        for number, index in self.chosen(calls):
            for how in hows if TAKES_ALL else [hows[index % len(hows)]]:
                folder = self.new_folder("failing")
                start(folder)
                with self.subTest(call=calls[number - 1].replace(str(whole), ""), how=how):
                    self.fail_once(words, results, wanted, folder, number, how, ranks)
                shutil.rmtree(folder, ignore_errors=True)

    def fail_once(self, words, results, wanted, folder, number, how, ranks):
        done, _ = self.run_with(words, folder, "files", number, how, ranks)
        type(self).taken += 1
        if how == KILL:
            self.assertIn(done.code, (-9, 137), done)
        elif done.code != 0:
            self.assert_failure(done, 4, folder)
        self.check_what_is_whole(folder)
        if done.code != 0:
            type(self).failed += 1
            again = bertha(*words(folder), ranks=ranks)
            self.assertEqual(again.code, 0, f"{done}\n\n{again}")
        self.assertEqual(results(folder), wanted)
        left = [name for name in tree(folder) if name.endswith((".tmp", ".partial"))]
        self.assertEqual(left, [])

    def check_what_is_whole(self, folder):
        for name in checkpoints(folder):
            shown = bertha("checkpoint", "show", folder / "ckpt" / name)
            self.assertEqual(shown.code, 0, shown)


def weights(folder):
    found = sorted(folder.glob("ckpt/step_*/model.safetensors"))
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


def shards(folder):
    return {name: data for name, data in tree(folder).items()
            if name.endswith((".hdf5", "manifest.json"))}


class Training(Calls):
    def words(self, folder, **changes):
        values = {"train__max_steps": 4, "checkpoint__every_steps": 2, "checkpoint__keep": 1,
                  **changes}
        return ["train", *self.data.config(log__run_dir=folder, **values)]

    def test_a_run(self):
        self.sweep(self.words, weights)

    def test_a_resumed_run_on_two_ranks(self):
        first = self.new_folder()
        self.train(first, ranks=2, train__max_steps=2, optimizer__schedule_steps=20)
        self.sweep(self.words, weights, lambda folder: shutil.copytree(first, folder), ranks=2,
                   hows=(IO_ERROR, KILL))

    def check_what_is_whole(self, folder):
        super().check_what_is_whole(folder)
        if (folder / "metrics.jsonl").exists():
            records(folder, "step")  # whole lines, but for the last one
        if (folder / "ckpt" / "resumed_from").exists():
            self.assertGreaterEqual(len(checkpoints(folder)), 1)


class CallsOfMpi(Calls):
    """On two ranks: a call of MPI returns an error, is the last of its process, or never returns."""

    KIND = "mpi"
    SETTINGS = {}
    CODES = {IO_ERROR: 5, KILL: 137, HANG: 124}
    SAYS = {IO_ERROR: "exit code 5, for the reason above", KILL: "signal 9 (KILL) ended",
            HANG: "no progress of"}
    HANG_SECONDS = 3.0
    START_SECONDS = 8.0  # and of the end; longer than ranks wait for the first of a node to speak
    MOST_END_SECONDS = 10.0

    def start(self, folder, extra=None):
        limits = {"BERTHA_START_TIMEOUT_S": str(self.START_SECONDS)}
        words = self.data.config(log__run_dir=folder, train__max_steps=4, checkpoint__every_steps=2,
                                 checkpoint__keep=1, eval__every_samples=12, **self.SETTINGS,
                                 train__hang_timeout_minutes=self.HANG_SECONDS / 60)
        with Running("--ranks", 2, self.config, *words, script="run_local.sh",
                     extra={**limits, **(extra or {})}) as job:
            done = job.wait()
            self.assertEqual(job.rank_processes(), [])
        return done

    def test_a_resumed_run(self):
        first = self.new_folder()
        self.train(first, ranks=2, train__max_steps=2, **self.SETTINGS)
        self.config = self.new_folder("config").with_suffix(".yaml")
        self.config.write_text("train: {seed: 3}\n")
        for rank in (0, 1):
            whole = shutil.copytree(first, self.new_folder("whole"))
            done = self.start(whole, self.failing(whole, self.KIND, 0, KILL, rank))
            self.assertEqual(done.code, 0, done)
            self.whole_seconds = done.seconds
            calls = self.calls()
            self.assertGreater(len(calls), 10, calls)
            for number, index in self.chosen(calls, most=2):
                hows = list(self.CODES)
                for how in hows if TAKES_ALL else [hows[(index + rank) % 3]]:
                    with self.subTest(rank=rank, number=number, call=calls[number - 1], how=how):
                        folder = shutil.copytree(first, self.new_folder("failing"))
                        self.fail_once(folder, rank, number, how, weights(whole))
                        shutil.rmtree(folder)

    def fail_once(self, folder, rank, number, how, wanted):
        done = self.start(folder, self.failing(folder, self.KIND, number, how, rank))
        type(self).taken += 1
        limit = max(self.START_SECONDS, self.HANG_SECONDS) if how == HANG else 0
        self.assertLess(done.seconds, limit + self.MOST_END_SECONDS + self.whole_seconds, done)
        for word in ("Signal:", "terminate called", "***", "Open MPI", "MPI_ABORT"):
            self.assertNotIn(word, done.out + done.err, done)
        for name in checkpoints(folder):
            self.assertEqual(bertha("checkpoint", "verify", folder / "ckpt" / name).code, 0, name)
        # What fails when all is done changes nothing.
        if how != IO_ERROR or done.code != 0:
            type(self).failed += 1
            self.assertEqual(done.code, self.CODES[how], done)
            self.assertIn(self.SAYS[how], done.err.splitlines()[-1])
            # While no watchdog runs, of a killed rank only the script speaks.
            self.assertIn(len(done.errors()), (0, 1) if how == KILL else (1,), done)
            again = self.start(folder)
            self.assertEqual(again.code, 0, f"{done}\n\n{again}")
        # Killed between the last save and the end of the checkpoint before, it leaves both.
        found = weights(folder)
        self.assertTrue(all(found.get(name) == data for name, data in wanted.items()), done)


@unittest.skipUnless(count_gpus() > 1, "wants two GPUs")
class CallsOfNccl(CallsOfMpi):
    """The same with calls of NCCL."""

    KIND = "nccl"
    SETTINGS = {"train__backend": "cuda", "cuda__exchange": "nccl"}
    HANG_SECONDS = 10.0


class Commands(Calls):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        _, cls.saved = cls.train_once()

    def test_prepare(self):
        self.sweep(lambda folder: ["data", "prepare", "--text", self.data.text, "--vocab",
                                   self.data.vocab, "--output", folder, "--duplication", 1,
                                   "--shards", 2, "--max-seq-tokens", 32,
                                   "--max-masked-per-seq", 5], shards)

    def test_convert(self):
        self.sweep(lambda folder: ["data", "convert", self.data.train, "--output", folder], shards)

    def test_pack(self):
        self.sweep(lambda folder: ["data", "pack", self.data.train, "--output", folder], shards)

    def test_vocab(self):
        self.sweep(lambda folder: ["data", "vocab", "--text", self.data.text, "--size", 300,
                                   "--output", folder / "vocab.txt"], tree,
                   lambda folder: folder.mkdir())

    def test_export(self):
        self.sweep(lambda folder: ["checkpoint", "export", self.saved, "--vocab", self.data.vocab,
                                   "--output", folder], tree)

    def test_dump_batches(self):
        self.sweep(lambda folder: ["data", "dump-batches", *self.data.config(), "--steps", 2,
                                   "--output", folder], tree)


class Resources(Calls):
    """No memory and no thread, at any moment of a run."""

    def sweep_resource(self, what, codes):
        def words(folder):
            return ["train", *self.data.config(log__run_dir=folder, train__max_steps=2)]

        done, calls = self.run_with(words, self.new_folder(), what, 0)
        self.assertEqual(done.code, 0, done)
        self.assertGreater(len(calls), 1)
        step = 1 if TAKES_ALL else max(1, len(calls) // CALLS_OF_A_COMMAND)
        for number in range(1, len(calls) + 1, step):
            with self.subTest(what=what, number=number, call=calls[number - 1]):
                folder = self.new_folder()
                done, _ = self.run_with(words, folder, what, number)
                type(self).taken += 1
                if done.code != 0:
                    type(self).failed += 1
                    self.assertIn(done.code, codes, done)
                    self.assertEqual(len(done.errors()), 1, done)
                    self.assertNotIn("terminate called", done.err)
                    self.assertEqual(bertha(*words(folder)).code, 0)

    def test_memory(self):
        self.sweep_resource("memory", (5, 6))

    def test_threads(self):
        self.sweep_resource("threads", (5, 6))


class SignalsOfLibraries(Calls):
    def test_sigusr1_saves_where_a_library_of_mpi_takes_it(self):
        for ranks in (0, 2):
            folder = self.new_folder()
            words = self.data.config(log__run_dir=folder, train__max_steps=10**6,
                                     eval__every_samples=10**9)
            with Running("train", *words, ranks=ranks,
                         extra=self.failing(folder, "signals", 0, KILL, -1)) as run:
                run.wait_for(lambda: len(steps_so_far(folder)) >= 3, "three steps")
                os.kill(run.rank_processes()[-1], signal.SIGUSR1)
                done = run.wait()
            self.assertEqual(done.code, 75, done)
            self.assertEqual(len(checkpoints(folder)), 1)


if __name__ == "__main__":
    main()
