"""A vocabulary that is no multiple of 8, with its padding in the softmax: what the padding learns is
part of the model."""

import json
import re
import struct

import support
from support import EndToEnd, bertha, main, must, records
from safetensors_file import read_tensors, tensor_bytes, write_tensors

support.VOCAB_SIZE = 317  # padded to 320

WORDS = "bertha.padding.word_embeddings.weight"
BIAS = "bertha.padding.predictions.bias"


class PaddedVocabulary(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.new_folder("trained")
        cls().train(cls.run_folder, train__max_steps=40, checkpoint__every_steps=20,
                    optimizer__schedule_steps=60, optimizer__base_learning_rate=0.02,
                    model__padded_vocab_in_softmax=True)
        cls.checkpoint = cls.run_folder / "ckpt" / "step_00000040"

    def evaluate(self, checkpoint, padded=True):
        done = must("eval", "--checkpoint", checkpoint,
                    *self.data.config(model__padded_vocab_in_softmax=padded))
        found = [re.search(rf"^masked-token {name} +([0-9.]+)", done.out, re.M)[1]
                 for name in ("accuracy", "loss")]
        return found, done.err

    def without_padding(self):
        """The checkpoint as it was saved before padding rows were."""
        old = self.new_folder("old")
        old.mkdir()
        for name in ("config.json", "state.json", "vocab.txt"):
            (old / name).write_bytes((self.checkpoint / name).read_bytes())
        tensors = read_tensors(self.checkpoint / "model.safetensors")
        for name in (WORDS, BIAS):
            del tensors[name]
        write_tensors(old / "model.safetensors", tensors)
        return old

    def test_eval_of_a_checkpoint_is_the_evaluation_of_its_run(self):
        trained = records(self.run_folder, "eval")[-1]
        self.assertEqual(trained["step"], 40)
        want = [f"{trained['mlm_accuracy']:.4f}", f"{trained['mlm_loss']:.4f}"]
        found, said = self.evaluate(self.checkpoint)
        self.assertEqual(found, want)
        self.assertNotIn("padding", said)
        # The rows count: without them it is another model, and that is said.
        for checkpoint, padded, text in ((self.without_padding(), True, "without the padding rows"),
                                         (self.checkpoint, False, "they are left out")):
            found, said = self.evaluate(checkpoint, padded)
            self.assertNotEqual(found[1], want[1])
            self.assertIn(text, said)

    def test_a_continued_run_ends_with_the_same_bytes(self):
        folder = self.new_folder()
        self.train(folder, train__max_steps=40, optimizer__schedule_steps=60,
                   optimizer__base_learning_rate=0.02, model__padded_vocab_in_softmax=True,
                   checkpoint__resume=self.run_folder / "ckpt" / "step_00000020")
        found = (folder / "ckpt" / "step_00000040" / "model.safetensors").read_bytes()
        self.assertEqual(found, (self.checkpoint / "model.safetensors").read_bytes())
        padding = tensor_bytes(self.checkpoint / "model.safetensors")[BIAS]
        self.assertNotIn(0.0, struct.unpack("<3f", padding))

    def test_an_export_has_the_tensors_of_the_vocabulary_and_says_so(self):
        exported = self.new_folder("exported")
        done = must("checkpoint", "export", self.run_folder, "--output", exported)
        self.assertIn("they are left out", done.err)
        weights = tensor_bytes(exported / "model.safetensors")
        self.assertFalse([name for name in weights if name.startswith("bertha.")])
        self.assertEqual(len(weights["cls.predictions.bias"]), 4 * 317)
        self.assertEqual(json.loads((exported / "config.json").read_text())["vocab_size"], 317)
        self.assertEqual(bertha("checkpoint", "verify", self.run_folder).code, 0)


class MoreRowsThanEntries(EndToEnd):
    """The rows of other programs' models go up to a multiple of 64 or 128."""

    def test_every_command_takes_such_a_model(self):
        rows = support.VOCAB_SIZE + 11
        folder = self.new_folder("wide")
        config = dict(model__vocab_size=rows, train__max_steps=2)
        planned = must("plan", *self.data.config(**config))
        self.assertIn("no token uses the other rows", planned.out + planned.err)
        self.train(folder, **config)
        must("eval", "--checkpoint", folder, *self.data.config(**config))
        exported = self.new_folder("exported")
        must("checkpoint", "export", folder, "--output", exported)
        self.assertEqual(json.loads((exported / "config.json").read_text())["vocab_size"], rows)
        self.assertEqual((exported / "vocab.txt").read_bytes(), self.data.vocab.read_bytes())
        config["checkpoint__init"] = exported  # whose rows these are
        planned = must("plan", *self.data.config(**config))
        self.assertNotIn("no token uses the other rows", planned.out + planned.err)
        self.train(self.new_folder(), **config)
        shown = must("fill", "--checkpoint", exported, "--top", rows, "the [MASK]").out
        self.assertEqual(len(shown.splitlines()), 1 + rows)
        self.assertIn(f"(row {rows - 1})", shown)
        empty = self.scratch / "empty.txt"
        empty.write_text("")
        config["data__vocab"] = empty
        words = self.data.config(log__run_dir=self.new_folder(), **config)
        self.assert_failure(bertha("train", *words), 4, empty, "is empty")
        # The other way round ids would be out of range.
        with open(exported / "vocab.txt", "a") as vocab:
            vocab.write("".join(f"more{i}\n" for i in range(12)))
        for words in (("fill", "--checkpoint", exported, "the [MASK]"),
                      ("checkpoint", "export", exported, "--output", self.new_folder())):
            self.assert_failure(bertha(*words), 4, exported, rows + 1, rows)


if __name__ == "__main__":
    main()
