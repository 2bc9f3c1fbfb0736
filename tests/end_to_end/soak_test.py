"""Trains for a long time with evaluations, checkpoints, stops and resumes: no rank grows.

    soak_test.py BERTHA MPIEXEC MALFORMED_SHARDS SCRATCH [--minutes M] [--ranks R] [--backend cpu|cuda]

One process trains for half of the time. In the other half a signal stops the run again and again, and
it goes on with R ranks and with half of them in turn. Memory, open files and threads of every rank are
read from /proc. Each rank is flat if the median of its last third of samples is at most that of the
second third; memory may be 2 % and 8 MiB above it, as allocators keep pages that other sizes will use.
"""

import argparse
import os
import pathlib
import signal
import statistics
import sys
import time

from support import EndToEnd, Running, checkpoints, main, rank_of, records

MOST_PARTS = 8  # of the half with stops
LEAST_PART_SECONDS = 7.0
SAMPLES_OF_A_PART = 200
LEAST_SAMPLE_SECONDS = 0.1
MEMORY_FACTOR, MEMORY_SLACK_MIB = 1.02, 8.0


def options():
    parser = argparse.ArgumentParser(prog="soak_test.py")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    return parser.parse_args(sys.argv[5:])


def sample(process):
    """What a process holds now: {name: number}; none where it has ended."""
    place = pathlib.Path(f"/proc/{process}")
    try:
        lines = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        return {"memory": int(lines["VmRSS"].split()[0]) / 1024,
                "pinned": int(lines["VmPin"].split()[0]) / 1024,
                "files": len(os.listdir(place / "fd")), "threads": int(lines["Threads"])}
    except (OSError, KeyError, ValueError):
        return None


class Rank:
    """The samples of one process, in order."""

    def __init__(self, process):
        self.rank = rank_of(process)
        self.samples = []

    def thirds(self, name):
        """Medians of the second and of the last third."""
        values = [s[name] for s in self.samples]
        size = len(values) // 3
        return statistics.median(values[size:2 * size]), statistics.median(values[-size:])

    def grown(self):
        """Names of what is not flat."""
        found = []
        for name in ("memory", "pinned", "files", "threads"):
            before, after = self.thirds(name)
            is_memory = name in ("memory", "pinned")
            if after > (before * MEMORY_FACTOR + MEMORY_SLACK_MIB if is_memory else before):
                found.append(name)
        return found

    def line(self):
        text = f"  rank {self.rank}: {len(self.samples)} samples"
        for name, unit in (("memory", " MiB"), ("files", ""), ("threads", "")):
            before, after = self.thirds(name)
            text += f", {name} {before:.0f} to {after:.0f}{unit}"
        return text


class Soak(EndToEnd):
    def test_no_rank_grows(self):
        given = options()
        seconds = given.minutes * 60
        parts = max(2, min(MOST_PARTS, int(seconds / 2 / LEAST_PART_SECONDS)))
        ranks = [given.ranks if part % 2 == 0 else max(1, given.ranks // 2)
                 for part in range(parts + 1)]
        folder = self.new_folder()
        words = ["train", *self.data.config(
            log__run_dir=folder, train__backend=given.backend, train__max_steps=10**8,
            optimizer__schedule_steps=10**8, optimizer__base_learning_rate=1e-4,
            model__hidden=128, model__feed_forward=512, train__global_batch_seqs=48,
            train__log_every_steps=20, eval__every_samples=48 * 60, checkpoint__every_steps=50,
            checkpoint__keep=2, checkpoint__keep_best=True)]
        grown = []
        for part, count in enumerate(ranks):
            part_seconds = seconds / 2 if part == 0 else seconds / 2 / parts
            before = checkpoints(folder)
            found = self.run_part(words, count, part_seconds)
            self.report(folder, part, count, part_seconds, found)
            if before:  # the saved step is where the next process begins
                self.assertEqual(records(folder, "run")[-1]["first_step"], step_of(before[-1]))
            grown += [f"part {part}, rank {r.rank}: {', '.join(r.grown())}" for r in found
                      if r.grown()]
        self.assertEqual(grown, [])

    def run_part(self, words, count, seconds):
        """Trains for so long and stops with a signal. Returns its Ranks."""
        # The address sanitizer keeps freed memory, by itself far more than what is allowed to grow.
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"
        with Running(*words, ranks=count, extra={"ASAN_OPTIONS": sanitizer}) as run:
            run.wait_for(lambda: len(run.rank_processes()) == count, "all ranks")
            ranks = {process: Rank(process) for process in run.rank_processes()}
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for process, rank in ranks.items():
                    if (now := sample(process)) is not None:
                        rank.samples.append(now)
                if run.process.poll() is not None:
                    self.fail(f"ended by itself: {run.wait()}")
                time.sleep(max(LEAST_SAMPLE_SECONDS, seconds / SAMPLES_OF_A_PART))
            os.kill(min(ranks), signal.SIGUSR1)
            done = run.wait()
        self.assertEqual(done.code, 75, done)
        return sorted(ranks.values(), key=lambda rank: rank.rank)

    def report(self, folder, part, count, seconds, ranks):
        saved = step_of(checkpoints(folder)[-1])
        print(f"part {part}: {count} ranks, {seconds:.0f} s, to step {saved}, "
              f"{len(records(folder, 'eval'))} evaluations so far", flush=True)
        for rank in ranks:
            print(rank.line() + "".join(f"; {name} GREW" for name in rank.grown()), flush=True)


def step_of(name):
    return int(name.rpartition("_")[2])


if __name__ == "__main__":
    main()
