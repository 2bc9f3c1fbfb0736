"""A call of CUDA or cuBLASLt fails once, or is the last of its process: nothing whole is lost, one
sentence says why, and the same command then ends with the same weights.

    cuda_failure_points_test.py BERTHA_FAILING_CUDA MPIEXEC MALFORMED_SHARDS SCRATCH FAILING_CALLS [--calls N]

Resumed runs on the GPU, of two ranks where two GPUs are, in fp32 and in bf16. N calls in all (24) are
drawn so that each function has its turn before one has its second; several runs share the GPUs.
tests/support/failing_cuda.cpp says how calls fail.
"""

import argparse
import collections
import concurrent.futures
import random
import shutil
import sys
import unittest

from support import EndToEnd, Running, bertha, checkpoints, count_gpus, main

FAILING_CALLS = sys.argv[5]
PARSER = argparse.ArgumentParser(prog="cuda_failure_points_test.py")
PARSER.add_argument("--calls", type=int, default=24)
CALLS = PARSER.parse_args(sys.argv[6:]).calls
RUNS_AT_A_TIME = 4
MEMORY, ECC, LAUNCH, KILL = "2", "214", "719", "kill"  # the first three are errors of CUDA
CODES = {MEMORY: 6, ECC: 5, LAUNCH: 1, KILL: 137}
HANG_SECONDS = 30.0
MOST_END_SECONDS = 20.0  # beyond what an undisturbed run takes alone


def codes_of(call, how):
    """The exit codes that such a failure may have."""
    if call.startswith("cudaIpc") or call == "cudaGetDeviceCount":
        return (5, CODES[how])  # GPUs that cannot share memory; CUB says that there is no such GPU
    return (CODES[how],)


def weights(folder):
    return {p.parent.name: p.read_bytes() for p in folder.glob("ckpt/step_*/model.safetensors")}


