"""Limits of addresses and of processes, on a machine with many cores.

    limits_test.py BERTHA MPIEXEC MALFORMED_SHARDS SCRATCH MANY_CORES FAILING_CALLS
"""

import fcntl
import os
import pathlib
import resource
import subprocess
import sys
import time

from support import BERTHA, EndToEnd, bertha, environment, main, tree

MANY_CORES, FAILING_CALLS = sys.argv[5:7]
MOST_BYTES = 600_000 * 1024  # `ulimit -v 600000`
NO_THREADS = {"LD_PRELOAD": FAILING_CALLS, "FAIL_WHAT": "threads", "FAIL_HOW": "11"}  # EAGAIN


def limited(to_bytes, *arguments):
    return bertha(*arguments, extra={"LD_PRELOAD": MANY_CORES}, preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_AS, (to_bytes, to_bytes)))


def threads_of(*arguments):
    """Of a command that stands where it writes: its output is a pipe without room."""
    reader, writer = os.pipe()
    os.write(writer, b"x" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
    with subprocess.Popen([BERTHA, *arguments], env=environment({"LD_PRELOAD": MANY_CORES}),
                          stdout=writer) as process:
        folder = pathlib.Path(f"/proc/{process.pid}")
        calls = []
        while len(calls) < 10 or len(set(calls[-10:])) > 1 or calls[-1].startswith("running"):
            time.sleep(0.02)
            calls.append((folder / "syscall").read_text())
        count = len(list((folder / "task").iterdir()))
        process.kill()
    os.close(reader)
    os.close(writer)
    return count


class Limits(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        _, cls.saved = cls.train_once()

    def prepare(self, folder):
        return ["data", "prepare", "--text", self.data.text, "--vocab", self.data.vocab, "--output",
                folder, "--shards", 70, "--max-seq-tokens", 32, "--max-masked-per-seq", 5]

    def test_what_multiplies_nothing_starts_no_threads(self):
        for words in (["--version"], ["--help"], ["data", "--help"], ["config", "--help"]):
            self.assertEqual(threads_of(*words), 1, words)

    def test_what_multiplies_nothing_needs_few_addresses(self):
        for words in (["--version"], ["--help"], self.prepare(self.new_folder()),
                      ["data", "verify", self.data.train], ["data", "stats", self.data.train],
                      ["data", "convert", self.data.train, "--output", self.new_folder()],
                      ["checkpoint", "verify", self.saved]):
            done = limited(MOST_BYTES, *words)
            self.assertEqual((done.code, done.errors()), (0, []), f"{words}: {done}")

    def test_prepare_goes_on_with_the_threads_that_start(self):
        whole = self.new_folder()
        self.assertEqual(bertha(*self.prepare(whole)).code, 0)
        for number in (1, 2):
            folder = self.new_folder()
            done = bertha(*self.prepare(folder), extra={**NO_THREADS, "FAIL_AT": str(number)})
            self.assertEqual(done.code, 0, done)
            self.assertEqual(tree(folder), tree(whole))


if __name__ == "__main__":
    main()
