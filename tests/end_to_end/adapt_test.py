"""A Hugging Face folder and own text in, a better folder out; other folders are named in a sentence."""

import json
import pathlib
import re
import shutil
import struct

from support import BERTHA, LAUNCH, EndToEnd, bertha, main, make_text, must, run
from safetensors_file import read_tensors, write_tensors

FOLDERS = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tokenizer_folders"
TEXT_SIDE = {"tokenizer.json", "tokenizer_config.json"}


class Adapt(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # A cased model of 16 wide as transformers would save it: weights by this program, the text side by
        # transformers.
        tokenizer = json.loads((FOLDERS / "cased" / "tokenizer.json").read_text())
        # More rows than entries, as in padded tables.
        cls.rows = 16 + max(token["id"] for token in tokenizer["added_tokens"])
        run_folder = cls.new_folder("random")
        sets = {"model.layers": 2, "model.hidden": 16, "model.heads": 2, "model.feed_forward": 32,
                "model.vocab_size": cls.rows, "model.max_positions": 64, "data.max_seq_tokens": 64,
                "data.max_masked_per_seq": 12, "data.synthetic": "true", "train.max_steps": 0,
                "model.gelu": "erf"}
        must("train", "--global-batch", 4, "--output", run_folder,
             *[word for key, value in sets.items() for word in ("--set", f"{key}={value}")])
        cls.model = cls.new_folder("tiny-cased")
        must("checkpoint", "export", run_folder, "--output", cls.model)
        (cls.model / "DONE").unlink()
        for name in TEXT_SIDE:
            shutil.copy(FOLDERS / "cased" / name, cls.model)
        cls.change_json(cls.model / "config.json", hidden_dropout_prob=0.2, id2label={"0": "kept"})
        cls.corpus = cls.new_folder("corpus")
        (cls.corpus / "nested").mkdir(parents=True)
        records = [json.dumps({"text": text}) for text in make_text(7, 60).split("\n\n") if text.strip()]
        (cls.corpus / "nested" / "notes.jsonl").write_text("\r\n".join(records) + "\r\n")

    @staticmethod
    def change_json(path, **fields):
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    def changed_model(self, name):
        folder = self.new_folder(name)
        shutil.copytree(self.model, folder)
        return folder

    def prepared(self, model):
        shards = self.new_folder("shards")
        must("data", "prepare", "--text", self.corpus, "--model", model, "--hold-out", 0.1, "--output", shards)
        return shards

    def test_three_commands(self):
        shards = self.prepared(self.model)
        output, exported = self.new_folder("adapted"), self.new_folder("exported")
        trained = must("train", "--model", self.model, "--data", shards, "--output", output, "--epochs", 1,
                       "--set", "train.global_batch_seqs=16")
        self.assertIn(f"{self.model.name}, ", trained.err)
        self.assertIn(f"bertha checkpoint export {output} --output my_bert", trained.out)
        settings = must("config", "show", "--model", self.model, "--data", shards).out
        for key, value in {"hidden": "16", "name": f'"{self.model.name}"', "gelu": '"erf"', "hidden_dropout": "0.2",
                           "max_epochs": "3", "division": '"open"'}.items():
            self.assertRegex(settings, rf"\n  {key}: {re.escape(value)} ")
        self.assertRegex(settings, r'\n  name: "adamw" ')
        self.assertRegex(must("eval", "--model", output, "--data", shards).out, r"perplexity +\d")
        must("eval", "--model", self.model, "--data", shards)
        must("checkpoint", "export", output, "--output", exported, "--dtype", "bf16")
        for name in TEXT_SIDE:
            self.assertEqual((exported / name).read_bytes(), (FOLDERS / "cased" / name).read_bytes())
        config = json.loads((exported / "config.json").read_text())
        self.assertEqual((config["hidden_dropout_prob"], config["id2label"], config["hidden_act"]),
                         (0.2, {"0": "kept"}, "gelu"))
        self.assertEqual({dtype for dtype, _, _ in read_tensors(exported / "model.safetensors").values()}, {"BF16"})
        must("train", "--model", output, "--data", shards, "--output", self.new_folder("again"), "--max-steps", 1)

    def test_the_guide_s_commands_work_in_order(self):
        place = self.new_folder("guide")
        place.mkdir()
        (place / "bert-base-cased").symlink_to(self.model)
        (place / "corpus").symlink_to(self.corpus)
        guide = (LAUNCH.parent / "configs" / "continue_pretraining.md").read_text()
        commands = re.findall(r"^    bertha (.*)$", guide, re.MULTILINE)
        self.assertEqual(len(commands), 6)
        for words in commands:
            must(*words.split(), cwd=place)
        self.assertTrue((place / "my-bert" / "model.safetensors").exists())

    def test_the_one_command_goes_on(self):
        output = self.new_folder("my-bert")
        words = [str(LAUNCH / "adapt"), str(self.model), str(self.corpus), "--output", str(output), "--max-steps", "2"]
        first = run(words, extra={"BERTHA": BERTHA})
        self.assertEqual(first.code, 0, first)
        self.assertEqual(len(re.findall(r"masked-token accuracy +0\.\d+", first.out)), 2, first)
        self.assertTrue((output / "tokenizer.json").exists())
        shutil.rmtree(output)
        again = run(words, extra={"BERTHA": BERTHA})
        self.assertEqual(again.code, 0, again)
        self.assertTrue((output / "model.safetensors").exists())
        self.assertIn("remove it, and for another run", run(words, extra={"BERTHA": BERTHA}).err)

    def test_the_one_command_knows_whose_option_is_whose(self):
        posts = self.new_folder("posts")
        posts.mkdir()
        texts = [text for text in make_text(8, 40).split("\n\n") if text.strip()]
        (posts / "posts.jsonl").write_text("\n".join(json.dumps({"body": text}) for text in texts))
        output = self.new_folder("of-posts")
        adapt = str(LAUNCH / "adapt")
        wrong = run([adapt, self.model, posts, "--output", output, "--batch-size", "4"], extra={"BERTHA": BERTHA})
        self.assertEqual(wrong.code, 2, wrong)
        self.assertIn("did you mean --global-batch?", wrong.err)
        self.assertFalse(pathlib.Path(f"{output}.work").exists())
        done = run([adapt, "--output", output, self.model, posts, "--hold-out", "0.2", "--max-steps", "1", "--field",
                    "body"], extra={"BERTHA": BERTHA})
        self.assertEqual(done.code, 0, done)
        found = json.loads((pathlib.Path(f"{output}.work") / "shards" / "manifest.json").read_text())
        self.assertEqual((found["options"]["field"], found["options"]["hold_out"]), ("body", "0.2"))
        for words, said in {(adapt, self.model, "--output", output): "at least one TEXT",
                            (adapt, self.model, posts): "--output DIR is missing"}.items():
            self.assertIn(said, run(list(words), extra={"BERTHA": BERTHA}).err)

    def test_a_sentence_head_that_nothing_trained_is_none(self):
        headless = self.changed_model("headless")
        tensors = read_tensors(headless / "model.safetensors")
        write_tensors(headless / "model.safetensors",
                      {name: tensor for name, tensor in tensors.items() if "seq_relationship" not in name})
        output, exported = self.new_folder("run-headless"), self.new_folder("headless-again")
        must("train", "--model", headless, "--data", self.prepared(headless), "--output", output, "--max-steps", 1)
        must("checkpoint", "export", output, "--output", exported)
        self.assertIn("cls.seq_relationship.weight", read_tensors(exported / "model.safetensors"))
        for model, segments in {exported: "one", output: "one", self.model: "pairs"}.items():
            shards = self.prepared(model)
            self.assertEqual(json.loads((shards / "manifest.json").read_text())["options"]["segments"], segments)
            shown = must("config", "show", "--plain", "--model", model, "--data", shards).out
            self.assertIn(f"nsp_weight: {0 if segments == 'one' else 1}", shown)

    def test_what_cannot_be_meant_is_refused(self):
        shards = self.prepared(self.model)
        train = ("train", "--model", self.model, "--data", shards)
        self.assert_failure(bertha(*train, "--data", self.corpus), 2, "--data needs one folder")
        self.assert_failure(bertha(*train, "--epochs", 0), 2, "the length of the run is unknown")
        self.assert_failure(bertha("data", "prepare", "--text", self.corpus, "--model", "bert-base-cased", "--output",
                                   self.new_folder("none")), 4, "hf download NAME")

    def test_weights_in_several_files_are_the_same_weights(self):
        split = self.changed_model("split")
        tensors = read_tensors(split / "model.safetensors")
        (split / "model.safetensors").unlink()
        names, places = sorted(tensors), {}
        for part, chosen in enumerate((names[::2], names[1::2])):
            file = f"model-{part + 1:05d}-of-00002.safetensors"
            write_tensors(split / file, {name: tensors[name] for name in chosen})
            places.update(dict.fromkeys(chosen, file))
        (split / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        joined = self.new_folder("joined")
        must("checkpoint", "export", split, "--output", joined)
        self.assertEqual(read_tensors(joined / "model.safetensors"), tensors)

    def test_heads_of_other_kinds_are_left_out_with_a_warning(self):
        other = self.changed_model("other-heads")
        tensors = read_tensors(other / "model.safetensors")
        tensors["cls.species.weight"] = ("F32", [3, 16], bytes(192))
        write_tensors(other / "model.safetensors", tensors)
        done = must("checkpoint", "export", other, "--output", self.new_folder("without"))
        self.assertIn("left out because this model has no such heads: cls.species.weight", done.err)

    def test_what_does_not_fit_is_named_before_anything_is_allocated(self):
        shards = self.prepared(self.model)
        roberta = self.changed_model("roberta")
        self.change_json(roberta / "config.json", model_type="roberta")
        relative = self.changed_model("relative")
        self.change_json(relative / "config.json", position_embedding_type="relative_key")
        pickled = self.changed_model("pickled")
        (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
        shapeless = self.changed_model("shapeless")
        (shapeless / "config.json").unlink()
        wide = self.changed_model("wide")
        self.change_json(wide / "config.json", hidden_size=65536, num_attention_heads=1024)
        for folder, said in {roberta: "states a model of type roberta, want bert",
                             relative: "position_embedding_type is relative_key",
                             shapeless: "has no config.json, which states the model's shape",
                             pickled: "convert it once with: python3 -c",
                             wide: "is a checkpoint of another model"}.items():
            for words in (["train"], ["config", "check"], ["plan"]):
                done = bertha(*words, "--model", folder, "--data", shards)
                self.assertEqual(done.code, 4, done)
                self.assertIn(said, done.out + done.err)

    def test_a_key_of_another_shape_is_named_with_its_place(self):
        done = bertha("config", "check", "--model", self.model, "--set", "model.hidden=32")
        self.assertEqual(done.code, 4, done)
        self.assertIn("model.hidden is 32 by --set model.hidden=32, and 16 there", done.err)

    def test_names_of_other_programs(self):
        for words, said in {("--batch-size", "3"): "did you mean --global-batch?",
                            ("--learning-rate", "3"): "did you mean --lr?",
                            ("--weight-decay", "3"): "see bertha train --help",
                            ("--set", "optimizer.lr=1"): "did you mean optimizer.base_learning_rate?",
                            ("--set", "train.epochs=1"): "did you mean train.max_epochs?"}.items():
            self.assertIn(said, bertha("train", *words).err)

    def test_the_mean_of_checkpoints(self):
        mean = self.new_folder("mean")
        shifted = self.changed_model("shifted")
        tensors = read_tensors(shifted / "model.safetensors")
        name = "cls.predictions.bias"
        tensors[name] = ("F32", tensors[name][1], struct.pack(f"<{self.rows}f", *[2.0] * self.rows))
        write_tensors(shifted / "model.safetensors", tensors)
        must("checkpoint", "average", self.model, shifted, "--output", mean)
        found = read_tensors(mean / "model.safetensors")
        self.assertEqual(struct.unpack(f"<{self.rows}f", found[name][2]), (1.0,) * self.rows)
        self.assertEqual(found["bert.pooler.dense.weight"], tensors["bert.pooler.dense.weight"])


if __name__ == "__main__":
    main()