class CallsOfCuda(EndToEnd):
    ranks = min(2, count_gpus())

    def failing(self, log, number, how, rank=None):
        """The environment in which a call (of a rank) fails, and all are listed in the file `log`."""
        extra = {"LD_PRELOAD": FAILING_CALLS, "FAIL_WHAT": "cuda", "FAIL_AT": str(number),
                 "FAIL_HOW": how, "FAIL_OUTPUT": str(log)}
        return extra if rank is None else {**extra, "FAIL_RANK": str(rank)}

    def calls(self, log):
        """Names of the calls, by number."""
        lines = log.read_text().splitlines() if log.exists() else []
        return {int(number): name for number, name, *_ in map(str.split, lines)}

    def start(self, folder, settings, extra=None, steps=6):
        words = self.data.config(log__run_dir=folder, train__max_steps=steps,
                                 checkpoint__every_steps=2, checkpoint__keep=1,
                                 eval__every_samples=24, train__backend="cuda",
                                 train__hang_timeout_minutes=HANG_SECONDS / 60,
                                 cuda__exchange="copies", **settings)
        with Running("--ranks", self.ranks, self.config, *words, script="run_local.sh",
                     extra=extra) as job:
            done = job.wait()
            done.left = job.rank_processes()
        return done

    def drawn(self, calls, most):
        """Numbers of calls; each function has its turn before one has its second."""
        draw = random.Random(most)
        numbers = {}
        for number, name in sorted(calls.items()):
            numbers.setdefault(name, []).append(number)
        for of_name in numbers.values():
            draw.shuffle(of_name)
        names = sorted(numbers)
        draw.shuffle(names)
        turns = [(turn, place, number) for place, name in enumerate(names)
                 for turn, number in enumerate(numbers[name])]
        return [number for _, _, number in sorted(turns)[:most]]

    def sweep(self, name, settings):
        self.config = self.new_folder("config").with_suffix(".yaml")
        self.config.write_text("train: {seed: 3}\n")
        first = self.new_folder(name)
        done = self.start(first, settings, steps=2)
        self.assertEqual(done.code, 0, done)
        points = []
        for rank in range(self.ranks) if self.ranks > 1 else [None]:
            whole = shutil.copytree(first, self.new_folder(f"{name}_whole"))
            log = whole.with_suffix(".calls")
            done = self.start(whole, settings, self.failing(log, 0, KILL, rank))
            self.assertEqual(done.code, 0, done)
            calls = self.calls(log)
            self.assertGreater(len(calls), 100, calls)
            numbers = self.drawn(calls, CALLS // (2 * self.ranks))
            points += [(rank, number, calls[number]) for number in numbers]
        hows = list(CODES)
        codes = collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(RUNS_AT_A_TIME) as pool:
            tried = [(rank, call, hows[index % len(hows)],
                      pool.submit(self.fail_once, shutil.copytree(first, self.new_folder(name)),
                                  settings, rank, number, hows[index % len(hows)]))
                     for index, (rank, number, call) in enumerate(points)]
            for rank, call, how, result in tried:
                with self.subTest(settings=name, rank=rank, call=call, how=how):
                    codes[result.result()[0].code] += 1
                    self.check(call, how, done.seconds, weights(whole), *result.result())
        print(f"{name}: {len(points)} of {len(calls)} calls per rank, of "
              f"{len(set(calls.values()))} functions, failed; exit codes {dict(codes)}; "
              f"undisturbed {done.seconds:.1f} s", flush=True)

    def fail_once(self, folder, settings, rank, number, how):
        """What came of a failing call: the run's end, the name of the last call before it if it came
        to that, complete checkpoints that are damaged, the end of the run after, and its weights."""
        log = folder.with_suffix(".calls")
        done = self.start(folder, settings, self.failing(log, number, how, rank))
        reached = self.calls(log).get(number)
        damaged = [name for name in checkpoints(folder)
                   if bertha("checkpoint", "verify", folder / "ckpt" / name).code != 0]
        again = self.start(folder, settings) if done.code != 0 else done
        found = weights(folder)
        shutil.rmtree(folder)
        return done, reached, damaged, again, found

    def check(self, call, how, whole_seconds, wanted, done, reached, damaged, again, found):
        texts = f"{done}\n\nthen\n\n{again}"
        self.assertEqual(done.left, [], texts)
        self.assertEqual(damaged, [], texts)
        self.assertLess(done.seconds, whole_seconds + MOST_END_SECONDS, texts)
        for word in ("Signal:", "terminate called", "***", "Open MPI", "MPI_ABORT", "BERTHA_CHECK"):
            self.assertNotIn(word, done.out + done.err, texts)
        # Threads take turns, so that another call may have had the number.
        name = reached or call
        if reached is None:
            self.assertEqual(done.code, 0, texts)  # the run made fewer calls than the one that counted
        elif how == KILL:
            self.assertIn(done.code, (137, -9), texts)  # -9: no launcher was there
            self.assertLessEqual(len(done.errors()), 1, texts)
        elif done.code != 0:  # what fails when all is done changes nothing
            self.assertIn(done.code, codes_of(name, how), f"{name}: {texts}")
            self.assertEqual(len(done.errors()), 1, texts)
        self.assertEqual(again.code, 0, texts)
        # Killed between the last save and the end of the checkpoint before, it leaves both.
        for step, data in wanted.items():
            self.assertEqual(found.get(step), data, f"weights of {step} differ: {texts}")

    @unittest.skipUnless(count_gpus(), "wants a GPU")
    def test_fp32(self):
        self.sweep("fp32", {"train__precision": "fp32"})

    @unittest.skipUnless(count_gpus(), "wants a GPU")
    def test_bf16(self):
        # Large enough for the kernels of long runs: persistent attention, CUDA graphs.
        self.sweep("bf16", {"train__precision": "bf16", "model__hidden": 256, "model__heads": 4,
                            "model__feed_forward": 512})

    def test_the_first_call(self):
        """Also where no GPU is."""
        words = ["train", *self.data.config(log__run_dir=self.new_folder(), train__backend="cuda")]
        for how, code in CODES.items():
            with self.subTest(how=how):
                log = self.new_folder("calls")
                done = bertha(*words, extra=self.failing(log, 1, how))
                self.assertEqual(self.calls(log), {1: "cudaGetDeviceCount"})
                if how == KILL:
                    self.assertEqual(done.code, -9, done)
                else:
                    self.assert_failure(done, code, "cudaGetDeviceCount")


if __name__ == "__main__":
    main()
