"""A disk that is full while preparing or saving: exit code 4, one message, earlier results intact."""

import resource
import subprocess

from support import (MAX_MASKED, MAX_SEQ_TOKENS, EndToEnd, Running, bertha, checkpoints, main,
                     records, tree)


def limit_file_size(size):
    """A limit for one process that fails its writes, as a full disk does."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit


class FullDisk(EndToEnd):
    def small_disk(self, kilobytes):
        """A file system of this size, or nothing where this user may not mount one."""
        folder = self.new_folder("disk")
        folder.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs",
                                  str(folder)], stderr=subprocess.DEVNULL, check=False)
        if mounted.returncode != 0:
            return None
        self.addCleanup(subprocess.run, ["umount", "-l", str(folder)], check=True)
        return folder

    def prepare(self, output, preexec_fn=None):
        return bertha("data", "prepare", "--text", self.data.text, "--vocab", self.data.vocab,
                      "--output", output, "--max-seq-tokens", MAX_SEQ_TOKENS,
                      "--max-masked-per-seq", MAX_MASKED, "--duplication", 2,
                      preexec_fn=preexec_fn)

    def assert_not_prepared(self, done, output):
        self.assert_failure(done, 4, output)
        self.assertFalse((output / "manifest.json").exists())
        self.assertEqual(list(output.glob("part_*")), [])

    def test_preparing_within_a_limit_of_file_sizes(self):
        whole = self.new_folder("prepared")
        self.assertEqual(self.prepare(whole).code, 0)
        for size in (1000, 20_000, 100_000):
            output = self.new_folder("prepared")
            self.assert_not_prepared(self.prepare(output, limit_file_size(size)), output)
            # With space again the same command ends well, with the same shards.
            self.assertEqual(self.prepare(output).code, 0)
            self.assertEqual({k: v for k, v in tree(output).items() if k.startswith("part_")},
                             {k: v for k, v in tree(whole).items() if k.startswith("part_")})

    def test_preparing_on_a_small_disk(self):
        disk = self.small_disk(100)
        output = disk / "prepared" if disk else self.new_folder("prepared")
        done = self.prepare(output, None if disk else limit_file_size(50_000))
        self.assert_not_prepared(done, output)

    def test_a_vocabulary(self):
        output = self.scratch / "small_vocab.txt"
        output.write_text("from before\n")
        done = bertha("data", "vocab", "--text", self.data.text, "--size", 320, "--output", output,
                      preexec_fn=limit_file_size(100))
        self.assert_failure(done, 4, output)
        self.assertEqual(output.read_text(), "from before\n")

    def check_saving(self, folder, fill):
        """Trains until the second checkpoint, for which `fill` leaves no space."""
        words = self.data.config(log__run_dir=folder, train__max_steps=10**6,
                                 train__log_every_steps=10**5, checkpoint__every_steps=100,
                                 checkpoint__keep=9, eval__every_samples=10**9)
        with Running("train", *words, ranks=2) as run:
            run.wait_for(lambda: checkpoints(folder), "a checkpoint")
            fill(run)
            done = run.wait()
        self.assert_failure(done, 4, folder / "ckpt")
        kept = checkpoints(folder)
        self.assertGreaterEqual(len(kept), 1)
        for name in kept:
            self.assertEqual(bertha("checkpoint", "show", folder / "ckpt" / name).code, 0)
        return int(kept[-1][len("step_"):])

    def test_saving_within_a_limit_of_file_sizes(self):
        def fill(run):
            for process in run.rank_processes():
                resource.prlimit(process, resource.RLIMIT_FSIZE, (60_000, 60_000))

        folder = self.new_folder()
        saved = self.check_saving(folder, fill)
        self.train(folder, ranks=2, train__max_steps=saved + 2)
        self.assertEqual(records(folder, "run")[-1]["first_step"], saved)

    def test_saving_on_a_small_disk(self):
        disk = self.small_disk(900)  # one checkpoint has 500 kB

        def fill(run):
            if disk is None:
                for process in run.rank_processes():
                    resource.prlimit(process, resource.RLIMIT_FSIZE, (100_000, 100_000))

        self.check_saving(disk / "run" if disk else self.new_folder(), fill)


if __name__ == "__main__":
    main()
