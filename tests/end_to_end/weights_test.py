"""Weights come in from TensorFlow and Hugging Face, go out again, and are checked on the way."""

import json
import math
import pathlib
import re
import resource
import shutil
import struct
import zlib

from support import BERTHA, EndToEnd, bertha, checkpoints, flip, main, must, records, tree
from safetensors_file import change_tensors, tensor_bytes

MOST_BYTES = 2**31
IS_SANITIZED = any(name in pathlib.Path(BERTHA).read_bytes() for name in (b"__asan_", b"__tsan_"))


def limit_memory():
    """Runs in the child: what a file states is not allocated. Sanitizers reserve terabytes."""
    if not IS_SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


def official_value(name, count):
    """What make_official_fixtures.py set the weight with this name of Hugging Face to."""
    stem, kind = name.rsplit(".", 1)
    stem = stem.replace(".layer.", ".layer_").replace(".", "/")
    rows = None
    if stem == "cls/predictions" or stem == "cls/seq_relationship":
        official = f"{stem}/output_{'bias' if kind == 'bias' else 'weights'}"
    elif stem.endswith("_embeddings"):
        official = stem
    elif stem.endswith("LayerNorm"):
        official = f"{stem}/{'beta' if kind == 'bias' else 'gamma'}"
    else:
        official = f"{stem}/{'bias' if kind == 'bias' else 'kernel'}"
        if kind == "weight":  # [in, out], of which 24 is the width between
            rows = 24 if name.endswith("output.dense.weight") and count == 24 * 16 else 16
    start = zlib.crc32(official.encode())
    values = [((start + 7919 * i) % 2001 - 1000) / 1024 for i in range(count)]
    if rows:
        columns = count // rows
        values = [values[i * columns + j] for j in range(columns) for i in range(rows)]
    return struct.pack(f"<{count}f", *values)


