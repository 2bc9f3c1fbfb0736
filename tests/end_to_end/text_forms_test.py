"""Text as people have it gives the samples of the same text in a plain file."""

import csv
import gzip
import io
import json
import lzma
import shutil
import subprocess

from support import MAX_MASKED, MAX_SEQ_TOKENS, VOCAB_SIZE, EndToEnd, bertha, command, main, must


class TextForms(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = cls.data.eval_text.read_text()
        cls.documents = [" ".join(part.split("\n")) for part in text.split("\n\n") if part.strip()]

    def prepare(self, text, *options):
        output = self.new_folder("output")
        done = bertha("data", "prepare", "--text", text, "--vocab", self.data.vocab, "--output", output, "--max-seq-tokens", MAX_SEQ_TOKENS, "--max-masked-per-seq", MAX_MASKED,
                      "--duplication", 2, *options)
        return output, done

    def checksums(self, output):
        return (output / "checksums.chk").read_text(), (output / "eval" / "checksums.chk").read_text()

    def forms(self):
        """The documents in every form, by file name."""
        table = io.StringIO()
        csv.writer(table).writerows([["id", "text"], *enumerate(self.documents)])
        lines = "".join(json.dumps({"text": text, "id": 1}) + "\n" for text in self.documents)
        cut = lines.index("\n", len(lines) // 2) + 1
        forms = {
            "a.jsonl": lines.encode(),
            "b.ndjson.gz": gzip.compress(lines[:cut].encode()) + gzip.compress(lines[cut:].encode()),
            "c.json.xz": lzma.compress(lines[:cut].encode()) + lzma.compress(lines[cut:].encode()),
            "e.csv": table.getvalue().encode(),
            "f.tsv": ("text\tid\r\n" + "".join(f"{text}\t1\r\n" for text in self.documents)).encode(),
            "g.txt.gz": gzip.compress("\r\n\r\n".join(self.documents).encode()),
        }
        if shutil.which("zstd"):
            forms["d.jsonl.zst"] = b"".join(
                subprocess.run(["zstd", "-q", "-c"], input=part.encode(), capture_output=True,
                               check=True).stdout for part in (lines[:cut], lines[cut:]))
        return forms

    def test_every_form_gives_the_same_samples(self):
        plain = self.scratch / "plain.txt"
        plain.write_text("\n\n".join(self.documents))
        output, done = self.prepare(plain, "--prose")
        self.assertEqual(done.code, 0, done)
        wanted = self.checksums(output)
        for name, data in self.forms().items():
            path = self.scratch / name
            path.write_bytes(data)
            output, done = self.prepare(path)
            self.assertEqual(done.code, 0, f"{name}: {done}")
            self.assertEqual(self.checksums(output), wanted, name)
            must("data", "verify", output)
            must("data", "verify", output / "eval")

        output = self.new_folder("output")
        done = subprocess.run(command(
            ["data", "prepare", "--text", "-", "--vocab", self.data.vocab, "--output", output,
             "--max-seq-tokens", MAX_SEQ_TOKENS, "--max-masked-per-seq", MAX_MASKED, "--duplication", 2], 0),
            input=self.forms()["b.ndjson.gz"], capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.checksums(output), wanted)

    def test_a_folder_of_all_forms_trains(self):
        folder = self.new_folder("texts")
        for name, data in self.forms().items():
            path = folder / "deep" / "down" / name if name > "c" else folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (folder / "deep" / "page.html").write_text("<html>")
        (folder / "table.parquet").write_bytes(b"PAR1")
        output, done = self.prepare(folder, "--hold-out", 0.1)
        self.assertEqual(done.code, 0, done)
        self.assertRegex(done.out, r"from [\d,]+ sentences in [\d,]+ documents of \d texts")
        self.assertRegex(done.out, r"HTML or XML, convert them first: 1; Parquet .*: 1")
        self.assertRegex(done.out, rf"held out for evaluation: .* in {output}/eval\n")
        self.assertRegex(done.out, r"a sample: \[CLS\] .*\[MASK\].*")
        must("train", *self.data.config(log__run_dir=self.new_folder("run"), data__train=output,
                                        data__eval=output / "eval", train__max_steps=2))
        vocab = self.scratch / "vocab_of_forms.txt"
        must("data", "vocab", "--text", folder, "--size", VOCAB_SIZE, "--output", vocab)
        self.assertEqual(len(vocab.read_text().splitlines()), VOCAB_SIZE)

    def test_one_document_cannot_be_held_out(self):
        path = self.scratch / "one.txt"
        path.write_text("the old river . " * 200)
        output, done = self.prepare(path, "--prose")
        self.assertEqual(done.code, 0, done)
        self.assertIn("nothing is held out for evaluation", done.err)
        self.assertFalse((output / "eval").exists())
        output, done = self.prepare(path)
        self.assertIn("held out for evaluation: nothing", done.out)

    def test_damage_and_missing_fields_are_named(self):
        path = self.scratch / "cut.jsonl.gz"
        path.write_bytes(self.forms()["b.ndjson.gz"][:-9])
        _, done = self.prepare(path)
        self.assert_failure(done, 4, f"{path}: the compressed data end early")
        path = self.scratch / "other.csv"
        path.write_text("id,body\n1,the old river\n")
        _, done = self.prepare(path)
        self.assert_failure(done, 4, f"{path}, line 1: no column \"text\", found id, body")
        self.assertEqual(self.prepare(path, "--field", "body")[1].code, 0)
        _, done = self.prepare(path, "--official")
        self.assertNotEqual(done.code, 0)

    def test_one_segment_and_token_ids(self):
        path = self.scratch / "ids.jsonl"
        path.write_text("".join(json.dumps([20 + (i * j) % 200 for j in range(1, 50)]) + "\n"
                                for i in range(1, 200)))
        output = self.new_folder("output")
        must("data", "prepare", "--text", path, "--ids", "--special-ids",
             "cls=1,sep=2,pad=0,mask=3,unk=4", "--vocab-size", VOCAB_SIZE, "--segments", "one",
             "--output", output, "--max-seq-tokens", MAX_SEQ_TOKENS, "--max-masked-per-seq", MAX_MASKED)
        done = must("data", "stats", output)
        self.assertIn("one segment per sample, no pairs", done.out)
        self.assertEqual(done.err, "")
        must("data", "verify", output)
        must("train", *self.data.config(log__run_dir=self.new_folder("run"), data__train=output,
                                        data__eval=output / "eval", data__vocab=output / "vocab.txt",
                                        train__max_steps=2))
        done = bertha("data", "prepare", "--text", path, "--ids", "--special-ids", "cls=1", "--vocab-size",
                      VOCAB_SIZE, "--output", self.new_folder())
        self.assert_failure(done, 2, "--special-ids: ", "is missing")

    def test_the_cap_of_masked_tokens_follows_the_fraction(self):
        for options, most in (((), 76), (("--masked-fraction", 0.4), 52),
                              (("--masked-fraction", 0.4, "--max-masked-per-seq", 30), 30)):
            output = self.new_folder("output")
            must("data", "prepare", "--text", self.data.eval_text, "--vocab", self.data.vocab,
                 "--output", output, "--max-seq-tokens", 128, *options)
            limits = json.loads((output / "manifest.json").read_text())["limits"]
            self.assertEqual(limits["max_masked_per_seq"], most)


if __name__ == "__main__":
    main()
