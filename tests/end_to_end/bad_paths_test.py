"""Paths that the system refuses, in every option of every command: 4 (2 for a config), one sentence."""

import os
import shutil
import stat

from support import (MAX_MASKED, MAX_SEQ_TOKENS, EndToEnd, Running, bertha, command, main, must,
                     run)


class BadPaths(EndToEnd):
    """A name that is too long, links in a circle, a file on the way, and a file no disk can read.
    They fail for every user, as a missing permission does for all but root."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        _, cls.good = cls.train_once()
        loop = cls.scratch / "loop"
        os.symlink(loop, loop)
        file = cls.scratch / "file"
        file.write_text("a line\n")
        cls.paths = {"a long name": cls.scratch / ("n" * 300), "a circle of links": loop / "name",
                     "a file as a folder": file / "name"}
        cls.unreadable = "/proc/self/mem"  # opens, and fails at the first byte
        cls.lines = cls.scratch / "lines.txt"
        cls.lines.write_text("the old [MASK] .\n")

    def read_commands(self):
        """Name and command with a path that is read, by what it must end with."""
        data, config, good = self.data, self.data.config, self.good
        sizes = ["--max-seq-tokens", MAX_SEQ_TOKENS, "--max-masked-per-seq", MAX_MASKED]

        def train(key):
            return lambda path: ["train", *config(log__run_dir=self.new_folder(), **{key: path})]

        for key in ("data__train", "data__eval", "data__vocab", "checkpoint__init",
                    "checkpoint__resume"):
            yield f"train {key}", 4, train(key)
        yield "train --config", 2, lambda path: ["train", "--config", path]
        yield "eval --checkpoint", 4, lambda path: ["eval", "--checkpoint", path, *config()]
        yield "eval data.eval", 4, lambda path: ["eval", "--checkpoint", good,
                                                 *config(data__eval=path)]

        def fill(option):
            words = {"--checkpoint": good, "--text": self.lines, "--model-config":
                     good / "config.json", "--vocab": data.vocab}
            return lambda path: ["fill", *sum(([k, v] for k, v in {**words, option: path}.items()), [])]

        for option in ("--checkpoint", "--text", "--model-config", "--vocab"):
            yield f"fill {option}", 4, fill(option)
        yield "prepare --text", 4, lambda path: ["data", "prepare", "--text", path, "--vocab",
                                                 data.vocab, "-o", self.new_folder(), *sizes]
        yield "prepare --vocab", 4, lambda path: ["data", "prepare", "--text", data.text, "--vocab",
                                                  path, "-o", self.new_folder(), *sizes]
        yield "vocab --text", 4, lambda path: ["data", "vocab", "--text", path, "-o",
                                               self.new_folder()]
        for command in ("convert", "pack"):
            yield command, 4, lambda path, c=command: ["data", c, path, "-o", self.new_folder()]
        yield "convert --chk", 4, lambda path: ["data", "convert", data.train, "-o",
                                                self.new_folder(), "--chk", path]
        yield "verify --chk", 4, lambda path: ["data", "verify", data.train, "--chk", path]
        yield "stats", 4, lambda path: ["data", "stats", path]
        yield "show", 4, lambda path: ["checkpoint", "show", path]
        for command in ("convert", "export"):
            yield f"checkpoint {command}", 4, lambda path, c=command: [
                "checkpoint", c, path, "-o", self.new_folder()]
            for option in ("--model-config", "--vocab"):
                yield f"checkpoint {command} {option}", 4, lambda path, c=command, o=option: [
                    "checkpoint", c, good, "-o", self.new_folder(), o, path]
        yield "bench step --lengths", 4, lambda path: ["bench", "step", "--lengths", path,
                                                       *config()]
        yield "bench kernels --lengths", 4, lambda path: ["bench", "kernels", "--lengths", path,
                                                          *config()]

    def written_commands(self):
        data, config, good = self.data, self.data.config, self.good
        yield "train", lambda path: ["train", *config(log__run_dir=path, train__max_steps=1)]
        yield "prepare", lambda path: ["data", "prepare", "--text", data.text, "--vocab",
                                       data.vocab, "--output", path]
        yield "vocab", lambda path: ["data", "vocab", "--text", data.text, "--size", 300,
                                     "--output", path]
        for command in ("convert", "pack"):
            yield command, lambda path, c=command: ["data", c, data.train, "--output", path]
        yield "dump-batches", lambda path: ["data", "dump-batches", "--output", path, *config()]
        for command in ("convert", "export"):
            yield f"checkpoint {command}", lambda path, c=command: [
                "checkpoint", c, good, "--vocab", data.vocab, "--output", path]
        yield "bench step --json", lambda path: ["bench", "step", "--json", path, "--steps", 1,
                                                 *config()]

    def check(self, name, code, arguments, path):
        with self.subTest(f"{name}: {path}"):
            done = bertha(*arguments)
            self.assertEqual(done.code, code, f"{arguments}: {done}")
            self.assertTrue(str(path) in done.out + done.err, f"{arguments}: {done}")
            self.assertEqual(len(done.errors()), 1, done)
            self.assertNotIn("\x1b", done.err, done)
            for word in ("filesystem error", "basic_filebuf", "unexpected", ".cpp:"):
                self.assertNotIn(word, done.err, done)

    def test_every_path_that_is_read(self):
        for name, code, command in self.read_commands():
            for path in (*self.paths.values(), self.unreadable):
                self.check(name, code, command(path), path)

    def test_verify_of_a_path(self):
        for path in self.paths.values():
            self.check("verify", 4, ["data", "verify", path], path)
        done = bertha("data", "verify", self.unreadable)  # a shard with a finding
        self.assertEqual(done.code, 4, done)
        self.assertIn(self.unreadable, done.out)

    def test_escapes_in_a_path_reach_no_terminal(self):
        path = self.scratch / "\x1b[31mred\x1b]0;title\x07"
        done = bertha("data", "verify", path)
        self.assert_failure(done, 4, "\\x1b[31mred\\x1b]0;title\\x07")
        self.assertNotIn("\x1b", done.out + done.err)

    def test_every_path_that_is_written(self):
        for name, command in self.written_commands():
            for path in self.paths.values():
                self.check(name, 4, command(path), path)

    def test_devices_pipes_and_folders_are_not_replaced_by_files(self):
        pipe = self.new_folder("pipe")
        os.mkfifo(pipe)
        # Nobody may write in /dev: without the refusal root would lose the device.
        nobody = (lambda: os.setuid(65534)) if os.getuid() == 0 else None
        for path in (pipe, self.scratch, "/dev/null", "/dev/stdout"):
            in_dev = str(path).startswith("/dev/")
            try:
                done = bertha("config", "show", "--json", path, cwd="/",
                              preexec_fn=nobody if in_dev else None)
            except PermissionError:  # the program is in a folder of root alone
                continue
            self.assert_failure(done, 4, path, "is a device, a pipe or a folder")
        self.assertTrue(stat.S_ISFIFO(os.lstat(pipe).st_mode))

    def test_a_second_command_that_makes_data_in_a_folder_is_told_and_the_first_goes_on(self):
        for words in (["prepare", "--text", self.data.text, "--vocab", self.data.vocab,
                       "--duplication", 500], ["convert", self.data.train]):
            output = self.new_folder()
            with Running("data", "prepare", "--text", self.data.text, "--vocab", self.data.vocab,
                         "--duplication", 500, "--output", output) as first:
                first.wait_for((output / "work").exists, "its folder")
                done = bertha("data", *words, "--output", output)
                self.assert_failure(done, 5, output, "is writing data to this folder")
                self.assertEqual(first.wait().code, 0)
            must("data", "verify", output)

    def test_folders_that_differ_between_nodes(self):
        nodes = self.new_folder("nodes")
        for rank in range(2):  # each with a disk of its own
            shutil.copytree(self.data.train, nodes / str(rank) / "train")
        sorted((nodes / "1" / "train").glob("*.hdf5"))[0].unlink()
        shutil.copytree(self.data.train, nodes / "0" / "alone")
        in_its_folder = ["sh", "-c", 'cd "$OMPI_COMM_WORLD_RANK" && exec "$0" "$@"']

        def fails(arguments, *texts):
            words = command(arguments, 2, in_its_folder)
            self.assert_failure(run(words, cwd=nodes), 4, *texts)

        fails(["bench", "loader", "--data", "alone"], "alone: ", "rank 1 of 2")
        fails(["bench", "loader", "--data", "train"], "rank 1 sees 2 shards, but rank 0 3")
        unverified = {"log__run_dir": self.new_folder(), "data__verify_manifest": "false"}
        fails(["train", *self.data.config(data__train="train", **unverified)],
              "rank 1 sees 2 shards, but rank 0 3")
        fails(["train", *self.data.config(data__eval="train", **unverified)], "data.eval")

    def test_a_manifest_and_files_of_a_checkpoint_that_no_disk_can_read(self):
        shards = self.new_folder("data")
        shutil.copytree(self.data.train, shards)
        (shards / "manifest.json").unlink()
        os.symlink(self.unreadable, shards / "manifest.json")
        self.check("manifest", 4, ["data", "verify", shards], shards / "manifest.json")
        for name in ("DONE", "state.json", "model.safetensors", "config.json"):
            bad = self.new_folder("checkpoint")
            shutil.copytree(self.good, bad)
            (bad / name).unlink()
            os.symlink(self.unreadable, bad / name)
            self.check(name, 4, ["checkpoint", "show", bad], bad)


if __name__ == "__main__":
    main()
