"""What untrusted files can do: be read. The table of launch/strangers.md has a row for each class."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import stat

from support import MOST_FAILURE_SECONDS, EndToEnd, Running, bertha, main, must, tree

ESCAPES = "\x1b[31mred\x1b]0;title\x07 \x9b31m"
MARK = "was_here"  # made by whatever gets to a shell


def words_of(path, *more):
    return [str(word) for word in (*path, *more)]


class Config(EndToEnd):
    needs_data = False

    def check(self, text, *texts):
        """One sentence that refuses the configuration, soon; nothing was run."""
        folder = self.new_folder("config")
        folder.mkdir()
        path = folder / "config.yaml"
        path.write_text(text)
        self.assert_failure(bertha("config", "check", "--config", path, cwd=folder), 2, *texts)
        self.assertEqual([p.name for p in folder.iterdir()], ["config.yaml"])

    def test_tags_make_nothing(self):
        for tag in ("!!python/object/apply:os.system", "!exec", "!!map", "!include"):
            self.check(f"train:\n  seed: {tag} [touch {MARK}]\n", "train.seed")
            self.check(f"train: {tag} 'touch {MARK}'\n", "train")

    def test_aliases_do_not_grow(self):
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
        for key in ("include", "train", "model"):
            self.check("\n".join([*lines, f"{key}: *a29"]), "a0")
        self.check("train: &t\n  seed: 1\n  more: *t\n", "train.more")

    def test_includes_are_files_and_few(self):
        pipe = self.scratch / "pipe"
        os.mkfifo(pipe)
        for path in ("/dev/zero", "/proc/self/mem", "/proc/self/fd/0", "..", "~root/x", pipe,
                     f"'|touch {MARK}'", f"'$(touch {MARK})'", "http://localhost/x.yaml"):
            self.check(f"include: {path}\n", "include: ")

    def test_includes_do_not_grow(self):
        folder = self.new_folder("includes")
        folder.mkdir()
        for n in range(12):
            (folder / f"{n}.yaml").write_text(f"include: [{', '.join([f'{n + 1}.yaml'] * 8)}]\n")
        (folder / "12.yaml").write_text("train: {seed: 1}\n")
        self.check(f"include: {folder}/0.yaml\n", "more than 256 files")


class Files(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder, cls.good = cls.train_once()

    def commands(self, checkpoint):
        return [["checkpoint", "show", checkpoint], ["checkpoint", "verify", checkpoint],
                ["eval", "--checkpoint", checkpoint, *self.data.config()],
                ["train", *self.data.config(log__run_dir=self.new_folder(),
                                            checkpoint__resume=checkpoint)]]

    def end_soon(self, arguments, code=4):
        done = bertha(*arguments)
        self.assertIn(done.code, (0, code), done)
        self.assertLess(done.seconds, MOST_FAILURE_SECONDS + self.start_seconds, done)
        return done

    def test_a_pipe_waits_for_nobody(self):
        for name in sorted(path.name for path in self.good.iterdir()):
            bad = self.new_folder("pipes")
            shutil.copytree(self.good, bad)
            (bad / name).unlink()
            os.mkfifo(bad / name)
            for arguments in self.commands(bad):
                with self.subTest(name, command=arguments[:2]):
                    self.end_soon(arguments)
        shards = self.new_folder("data")
        shutil.copytree(self.data.train, shards)
        for name in ("manifest.json", sorted(p.name for p in shards.glob("*.hdf5"))[0]):
            (shards / name).unlink()
            os.mkfifo(shards / name)
            for command in ("verify", "stats"):
                self.assertEqual(self.end_soon(["data", command, shards]).code, 4)
            for command in ("convert", "pack"):
                output = self.new_folder()
                self.assertEqual(self.end_soon(["data", command, shards, "-o", output]).code, 4)
        pipe = self.scratch / "pipe"
        os.mkfifo(pipe)
        self.end_soon(["fill", "--checkpoint", self.good, "--vocab", pipe, "a [MASK]"])

    def test_json_that_is_nested_too_deep(self):
        def nested(before):
            """More than any stack has room for."""
            return before + "[" * 200_000 + "]" * 200_000 + "}"

        def check(arguments, file):
            self.assert_failure(bertha(*arguments), 4, file, "nested deeper than 64 levels")

        data = self.new_folder("data")
        shutil.copytree(self.data.train, data)
        manifest = data / "manifest.json"
        manifest.write_text(nested('{"format_version":'))
        check(["data", "verify", data], manifest)
        check(["train", *self.data.config(log__run_dir=self.new_folder(), data__train=data)], manifest)
        weights = self.new_folder("weights")
        weights.mkdir()
        evaluate = ["eval", "--checkpoint", weights, *self.data.config()]
        (weights / "config.json").write_text(nested('{"model_type":'))
        shutil.copy(self.good / "model.safetensors", weights)
        check(evaluate, weights / "config.json")
        header = nested('{"tensor":').encode()
        (weights / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        (weights / "config.json").unlink()
        check(evaluate, weights / "model.safetensors")

    def test_names_inside_files_stay_inside_their_folder(self):
        secret = self.scratch / "secret"
        secret.write_text("nobody's business\n")
        bad = self.new_folder("checkpoint")
        shutil.copytree(self.good, bad)
        with open(bad / "DONE", "a") as file:
            file.write("0123456789abcdef 18 ../secret\n")
        self.assert_failure(bertha("checkpoint", "verify", bad), 4, "../secret", "damaged")
        shards = self.new_folder("data")
        shutil.copytree(self.data.train, shards)
        outside = shutil.copy(sorted(shards.glob("*.hdf5"))[0], self.scratch)
        manifest = json.loads((shards / "manifest.json").read_text())
        name = manifest["shards"][0]["name"]
        (shards / name).unlink()
        manifest["shards"][0]["name"] = f"../{os.path.basename(outside)}"
        (shards / "manifest.json").write_text(json.dumps(manifest))
        done = bertha("data", "verify", shards)
        self.assertEqual(done.code, 4, done)
        self.assertIn("../", done.out + done.err)

    def test_no_text_steers_the_terminal(self):
        folder = self.scratch / ESCAPES / "run"
        shutil.copytree(self.run_folder, folder)
        saved = folder / "ckpt" / self.good.name
        hostile = self.new_folder("config").with_suffix(".yaml")
        hostile.write_text(f"log:\n  run_name: {json.dumps(ESCAPES)}\n")
        shards = self.scratch / ESCAPES / "data"
        shutil.copytree(self.data.train, shards)
        for arguments in (["checkpoint", "show", saved], ["checkpoint", "verify", saved],
                          ["checkpoint", "show", folder, "--json", "-"],
                          ["checkpoint", "export", saved, "-o", self.scratch / ESCAPES / "hf"],
                          ["data", "verify", shards], ["data", "stats", shards],
                          ["data", "convert", shards, "-o", self.scratch / ESCAPES / "o"],
                          ["eval", "--checkpoint", saved, *self.data.config()],
                          ["config", "show", "--config", hostile],
                          ["train", *self.data.config(log__run_dir=folder, train__max_steps=3)]):
            with self.subTest(arguments[:2]):
                done = bertha(*arguments)
                self.assertEqual(done.code, 0, done)
                self.assertEqual([c for c in done.out + done.err if c in "\x1b\x07\x7f\x9b"], [])
                if arguments[-1] == "-":
                    self.assertIn(ESCAPES, json.loads(done.out)["path"])


class Links(EndToEnd):
    def test_links_in_a_run_folder_are_not_written_through(self):
        whole = self.new_folder("whole")
        changes = {"train__max_steps": 2, "checkpoint__every_steps": 1}
        self.train(whole, **changes)
        names = [*tree(whole), "run.lock", f"logs/{socket.gethostname()}.log"]
        names = [name for name in names if not name.startswith(("ckpt", "tb"))]
        for name in names:
            for planted in (name, name + ".tmp"):
                with self.subTest(planted):
                    folder, victim = self.new_folder(), self.new_folder("victim")
                    (folder / planted).parent.mkdir(parents=True)
                    victim.write_text("mine\n")
                    os.symlink(victim, folder / planted)
                    done = bertha("train", *self.data.config(log__run_dir=folder, **changes))
                    self.assertEqual(victim.read_text(), "mine\n")
                    if done.code:
                        self.assert_failure(done, 4, folder / planted, "is a link")

    def test_a_part_of_a_run_folder_is_no_link(self):
        other = self.new_folder("other")
        self.train(other, train__max_steps=2, checkpoint__every_steps=1)
        before = tree(other)
        for part in ("ckpt", "tb", "logs"):  # mllog is set aside, as a link
            folder = self.new_folder()
            folder.mkdir()
            os.symlink(other / part, folder / part)
            done = bertha("train", *self.data.config(log__run_dir=folder, train__max_steps=3,
                                                     checkpoint__keep=1))
            self.assert_failure(done, 4, folder / part, "is a link")
        self.assertEqual(tree(other), before)

    def test_an_old_checkpoint_that_is_a_link_loses_only_the_link(self):
        other, folder = self.new_folder("other"), self.new_folder()
        self.train(other, train__max_steps=1)
        before = tree(other)
        self.train(folder, train__max_steps=2)
        places = ["step_00000001", "step_00000000.partial", "step_00000003.partial",
                  "step_00000002.replaced"]
        for place in places:
            os.symlink(other / "ckpt" / "step_00000001", folder / "ckpt" / place)
        self.train(folder, train__max_steps=4, checkpoint__every_steps=1, checkpoint__keep=1)
        self.assertEqual(sorted(p.name for p in (folder / "ckpt").iterdir()), ["step_00000004"])
        self.assertEqual(tree(other), before)

    def test_work_of_another_folder_is_not_removed(self):
        other, output = self.new_folder("other"), self.new_folder("output")
        (other / "work").mkdir(parents=True)
        (other / "work" / "made_by_bertha.txt").write_text("")
        (other / "work" / "thesis").write_text("mine\n")
        output.mkdir()
        os.symlink(other / "work", output / "work")
        done = bertha("data", "convert", self.data.train, "-o", output)
        self.assert_failure(done, 4, output / "work", "did not create this folder")
        self.assertEqual((other / "work" / "thesis").read_text(), "mine\n")


class Permissions(EndToEnd):
    def test_nobody_else_can_write_what_is_written(self):
        folder = self.new_folder("outputs")
        folder.mkdir(mode=0o755)
        config = folder / "config.yaml"
        config.write_text("train: {seed: 3}\n")
        config.chmod(0o644)
        data, temporary = self.data, self.new_folder("temporary")
        temporary.mkdir(mode=0o700)
        extra = {"TMPDIR": str(temporary)}

        def free():
            os.umask(0)

        changes = {"train__max_steps": 2, "train__target_accuracy": 0, "checkpoint__keep_best": True}
        saved = folder / "run" / "ckpt" / "step_00000002"
        for ranks, arguments in (
                (2, ["train", *data.config(log__run_dir=folder / "run", **changes)]),
                (0, ["data", "vocab", "--text", data.text, "--size", 300, "-o", folder / "vocab"]),
                (0, ["data", "prepare", "--text", data.text, "--vocab", data.vocab, "-o",
                     folder / "prepared"]),
                (0, ["data", "convert", data.train, "-o", folder / "converted"]),
                (0, ["data", "pack", data.train, "-o", folder / "packed"]),
                (0, ["data", "dump-batches", "--steps", 1, "-o", folder / "dumped",
                     *data.config()]),
                (0, ["checkpoint", "export", saved, "-o", folder / "exported"])):
            must(*arguments, ranks=ranks, extra=extra, preexec_fn=free)
        with Running(config, *data.config(**changes), script="run_and_time.sh", preexec_fn=free,
                     extra={**extra, "NEXP": "1", "DOCTOR": "0", "LOGDIR": str(folder / "timed")}
                     ) as timed:
            self.assertIn(timed.wait().code, (0, 3, 8))
        self.assertTrue((folder / "timed" / "run_0" / "exit_code").exists())
        loose = [str(path) for path in folder.rglob("*") if not path.is_symlink()
                 and path.stat().st_mode & stat.S_IWOTH]
        self.assertEqual(loose, [])


class Writing(EndToEnd):
    def test_nothing_is_written_but_the_run_folder_and_latest(self):
        place = self.new_folder("place")
        folders = {name: place / name for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "cwd")}
        for folder in folders.values():
            folder.mkdir(parents=True)
        extra = {name: str(folder) for name, folder in folders.items() if name != "cwd"}
        extra["CUDA_CACHE_PATH"] = str(self.new_folder("cuda"))
        before = self.listing(self.data.folder)
        run = folders["cwd"] / "runs" / "bert"
        for ranks, words in ((2, ["train", *self.data.config(train__max_steps=2)]),
                             (2, ["eval", "--checkpoint", run, *self.data.config()]),
                             (0, ["checkpoint", "verify", run / "ckpt" / "step_00000002"]),
                             (0, ["data", "verify", self.data.train])):
            must(*words, ranks=ranks, extra=extra, cwd=folders["cwd"])
            found = self.listing(place)
            written = [path for path in found if path.startswith("cwd/runs/bert/")]
            self.assertEqual(sorted(set(found) - set(written)), [
                "HOME", "TMPDIR", "XDG_CACHE_HOME", "cwd", "cwd/runs", "cwd/runs/bert", "cwd/runs/latest"])
            if words[0] == "train":
                trained = found
            self.assertEqual(found, trained, words)
        self.assertEqual(self.listing(self.data.folder), before)

    def listing(self, folder):
        """What is below, each with its size and time; of folders the name alone."""
        return {str(path.relative_to(folder)): None if path.is_dir() else
                (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")}


class Network(EndToEnd):
    @staticmethod
    def sockets(process):
        links = set()
        for fd in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                links.add(os.readlink(f"/proc/{process}/fd/{fd}"))
        return {link for link in links if link.startswith("socket:")}

    def listens_at(self, process):
        """The addresses at which a process waits for connections, in the form of /proc/net."""
        sockets = self.sockets(process)
        lines = [line.split() for table in ("tcp", "tcp6")
                 for line in pathlib.Path("/proc/net", table).read_text().splitlines()]
        return [line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets]

    def test_ranks_that_are_all_on_this_machine_listen_on_no_network(self):
        folder = self.new_folder()
        config = folder.with_suffix(".yaml")
        config.write_text("train: {seed: 3}\n")
        words = self.data.config(log__run_dir=folder, train__max_steps=10**6, eval__every_samples=10**9)
        with Running("--ranks", 2, config, *words, script="run_local.sh") as job:
            job.wait_for((folder / "metrics.jsonl").exists, "the log")
            found = [address for process in job.rank_processes() for address in self.listens_at(process)]
        self.assertEqual([address for address in found if not address.startswith("0100007F:")], [])

    def test_a_process_alone_has_no_socket_and_starts_no_other(self):
        folder, output = self.new_folder(), self.new_folder()
        for arguments, sign in (
                (["train", *self.data.config(log__run_dir=folder, train__max_steps=10**7)],
                 folder / "metrics.jsonl"),
                (["data", "prepare", "--text", self.data.text, "--vocab", self.data.vocab, "-o", output,
                  "--duplication", 500], output / "work")):
            with Running(*arguments) as alone:
                alone.wait_for(sign.exists, sign)
                process, = alone.rank_processes()
                self.assertEqual(self.sockets(process), set())
                with open(f"/proc/{process}/task/{process}/children") as children:
                    self.assertEqual(children.read().split(), [])


if __name__ == "__main__":
    main()
