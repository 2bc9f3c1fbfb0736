"""Mistakes on the command line and in configurations: exit code 2 (5 for a wrong launch), one message."""

import shutil

from support import EndToEnd, bertha, main, must, tree


class BadCommand(EndToEnd):
    def check(self, arguments, *texts, code=2, ranks=0, extra=None):
        return self.assert_failure(bertha(*arguments, ranks=ranks, extra=extra), code, *texts)

    def check_train(self, *texts, ranks=0, **changes):
        folder = self.new_folder()
        self.check(["train", *self.data.config(log__run_dir=folder, **changes)], *texts,
                   ranks=ranks)
        self.assertFalse(folder.exists(), "nothing is started")

    def test_unknown_options(self):
        self.check(["train", "--max-step", 3], "did you mean --max-steps?", ranks=2)

    def test_options_without_or_with_wrong_values(self):
        self.check(["train", "--max-steps"], "--max-steps")
        self.check(["data", "prepare", "--vocab", "v", "--output", "o"], "--text")
        self.check(["config", "show", "--doc", "--json", "d.json"], "--doc", "--json")
        self.check(["config", "diff", "a.yaml"], "config diff")
        self.check(["bench", "loader", "--seconds", "1e300"], "--seconds")

    def test_no_output_replaces_an_input(self):
        shards = self.new_folder("shards")
        shutil.copytree(self.data.train, shards)
        before = tree(shards)
        for words in (["data", "vocab", "--text", shards / "manifest.json", "-o", shards / "manifest.json"],
                      ["data", "verify", shards, "--json", shards / "manifest.json"],
                      ["data", "stats", shards / ".." / shards.name, "--json", shards / "manifest.json"]):
            self.check(words, "manifest.json is", "would be replaced", "choose another file")
        self.assertEqual(tree(shards), before)
        for _ in range(2):  # a report of an earlier call may be replaced
            must("data", "stats", shards, "--json", shards / "stats.json")

    def test_a_vocabulary_that_cannot_be_written_is_not_trained(self):
        self.check(["data", "vocab", "--text", self.data.text, "-o", self.scratch / "none" / "v.txt"],
                   "cannot create the file", code=4)
        self.assertFalse((self.scratch / "none").exists())

    def test_what_is_quoted_has_a_limit(self):
        long = "x" * 50_000
        for words in (["train", "--set", f"train.seed={long}"], ["train", f"--{long}"], [long],
                      ["plan", "--config", "configs/quickstart.yaml", "--gpu-memory", long],
                      ["data", "prepare", "--text", "t", "--vocab", "v", "-o", "o", "--layout", long],
                      ["data", "prepare", "--text", "t", "--vocab", "v", "-o", "o", "--seed", long]):
            done = self.check(words)
            self.assertLess(len(done.err), 1200, words)

    def test_the_limits_of_the_data_are_compared(self):
        said = "sequences of up to 32 tokens, but data.max_seq_tokens is 16; set data.max_seq_tokens to 32"
        self.check(["train", *self.data.config(log__run_dir=self.new_folder(), data__max_seq_tokens=16)], said)
        self.assertIn(said, bertha("plan", *self.data.config(data__max_seq_tokens=16)).out)

    def test_the_most_masked_tokens_fit_the_sequence_unless_given(self):
        words = ["data", "prepare", "--text", self.data.text, "--vocab", self.data.vocab,
                 "--max-seq-tokens", 24, "-o"]
        must(*words, self.new_folder("short"))
        self.check([*words, self.new_folder("short"), "--max-masked-per-seq", 25],
                   "--max-masked-per-seq 25, want 1 to 24")

    def test_a_key_that_does_not_exist(self):
        self.check_train("model.head", "unknown key", "did you mean model.heads?", ranks=2,
                         model__head=2)

    def test_impossible_shapes(self):
        self.check_train("model.heads = 5", "model.hidden = 32", "divisor", ranks=2,
                         model__heads=5)

    def test_a_batch_that_does_not_divide(self):
        self.check_train("train.global_batch_seqs = 13", "2 ranks", "choose 14",
                         ranks=2, train__global_batch_seqs=13)
        self.check_train("train.global_batch_seqs = 12", "3 ranks", "train.accumulation_steps = 5",
                         ranks=3, train__accumulation_steps=5)

    def test_all_mistakes_at_once_with_their_lines(self):
        path = self.scratch / "typos.yaml"
        path.write_text("model:\n  layer: 2\n  heads: five\ntrain:\n  seed: 1\n  max_stepz: 3\n")
        for arguments in (["config", "check", "--config", path], ["train", "--config", path]):
            self.check(arguments, f"{path}:2:3", "did you mean model.layers?", f"{path}:3:",
                       "five", f"{path}:6:3", "did you mean train.max_steps?")

    def test_files_that_are_no_yaml(self):
        self.check(["train", "--config", "/dev/null"], "/dev/null: is a device or a pipe")
        path = self.scratch / "broken.yaml"
        path.write_text("model: {layers: 2\ntrain: [\n")
        self.check(["train", "--config", path], path)

    def test_a_launch_without_the_launcher(self):
        folder = self.new_folder()
        self.check(["train", *self.data.config(log__run_dir=folder)], "SLURM_NTASKS=8, but MPI found 1 rank",
                   "srun --mpi=pmix", code=5, extra={"SLURM_NTASKS": "8"})
        self.check(["eval", "--checkpoint", folder, *self.data.config()], "SLURM_NTASKS=8",
                   code=5, extra={"SLURM_NTASKS": "8"})
        self.assertFalse(folder.exists())

    def test_several_processes_of_a_command_for_one(self):
        output, vocab = self.new_folder("dump"), self.scratch / "vocab_of_two"
        for arguments in (["data", "dump-batches", *self.data.config(), "--output", output],
                          ["data", "vocab", "--text", self.data.eval_text, "--size", 128,
                           "--output", vocab], ["plot", output, "--output", output]):
            done = bertha(*arguments, ranks=2)
            self.assertEqual(done.code, 5, done)
            self.assertIn("OMPI_COMM_WORLD_SIZE=2, want one process", done.err)
        self.assertFalse(output.exists() or vocab.exists())

    def test_a_gpu_that_is_not_there(self):
        folder = self.new_folder()
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        self.check(["train", *self.data.config(log__run_dir=folder, train__backend="cuda")],
                   "CUDA", "train.backend", code=5, extra=hidden)

    def test_a_run_folder_that_cannot_be_made(self):
        file = self.scratch / "a_file"
        file.write_text("mine\n")
        done = bertha("train", *self.data.config(log__run_dir=file / "run"), ranks=2)
        self.assert_failure(done, 4, file / "run", "log.run_dir")
        self.assertEqual(file.read_text(), "mine\n")

    def test_checkpoints_and_data_that_are_not_there(self):
        for arguments in (["checkpoint", "show", "/nowhere"], ["data", "verify", "/nowhere"],
                          ["data", "stats", "/nowhere"]):
            self.check(arguments, "bertha: error: /nowhere: ", code=4)

    def test_commands_of_earlier_versions_say_what_serves_instead(self):
        for command, instead in (("log", "use bertha check and bertha plot"),
                                 ("encode", "use transformers on the folder that bertha checkpoint export"),
                                 ("replay", "use a run from the last checkpoint with train.precision fp32"),
                                 ("completion", "use bertha COMMAND --help"), ("man", "use bertha --help")):
            self.check([command, "check", "--json", "-"],
                       f"{command}: retired command; {instead}")

    def test_commands_of_tools_that_are_not_installed(self):
        empty = self.new_folder("empty")
        empty.mkdir()
        for command in ("check", "submit", "plot", "compare", "watch", "diagnose", "timeline", "export",
                        "gains", "scale"):
            done = bertha(command, "--help", cwd=empty, extra={"PATH": str(empty)})
            self.assert_failure(done, 5, f"{command} needs bertha-tools, which is not installed",
                                "pip install harness/tools")


if __name__ == "__main__":
    main()
