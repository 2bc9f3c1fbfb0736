"""Kills training and data commands at random moments: nothing whole is lost, and all goes on.

    kill_campaign_test.py BERTHA MPIEXEC MALFORMED_SHARDS SCRATCH [--kills N] [--seed S] [--ranks R]
                          [--backend cpu|cuda]

Each kill takes a command, a moment, a process (a rank, or the launcher) and a signal. Afterwards all
ranks are gone in time, every complete checkpoint is intact and whole lines of the logs are records.
The same command runs again, to be killed again or to end: with the bytes of a run that nobody killed.
"""

import argparse
import json
import os
import random
import signal
import sys
import time

from support import EndToEnd, Running, bertha, checkpoints, main, must, tree

MOST_SECONDS_TO_END = 10.0
FATAL = ("KILL", "SEGV", "ABRT", "BUS", "QUIT", "HUP")
STOPPING = ("TERM", "USR1", "INT")

def options():
    parser = argparse.ArgumentParser(prog="kill_campaign_test.py")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    return parser.parse_args(sys.argv[5:])

class Campaign(EndToEnd):
    def setUp(self):
        self.options = options()
        self.draw = random.Random(self.options.seed)
        self.kills = self.ended_before = 0
        self.longest_end_s = 0.0

    def training(self, folder):
        more = {} if self.options.backend == "cpu" else {"train__backend": "cuda"}
        return ["train", *self.data.config(
            log__run_dir=folder, train__max_steps=40, optimizer__schedule_steps=50,
            eval__every_samples=144, checkpoint__every_steps=5, checkpoint__keep=2, **more)]

    def preparing(self, folder):
        return ["data", "prepare", "--text", self.data.text, "--vocab", self.data.vocab,
                "--output", folder, "--max-seq-tokens", 32, "--max-masked-per-seq", 5,
                "--duplication", 12, "--shards", 6]

    def converting(self, folder):
        return ["data", "convert", self.data.train, "--output", folder, "--shards", 2]

    def packing(self, folder):
        return ["data", "pack", self.data.train, "--output", folder]

    def test_kills(self):
        commands = [(self.training, self.options.ranks, self.weights)]
        commands += [(words, 0, self.shards)
                     for words in (self.preparing, self.converting, self.packing)]
        whole = {}
        for words, ranks, results in commands:
            folder = self.new_folder(words.__name__)
            done = must(*words(folder), ranks=ranks)
            whole[words] = (results(folder), done.seconds)
        turns = 0
        while self.kills < self.options.kills:
            words, ranks, results = commands[0 if turns % 2 == 0 else self.draw.randrange(1, 4)]
            turns += 1
            self.kill_until_it_ends(words, ranks, results, *whole[words])
        print(f"{self.kills} kills with seed {self.options.seed}; {self.ended_before} commands "
              f"ended before; the last rank was gone within {self.longest_end_s:.1f} s")

    def kill_until_it_ends(self, words, ranks, results, wanted, seconds):
        folder = self.new_folder(words.__name__)
        for _ in range(self.draw.randint(1, 4)):
            if not self.kill_once(words(folder), ranks, folder, seconds):
                break
        must(*words(folder), ranks=ranks)
        self.assertEqual(results(folder), wanted, f"{folder} after {self.kills} kills")

    def kill_once(self, words, ranks, folder, seconds):
        name = self.draw.choice(FATAL + STOPPING)
        # The address sanitizer would take the signals of crashes for crashes of its program.
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0:handle_sigbus=0"
        with Running(*words, ranks=ranks, extra={"ASAN_OPTIONS": sanitizer}) as run:
            time.sleep(self.draw.uniform(0, 1.1 * seconds))
            launcher = [run.process.pid] if ranks else []
            try:
                victim = self.draw.choice(run.rank_processes() + launcher)
                os.kill(victim, getattr(signal, "SIG" + name))
            except (IndexError, ProcessLookupError):
                self.ended_before += 1
                return False
            self.kills += 1
            begin = time.monotonic()
            if name in STOPPING:
                done = run.wait()  # after the step, or at the end of what it does
            else:
                run.wait_for_end(MOST_SECONDS_TO_END)
                self.longest_end_s = max(self.longest_end_s, time.monotonic() - begin)
                done = run.wait()
            left = run.rank_processes()
            self.assertEqual(left, [], f"ranks after SIG{name}")
        if victim not in launcher:  # which has codes of its own while it starts
            self.assertNotIn(done.code, (1, 124), done)
        self.check(folder)
        return True

    def check(self, folder):
        for name in checkpoints(folder):
            must("checkpoint", "show", folder / "ckpt" / name)
        metrics = folder / "metrics.jsonl"
        if metrics.exists():
            for line in metrics.read_text().split("\n")[:-1]:
                json.loads(line)
        if (folder / "manifest.json").exists():
            self.assertEqual(bertha("data", "verify", folder).code, 0)

    @staticmethod
    def weights(folder):
        return {name: data for name, data in tree(folder).items() if name.endswith(
            "step_00000040/model.safetensors")}

    @staticmethod
    def shards(folder):
        return {name: data for name, data in tree(folder).items() if name.endswith(".hdf5")}

if __name__ == "__main__":
    main()