class Weights(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.new_folder("first")
        cls().train(cls.run_folder, train__max_steps=6, model__gelu="erf")
        cls.good = cls.run_folder / "ckpt" / "step_00000006"
        # What lies beside the official checkpoints.
        shape = json.loads((GOLDEN / "bert_tiny.json").read_text())["shape"]
        cls.stated = cls.new_folder("official")
        cls.stated.mkdir()
        (cls.stated / "bert_config.json").write_text(json.dumps({**shape, "hidden_act": "gelu"}))
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words += [chr(ord("a") + i) for i in range(shape["vocab_size"] - len(words) - 6)]
        words += ["##a", "##b", "##c", "##d", "##e", "##f"]
        (cls.stated / "vocab.txt").write_text("\n".join(words) + "\n")
        cls.text = cls.stated / "lines.txt"
        cls.text.write_text("a b [MASK]\tc d\nea [MASK] b\n")

    def convert_official(self):
        output = self.new_folder("converted")
        done = must("checkpoint", "convert", GOLDEN / "tf" / "saver.ckpt-7", "--output", output,
                    "--model-config", self.stated / "bert_config.json",
                    "--vocab", self.stated / "vocab.txt")
        self.assertIn("its GELU means the tanh form", done.err)
        return output

    def fill(self, path, *more):
        """The whole vocabulary for each [MASK], in the model's order."""
        return must("fill", "--checkpoint", path, "--text", self.text, "--top", 37, *more).out

    def changed_export(self, change):
        """An export whose tensors have the bytes that change(name, bytes) returns."""
        output = self.new_folder("changed")
        must("checkpoint", "export", self.run_folder, "--output", output)
        (output / "DONE").unlink()
        change_tensors(output / "model.safetensors", change)
        return output

    def candidates(self, folder, *arguments):
        """Of each [MASK] of a text: words and probabilities, most probable first; and what was printed."""
        done = must("fill", "--checkpoint", folder, *arguments)
        rows = [line.split() for line in done.out.splitlines()[1:]]
        return [[(row[i], float(row[i + 1])) for row in rows] for i in range(0, len(rows[0]), 2)], done

    def test_a_checkpoint_of_the_official_model_keeps_every_weight_under_its_name(self):
        official = GOLDEN / "official" / "tf1"
        output = self.new_folder("of_the_official_model")
        must("checkpoint", "convert", official / "model.ckpt-28252", "--output", output,
             "--model-config", official / "bert_config.json")
        weights = tensor_bytes(output / "model.safetensors")
        self.assertEqual(len(weights), 46)
        for name, found in weights.items():
            self.assertEqual(found, official_value(name, len(found) // 4), name)

    def test_tensorflow_to_bertha_to_hugging_face(self):
        converted = self.convert_official()
        self.assertEqual(sorted(p.name for p in converted.iterdir()),
                         ["DONE", "config.json", "model.safetensors", "tokenizer_config.json",
                          "vocab.txt"])
        config = json.loads((converted / "config.json").read_text())
        self.assertEqual(config["hidden_act"], "gelu_new")  # Google's word gelu means this form
        self.assertEqual(config["num_attention_heads"], 2)
        weights = tensor_bytes(converted / "model.safetensors")
        golden = json.loads((GOLDEN / "bert_tiny.json").read_text())["parameters"]
        self.assertEqual(set(weights), set(golden))
        for name, tensor in golden.items():
            values = struct.pack(f"<{len(tensor['weight'])}f", *tensor["weight"])
            self.assertEqual(weights[name], values, name)
        found = must("checkpoint", "verify", converted)
        for text in ("DONE lists", "names and shapes", "all finite"):
            self.assertIn(text, found.out)
        exported = self.new_folder("exported")
        must("checkpoint", "export", converted, "--output", exported)
        self.assertEqual(tree(exported), tree(converted))

    def test_every_form_is_the_same_model(self):
        converted = self.convert_official()
        found = self.fill(converted)
        self.assertEqual(len(found.splitlines()), 2 * (1 + 37))
        beside = ("--model-config", self.stated / "bert_config.json",
                  "--vocab", self.stated / "vocab.txt")
        self.assertEqual(self.fill(GOLDEN / "tf" / "objects-1", *beside), found)
        bare = self.new_folder("bare")
        must("checkpoint", "export", converted, "--output", bare, "--encoder-only")
        config = json.loads((bare / "config.json").read_text())
        self.assertEqual(config["architectures"], ["BertModel"])
        encoder = {name.removeprefix("bert."): values for name, values in
                   tensor_bytes(converted / "model.safetensors").items() if not name.startswith("cls.")}
        self.assertIn("embeddings.word_embeddings.weight", encoder)
        self.assertEqual(tensor_bytes(bare / "model.safetensors"), encoder)
        # A cache of Hugging Face has the files elsewhere.
        snapshot = self.new_folder("snapshot")
        snapshot.mkdir()
        for file in converted.iterdir():
            (snapshot / file.name).symlink_to(file)
        self.assertEqual(self.fill(snapshot), found)
        # The other form of the GELU is another model.
        erf = self.new_folder("erf")
        done = must("checkpoint", "convert", converted, "--output", erf, "--gelu", "erf")
        self.assertIn("model.gelu is erf", done.err)
        self.assertNotEqual(self.fill(erf), found)

    def test_a_stated_size_is_refused_by_file_and_field_before_memory_is_taken(self):
        wrong = self.new_folder("wrong")
        must("checkpoint", "export", self.good, "--output", wrong)
        (wrong / "DONE").unlink()
        config = json.loads((wrong / "config.json").read_text())
        for field, value, text in (("num_hidden_layers", 10**9, "want 1 to 256"),
                                   ("hidden_size", 16384, "[32], want [16384]")):
            (wrong / "config.json").write_text(json.dumps({**config, field: value}))
            for words in (("export", wrong, "--output", self.new_folder("out")), ("verify", wrong)):
                done = bertha("checkpoint", *words, preexec_fn=limit_memory)
                self.assert_failure(done, 4, text)
                self.assertIn(f"{wrong}/config.json: {field}" if "want [" not in text
                              else "model.safetensors", done.err)

    def test_export_leaves_the_users_folders_alone(self):
        place = self.new_folder("place")
        for name in ("my.partial", "my.partial.2", "my.replaced"):
            (place / name).mkdir(parents=True)
            (place / name / "thesis").write_text("mine")
        must("checkpoint", "export", self.good, "--output", place / "my")
        for name in ("my.partial", "my.partial.2", "my.replaced"):
            self.assertEqual(tree(place / name), {"thesis": b"mine"})
        self.assertEqual(sorted(p.name for p in place.iterdir()),
                         ["my", "my.partial", "my.partial.2", "my.replaced"])
        must("checkpoint", "verify", place / "my")

    def test_fill_refuses_what_the_device_lacks_and_more_than_one_rank(self):
        words = ["fill", "--checkpoint", self.convert_official(), "--text", self.text]
        self.assert_failure(bertha(*words, "--precision", "bf16"), 2, "has no bf16")
        self.assert_failure(bertha(*words, ranks=2), 2, "runs on one rank, found 2")

    def test_fill_prints_the_softmax_of_the_logits(self):
        words = self.data.vocab.read_text().split()
        logits = [3 * math.sin(i * i) for i in range(len(words))]
        logits[7] = logits[300] = 5.0  # of equal ones the first in the vocabulary is the first

        def only_bias(name, values):
            if name.startswith("cls.predictions.transform.LayerNorm."):
                return bytes(len(values))
            return struct.pack(f"<{len(words)}f", *logits) if name == "cls.predictions.bias" else values

        (found,), done = self.candidates(self.changed_export(only_bias), "--top", len(words), "the [MASK]")
        best = sorted(range(len(words)), key=lambda i: (-logits[i], i))
        self.assertEqual([word for word, _ in found], [words[i] for i in best], done)
        whole = sum(map(math.exp, logits))
        for (_, probability), i in zip(found, best, strict=True):
            self.assertAlmostEqual(probability, math.exp(logits[i]) / whole, delta=5e-5 + 1e-6)

    def test_fill_prints_a_column_for_each_mask_in_their_order(self):
        def no_sublayers(name, values):
            return bytes(len(values)) if "output.dense" in name else values

        # Without attention and feed-forward, a token and its place alone decide.
        folder = self.changed_export(no_sublayers)
        both, _ = self.candidates(folder, "--top", 9, "[MASK] , river [MASK]")
        first, _ = self.candidates(folder, "--top", 9, "[MASK] , river stone")
        last, _ = self.candidates(folder, "--top", 9, "the , river [MASK]")
        self.assertNotEqual(first, last)
        self.assertEqual(both, first + last)

    def test_fill_prints_a_table_below_each_text_from_wherever_it_comes(self):
        texts = ["[MASK] , river [MASK]", "the old\tstone is [MASK] ."]
        lines = self.new_folder("fill").with_suffix(".txt")
        lines.write_text("\n".join(texts) + "\n")
        done = must("fill", "--checkpoint", self.run_folder, "--top", 4, *texts)
        shown = done.out.splitlines()
        self.assertEqual(len(shown), 10, done)
        self.assertEqual([shown[0], shown[5]], texts)
        for first in (1, 6):
            self.assertEqual(len({len(line) for line in shown[first:first + 4]}), 1, done)
        of_file = must("fill", "--checkpoint", self.run_folder, "--top", 4, "--text", lines)
        self.assertEqual(of_file.out, done.out)
        behind = must("fill", "--checkpoint", self.run_folder, "--top", 4, "--", *texts)
        self.assertEqual(behind.out, done.out)

    def test_fill_refuses_a_text_without_a_mask_and_weights_without_the_head(self):
        lines = self.new_folder("no_mask").with_suffix(".txt")
        lines.write_text("a [MASK]\na b\n")
        for words, code, text in ((("a [mask]",), 2, "text 1 has no [MASK]"),
                                  (("\udcff [MASK]",), 2, "text 1 is not UTF-8"),
                                  ((), 2, "found neither, want texts or --text FILE"),
                                  (("a [MASK]", "--text", lines), 2, "found both, want texts or"),
                                  (("--text", lines), 4, f"{lines}, line 2 has no [MASK]"),
                                  (("--text", BERTHA), 4, "line 1, byte "),
                                  (("a [MASK] " * 40,), 4, "text 1 has 82 tokens")):
            done = bertha("fill", "--checkpoint", self.good, *words)
            self.assert_failure(done, code, text)
            self.assertEqual(done.out, "")
        bare = self.new_folder("bare")
        must("checkpoint", "export", self.good, "--output", bare, "--encoder-only")
        done = bertha("fill", "--checkpoint", bare, "a [MASK]")
        self.assert_failure(done, 4, bare, "have no masked-token head")

    def test_an_exported_run_starts_another(self):
        exported = self.new_folder("exported")
        must("checkpoint", "export", self.run_folder, "--output", exported)
        self.assertEqual(json.loads((exported / "config.json").read_text())["hidden_act"], "gelu")
        self.assertEqual((exported / "vocab.txt").read_bytes(), self.data.vocab.read_bytes())
        folder = self.new_folder()
        self.train(folder, checkpoint__init=exported, model__gelu="erf", train__max_steps=1,
                   optimizer__base_learning_rate=1e-12)
        self.assertEqual(records(folder, "eval")[0]["mlm_accuracy"],
                         records(self.run_folder, "eval")[-1]["mlm_accuracy"])
        done = bertha("train", *self.data.config(log__run_dir=self.new_folder(),
                                                 checkpoint__init=exported, model__gelu="tanh"))
        self.assert_failure(done, 4, "model.gelu is tanh", "states erf", "init_differences")

    def test_missing_heads_are_started_afresh_unless_that_is_refused(self):
        bare = self.new_folder("bare")
        must("checkpoint", "export", self.good, "--output", bare, "--encoder-only")
        config = {"checkpoint__init": bare, "model__gelu": "erf", "train__max_steps": 1}
        done = bertha("train", *self.data.config(log__run_dir=self.new_folder(),
                                                 checkpoint__init_missing_heads="refuse", **config))
        self.assert_failure(done, 4, "no masked-token head, no sentence head",
                            "checkpoint.init_missing_heads to fresh")
        folder = self.new_folder()
        done = self.train(folder, ranks=2, **config)
        self.assertEqual(len(re.findall("initialized with random weights", done.err)), 1, done)
        self.assertNotIn("checkpoint not loaded", done.err)
        self.assertEqual(checkpoints(folder), ["step_00000001"])

    def test_verify_finds_what_is_wrong(self):
        found = must("checkpoint", "verify", self.run_folder)
        for text in ("DONE lists", "names and shapes", "all finite", "1 optimizer files"):
            self.assertIn(text, found.out)
        must("checkpoint", "verify", GOLDEN / "tf" / "sharded.ckpt")

        def refused(folder, *texts):
            self.assert_failure(bertha("checkpoint", "verify", folder), 4, *texts)

        bad = self.new_folder("flipped")
        shutil.copytree(self.good, bad)
        path = bad / "optimizer-00000-of-00001.safetensors"
        flip(path)
        refused(bad, path, "hash")
        # Without DONE it is a folder like any other's.
        exported = self.new_folder("exported")
        must("checkpoint", "export", self.good, "--output", exported)
        (exported / "DONE").unlink()
        whole = bytearray((exported / "model.safetensors").read_bytes())
        (exported / "model.safetensors").write_bytes(whole[:-4] + struct.pack("<f", float("nan")))
        refused(exported, "1 of the", "not finite")
        (exported / "model.safetensors").write_bytes(whole[:-4])
        refused(exported, "model.safetensors", "torn")
        (exported / "model.safetensors").write_bytes(whole)
        must("checkpoint", "verify", exported)
        config = json.loads((exported / "config.json").read_text())
        config["intermediate_size"] = 72
        (exported / "config.json").write_text(json.dumps(config))
        refused(exported, "intermediate.dense.weight is [64,32], want [72,32]")

        counts = json.dumps({"t": {"dtype": "I32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        integers = self.scratch / "integers.safetensors"
        integers.write_bytes(struct.pack("<Q", len(counts)) + counts + bytes(4))
        refused(integers, "no weights in F32, F16 or BF16, only in I32")
        scaled = self.new_folder("scaled")
        shutil.copytree(self.good, scaled)
        (scaled / "DONE").unlink()
        state = json.loads((scaled / "state.json").read_text())
        for count in (24, 27):  # without the decoder, as version 1.0.0 wrote, and with it
            (scaled / "state.json").write_text(
                json.dumps({**state, "fp8_scale_exponents": [0] * count}))
            must("checkpoint", "verify", scaled)
        (scaled / "state.json").write_text(json.dumps({**state, "fp8_scale_exponents": [0] * 25}))
        refused(scaled, "fp8_scale_exponents has 25 numbers, want 27 for 2 layers")

    def test_nothing_half_written_is_left(self):
        place = self.new_folder("place")
        place.mkdir()
        for words, code, text in (
                (("convert", GOLDEN / "tf" / "saver.ckpt-7"), 4, "--model-config"),
                (("convert", GOLDEN / "tf" / "saver.ckpt-7", "--model-config",
                  self.stated / "bert_config.json", "--vocab", self.data.vocab), 4, "has 320 entries"),
                (("export", "/nowhere"), 4, "no such file or folder"),
                (("export", self.run_folder, "--output", self.stated), 2, "already exists")):
            more = () if "--output" in words else ("--output", place / "out")
            self.assert_failure(bertha("checkpoint", *words, *more), code, text)
            self.assertEqual(list(place.iterdir()), [])


if __name__ == "__main__":
    main()
