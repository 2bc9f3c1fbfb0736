"""Upper case, from the text to the exported model: tokenizer_config.json decides."""

import json
import shutil

import support
from support import EndToEnd, bertha, main, must

CASED = {"do_lower_case": False, "strip_accents": False, "tokenize_chinese_chars": True}
CONFIG = "tokenizer_config.json"


class Cased(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lower, cls.place = cls.data, cls.scratch / "cased"
        cls.place.mkdir()
        (cls.place / CONFIG).write_text('{"do_lower_case": false}')
        make_text = support.make_text
        support.make_text = lambda *words: make_text(*words).replace("the ", "The ")
        try:
            cls.data = support.Data(cls.place)
        finally:
            support.make_text = make_text
        cls.run_folder = cls.new_folder("trained")
        cls().train(cls.run_folder, train__max_steps=2, model__gelu="erf")
        cls.checkpoint = cls.run_folder / "ckpt" / "step_00000002"

    def tells_case(self, folder):
        """Whether The and the are different words to the model in a folder."""
        upper, lower = (must("fill", "--checkpoint", folder, "--top", support.VOCAB_SIZE, text).out
                        for text in ("The [MASK]", "the [MASK]"))
        return upper.splitlines()[1:] != lower.splitlines()[1:]

    def export(self, of, *more):
        output = self.new_folder("exported")
        return output, must("checkpoint", "export", of, "--output", output, *more)

    def test_a_model_of_cased_text_reads_cased_text_wherever_it_is(self):
        self.assertIn("The", self.data.vocab.read_text().split())
        for folder in (self.data.train, self.data.eval):
            stated = json.loads((folder / "manifest.json").read_text())["options"]["tokenizer"]
            self.assertEqual(stated, "do_lower_case: false, strip_accents: false, "
                                     "tokenize_chinese_chars: true")
        exported, done = self.export(self.run_folder)
        self.assertIn(", cased\n", done.out)
        for folder in (self.checkpoint, exported):
            config = json.loads((folder / CONFIG).read_text())
            self.assertEqual({key: config[key] for key in CASED}, CASED)
            self.assertEqual(config["model_max_length"], support.MAX_SEQ_TOKENS)
            self.assertTrue(self.tells_case(folder))
        filled = must("fill", "--checkpoint", exported, "The [MASK]")
        self.assertNotIn("[UNK]", filled.err)
        must("eval", "--checkpoint", self.checkpoint, *self.data.config(model__gelu="erf"))
        self.train(self.new_folder(), checkpoint__init=exported, model__gelu="erf",
                   train__max_steps=1)
        # The folder of a vocabulary that is named counts before that of the weights.
        bare = self.new_folder("bare")
        shutil.copytree(exported, bare)
        (bare / CONFIG).unlink()
        self.assertTrue(self.tells_case(bare))  # its vocabulary has capitals
        (bare / CONFIG).write_text('{"do_lower_case": true}')
        self.assertFalse(self.tells_case(bare))
        again, done = self.export(bare, "--vocab", self.data.vocab)
        self.assertEqual((again / CONFIG).read_bytes(), (exported / CONFIG).read_bytes())
        lower, done = self.export(bare)
        self.assertIn(", lower-cased\n", done.out)
        self.assertIs(json.loads((lower / CONFIG).read_text())["do_lower_case"], True)

    def test_text_that_is_all_unknown_is_warned_of(self):
        bare = self.new_folder("capitals")
        shutil.copytree(self.checkpoint, bare)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"THE"]
        (bare / "vocab.txt").write_text("\n".join(words) + "\n")
        for config, warns in ((CASED, False), ({}, False), ({"do_lower_case": True}, True)):
            (bare / CONFIG).write_text(json.dumps(config))
            done = bertha("fill", "--checkpoint", bare, "T H E T H E [MASK]")
            self.assertEqual("are [UNK]" in done.err, warns, done)

    def test_data_and_model_that_disagree_are_refused(self):
        def refused(*texts, data=self.data, **changes):
            done = bertha("train", *data.config(log__run_dir=self.new_folder(), **changes), ranks=2)
            self.assert_failure(done, 4, "do_lower_case: false", *texts)

        manifest = self.data.train / "manifest.json"
        copy = self.new_folder("copy")
        copy.mkdir()
        shutil.copy(self.data.vocab, copy)
        refused(manifest, copy / CONFIG, "which is missing, means do_lower_case: true",
                data__vocab=copy / "vocab.txt")
        refused(manifest, "data.vocab, which is not set, means", data__vocab="")
        must("train", *self.data.config(log__run_dir=self.new_folder(), train__max_steps=1,
                                        data__vocab="", data__verify_manifest=False))
        exported, _ = self.export(self.run_folder)
        refused(exported / CONFIG, self.lower.folder / CONFIG, data=self.lower,
                checkpoint__init=exported, model__gelu="erf")
        done = bertha("eval", "--checkpoint", self.checkpoint,
                      *self.lower.config(model__gelu="erf", data__vocab=""))
        self.assert_failure(done, 4, self.lower.eval / "manifest.json", self.checkpoint / CONFIG)

    def test_data_of_100_are_lower_cased(self):
        old = self.new_folder("old")
        shutil.copytree(self.lower.train, old)
        manifest = json.loads((old / "manifest.json").read_text())
        del manifest["options"]["tokenizer"]
        (old / "manifest.json").write_text(json.dumps(manifest))
        folder = self.new_folder()
        must("train", *self.lower.config(log__run_dir=folder, data__train=old, train__max_steps=1))
        self.assertFalse((folder / "ckpt" / "step_00000001" / CONFIG).exists())
        done = bertha("train", *self.lower.config(log__run_dir=self.new_folder(), data__train=old,
                                                  checkpoint__init=self.checkpoint,
                                                  model__gelu="erf"))
        self.assert_failure(done, 4, self.checkpoint / CONFIG)


if __name__ == "__main__":
    main()
