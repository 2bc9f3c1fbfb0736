"""A disk that is full while preparing or saving: exit code 4, one message, earlier results intact."""

import resource
import shutil
import subprocess

from support import (MAX_MASKED, MAX_SEQ_TOKENS, EndToEnd, Running, bertha, checkpoints, main, records)


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

    def test_preparing(self):
        disk = self.small_disk(100)
        output = disk / "prepared" if disk else self.new_folder("prepared")
        done = bertha("data", "prepare", "--text", self.data.text, "--vocab", self.data.vocab,
                      "--output", output, "--max-seq-tokens", MAX_SEQ_TOKENS,
                      "--max-masked-per-seq", MAX_MASKED, "--duplication", 2,
                      preexec_fn=None if disk else limit_file_size(50_000))
        self.assert_failure(done, 4, output)
        self.assertFalse((output / "manifest.json").exists())
        self.assertEqual(list(output.glob("part_*")), [])

    def test_a_vocabulary(self):
        output = self.scratch / "small_vocab.txt"
        output.write_text("from before\n")
        done = bertha("data", "vocab", "--text", self.data.text, "--size", 320, "--output", output,
                      preexec_fn=limit_file_size(100))
        self.assert_failure(done, 4, output)
        self.assertEqual(output.read_text(), "from before\n")

    def test_saving(self):
        """The second checkpoint, for which no space is left."""
        disk = self.small_disk(900)  # one checkpoint has 500 kB
        folder = disk / "run" if disk else self.new_folder()
        words = self.data.config(log__run_dir=folder, train__max_steps=10**6,
                                 train__log_every_steps=10**5, checkpoint__every_steps=100,
                                 checkpoint__keep=9, eval__every_samples=10**9)
        with Running("train", *words, ranks=2) as run:
            run.wait_for(lambda: checkpoints(folder), "a checkpoint")
            for process in run.rank_processes() if disk is None else ():
                resource.prlimit(process, resource.RLIMIT_FSIZE, (60_000, 60_000))
            done = run.wait()
        self.assert_failure(done, 4, folder / "ckpt")
        kept = checkpoints(folder)
        self.assertGreaterEqual(len(kept), 1)
        for name in kept:
            self.assertEqual(bertha("checkpoint", "show", folder / "ckpt" / name).code, 0)
        saved = int(kept[-1][len("step_"):])
        again = self.new_folder()  # with space the same run goes on
        shutil.copytree(folder, again)
        self.train(again, ranks=2, train__max_steps=saved + 2)
        self.assertEqual(records(again, "run")[-1]["first_step"], saved)


if __name__ == "__main__":
    main()
