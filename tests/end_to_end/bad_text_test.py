"""Text and vocabularies that are wrong are refused with file and line."""

import re

from support import MAX_MASKED, MAX_SEQ_TOKENS, EndToEnd, bertha, main, must, tree


class BadText(EndToEnd):
    """Preparation refuses what it cannot read and leaves the results of before."""

    def prepare(self, text, output, vocab=None):
        return bertha("data", "prepare", "--text", text, "--vocab", vocab or self.data.vocab,
                      "--output", output, "--max-seq-tokens", MAX_SEQ_TOKENS,
                      "--max-masked-per-seq", MAX_MASKED, "--duplication", 2)

    def check(self, text, *texts, vocab=None):
        output = self.new_folder("output")
        self.assert_failure(self.prepare(text, output, vocab), 4, *texts)
        self.assertEqual(list(output.glob("part_*")), [])
        self.assertFalse((output / "manifest.json").exists())

    def write(self, name, data):
        path = self.scratch / name
        path.write_bytes(data)
        return path

    def test_invalid_utf8(self):
        for name, data in (("latin1.txt", "der M\xfcller .\n".encode("latin-1")),
                           ("cut.txt", b"the river \xe2\x82\n"),
                           ("surrogate.txt", b"the river \xed\xa0\x80 .\n")):
            path = self.write(name, b"the first line .\n" + data)
            self.check(path, f"{path}, line 2", "UTF-8")
            done = bertha("data", "vocab", "--text", path, "--output", self.scratch / "v")
            self.assert_failure(done, 4, f"{path}, line 2", "UTF-8")
            self.assertFalse((self.scratch / "v").exists())

    def test_text_to_encode_that_is_no_text(self):
        run = self.new_folder("run")
        must("train", *self.data.config(log__run_dir=run, train__max_steps=1))
        output = self.scratch / "encoded.safetensors"

        def encode(path):
            return bertha("encode", "--checkpoint", run / "ckpt" / "step_00000001", "--text", path,
                          "--output", output)

        path = self.write("latin1_lines.txt", b"the old river\nder M\xfcller .\n")
        self.assert_failure(encode(path), 4, f"{path}, line 2, byte 6: not valid UTF-8")
        self.assert_failure(encode("/bin/ls"), 4, "/bin/ls, line ")
        self.assert_failure(encode(self.scratch), 4, f"{self.scratch}: is a folder")
        self.assertEqual(list(self.scratch.glob("encoded*")), [])
        self.assertEqual(encode(self.write("good.txt", b"the old river\n")).code, 0)

    def test_binary_files(self):
        path = self.write("utf16.txt", "the old river .\n".encode("utf-16-le"))
        self.check(path, f"{path}, line 1, byte 2: a zero byte", "binary or UTF-16")
        self.check("/bin/ls", "/bin/ls, line 1, byte", "a zero byte")
        done = bertha("data", "vocab", "--text", path, "--output", self.scratch / "v")
        self.assert_failure(done, 4, "a zero byte")

    def test_little_text_is_said_with_numbers(self):
        output = self.new_folder("output")
        path = self.write("little.txt", b"the old river .\nthe young river .\n\nthe house .\n" * 3)
        done = self.prepare(path, output)
        self.assertEqual(done.code, 0, done)
        self.assertIn("from 9 sentences in 4 documents", done.out)
        masked = int(re.search(r", (\d+) masked tokens", done.out).group(1))
        self.assertLess(masked, 100)
        self.assertIn(f"little text: an accuracy over its {masked} masked tokens is uncertain by up "
                      f"to {50 / masked ** 0.5:.1f} percentage points", done.err)
        run = self.new_folder("run")
        done = must("train", *self.data.config(log__run_dir=run, data__train=output,
                                               train__max_steps=40))
        samples = int(re.search(r": (\d+) samples? in", self.prepare(path, output).out).group(1))
        self.assertIn(f"data.train holds {samples} sequences: the run goes over them "
                      f"{40 * 12 // samples} times", done.err)
        done = bertha("train", *self.data.config(log__run_dir=self.new_folder(),
                                                 train__max_steps=2))
        self.assertNotIn("goes over them", done.err)

    def test_a_line_of_10_mb(self):
        path = self.write("long.txt", b"one two .\n" + b"word " * 2_000_000 + b"\n")
        self.check(path, f"{path}, line 2", "longer than", "one sentence per line")

    def test_a_vocabulary_without_mask(self):
        lines = self.data.vocab.read_text().splitlines()
        path = self.write("nomask.txt", "\n".join(w for w in lines if w != "[MASK]").encode())
        self.check(self.data.text, path, "[MASK]", vocab=path)

    def test_no_text_and_no_vocabulary(self):
        self.check(self.scratch / "none.txt", self.scratch / "none.txt", "No such file")
        self.check(self.data.text, self.scratch / "none.txt", vocab=self.scratch / "none.txt")
        self.check(self.write("blank.txt", b"\n\n\n"), self.scratch / "blank.txt")

    def test_results_of_other_text_stay(self):
        before = tree(self.data.train)
        done = self.prepare(self.data.eval_text, self.data.train)
        self.assert_failure(done, 4, self.data.train)
        self.assertEqual(tree(self.data.train), before)

    def test_too_little_text_for_a_vocabulary(self):
        output = self.scratch / "vocab_of_little"
        done = bertha("data", "vocab", "--text", self.data.eval_text, "--size", 30000,
                      "--output", output)
        self.assert_failure(done, 4, "30000", "at most")
        self.assertFalse(output.exists())


if __name__ == "__main__":
    main()
