"""Text that is wrong is refused with file and line, and little of it is said with numbers."""

import json
import re

from support import MAX_MASKED, MAX_SEQ_TOKENS, EndToEnd, bertha, main, must


class BadText(EndToEnd):
    def prepare(self, text, output, *options):
        return bertha("data", "prepare", "--text", text, "--vocab", self.data.vocab, "--output",
                      output, "--max-seq-tokens", MAX_SEQ_TOKENS, "--max-masked-per-seq",
                      MAX_MASKED, "--duplication", 2, *options)

    def write(self, name, data):
        path = self.scratch / name
        path.write_bytes(data)
        return path

    def test_invalid_utf8(self):
        for name, data in (("latin1.txt", "der M\xfcller .\n".encode("latin-1")),
                           ("cut.txt", b"the river \xe2\x82\n"),
                           ("surrogate.txt", b"the river \xed\xa0\x80 .\n")):
            path = self.write(name, b"the first line .\n" + data)
            output = self.new_folder("output")
            self.assert_failure(self.prepare(path, output), 4, f"{path}, line 2", "UTF-8")
            self.assertEqual(list(output.glob("part_*")), [])
            self.assertFalse((output / "manifest.json").exists())
            done = bertha("data", "vocab", "--text", path, "--output", self.scratch / "v")
            self.assert_failure(done, 4, f"{path}, line 2", "UTF-8")
            self.assertFalse((self.scratch / "v").exists())

    def test_text_to_fill_in_that_is_no_text(self):
        _, checkpoint = self.train_once()

        def fill(path):
            return bertha("fill", "--checkpoint", checkpoint, "--text", path)

        path = self.write("latin1_lines.txt", b"the old [MASK]\nder M\xfcller .\n")
        self.assert_failure(fill(path), 4, f"{path}, line 2, byte 6: not valid UTF-8")
        self.assert_failure(fill("/bin/ls"), 4, "/bin/ls, line ")
        self.assert_failure(fill(self.scratch), 4, f"{self.scratch}: is a folder")
        empty = self.write("empty.txt", b"")
        self.assert_failure(fill(empty), 4, f"{empty}: is empty, want one text per line")
        self.assertEqual(fill(self.write("good.txt", b"the old [MASK]\n")).code, 0)

    def test_shards_are_not_written_among_the_text(self):
        folder = self.new_folder("texts")
        folder.mkdir()
        (folder / "a.txt").write_text("the old river .\n")
        self.assert_failure(self.prepare(folder, folder), 2, f"{folder}: is also a folder of --text")
        self.assertEqual([path.name for path in folder.iterdir()], ["a.txt"])

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
        self.assertIn(f"data.train contains {samples} sequences: the run repeats them "
                      f"{40 * 12 // samples} times", done.err)
        done = bertha("train", *self.data.config(log__run_dir=self.new_folder(),
                                                 train__max_steps=2))
        self.assertNotIn("the run repeats them", done.err)

    def test_text_of_another_form_is_refused(self):
        for name, data, found in (
                ("json.txt", b'{"text": "the old river ."}\n{"text": "the house ."}\n', "begins as JSON"),
                ("table.md", b'id,text\n1,"the old river, ."\n2,the house .\n', "begins as a table of 2 columns"),
                ("a.html", b"<!DOCTYPE html>\n<html><p>the old river .</p></html>\n", "begins as HTML")):
            path, output = self.write(name, data), self.new_folder("output")
            for options in ([], ["--prose"]):
                done = self.prepare(path, output, *options)
                self.assert_failure(done, 4, f"{path}: {found}", "want plain text")
            done = bertha("data", "vocab", "--text", path, "--output", self.scratch / "v")
            self.assert_failure(done, 4, f"{path}: {found}")
            self.assertFalse(output.exists() or (self.scratch / "v").exists())

    def test_lost_text_is_said(self):
        folder, output = self.new_folder("texts"), self.new_folder("output")
        folder.mkdir()
        line = "the old river . " * 40
        (folder / "a.txt").write_text(line + "\n")
        (folder / "b.txt").write_text("\n\n".join([line + "\u4e00 " * 40] * 40) + "\n")
        (folder / "c.md").write_text(line)
        said = (r"9\d\.\d% of the text cut off, 19\.\d% of the text \[UNK\], 2\.4% of the documents "
                r"alone in their file\nnot read in the folders of text; named neither \*\.txt, "
                r"part-\*.*: 1\n")
        reports = (("prepare", lambda: self.prepare(folder, output)),
                   ("prepare again", lambda: self.prepare(folder, output)),
                   ("verify", lambda: bertha("data", "verify", output)),
                   ("stats", lambda: bertha("data", "stats", output)))
        for name, report in reports:
            done = report()
            self.assertEqual(done.code, 0, done)
            self.assertRegex(done.out, said, name)
            self.assertRegex(done.err, r"% of the text cut off: .*sentence per line")
            self.assertRegex(done.err, r"19\.\d% of the text \[UNK\]: ")
            self.assertNotIn("alone in their file", done.err)
        self.assertIn("c.md", self.prepare(folder, output).err)
        done = must("data", "stats", output, "--json", "-")
        self.assertEqual(json.loads(done.out)["counts"]["lone_documents"], 1)

        # A text that is as it should be warns of nothing.
        done = bertha("data", "verify", self.data.train)
        self.assertRegex(done.out, r"\d+\.\d% of the text cut off, 0\.0% of the text \[UNK\], 0\.0% ")
        self.assertEqual(done.err, "")

    def test_too_little_text_for_a_vocabulary(self):
        output = self.scratch / "vocab_of_little"
        done = bertha("data", "vocab", "--text", self.data.eval_text, "--size", 30000,
                      "--output", output)
        self.assert_failure(done, 4, "30000", "at most")
        self.assertFalse(output.exists())


if __name__ == "__main__":
    main()
