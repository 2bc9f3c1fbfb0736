"""Shards that are not as they were made are refused, however little differs."""

import shutil

from support import EndToEnd, bertha, flip, main, must


class Manifest(EndToEnd):
    """Shards that differ from the manifest beside them."""

    def changed_copy(self, change):
        folder = self.new_folder("copy")
        shutil.copytree(self.data.train, folder)
        shard = sorted(folder.glob("part_*"))[1]
        change(shard)
        return folder, shard

    def check(self, change, *texts, names_shard=True, ranks=2):
        folder, shard = self.changed_copy(change)
        named = shard if names_shard else folder
        done = bertha("train", *self.data.config(log__run_dir=self.new_folder(),
                                                 data__train=folder, train__max_steps=80),
                      ranks=ranks)
        self.assert_failure(done, 4, named, *texts)
        found = bertha("data", "verify", folder)
        self.assertEqual(found.code, 4, found)
        self.assertIn(shard.name, found.out + found.err)

    def test_flipped_bits_wherever_they_are(self):
        for where in (0.0005, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.985, 1.0):
            with self.subTest(where):
                self.check(lambda shard, w=where: flip(shard, w),
                           ranks=2 if where in (0.1, 0.5) else 0)

    def test_a_shard_with_a_byte_less(self):
        # Ranks share the shards: the second shard is that of the second rank.
        cut = lambda shard: shard.write_bytes(shard.read_bytes()[:-1])
        folder, shard = self.changed_copy(cut)
        planned = bertha("plan", *self.data.config(data__train=folder))
        self.assertEqual(planned.code, 4, planned)
        self.assertIn(f"{shard}: has", planned.out + planned.err)
        self.check(cut, "manifest states", "(rank 1 of 2")

    def test_nothing_is_made_of_a_token_that_only_the_hash_tells_of(self):
        def change(shard):
            data = bytearray(shard.read_bytes())
            data[data.index(b"GCOL") + 16 + 16 + 2 * 3] ^= 1  # the fourth token of the first row
            shard.write_bytes(data)

        folder, shard = self.changed_copy(change)
        for what in ("convert", "pack"):
            output = self.new_folder("output")
            done = bertha("data", what, folder, "--output", output)
            self.assert_failure(done, 4, shard, "its manifest states", "copy it again")
            self.assertEqual([str(p) for p in output.rglob("*.hdf5")], [])
        (folder / "manifest.json").unlink()
        must("data", "convert", folder, "--output", self.new_folder("output"))

    def test_a_missing_shard(self):
        self.check(lambda shard: shard.unlink(), "2 shards", "lists 3", names_shard=False)

    def test_a_shard_that_the_manifest_does_not_know(self):
        folder, shard = self.changed_copy(lambda shard: shutil.copy(shard,
                                                                    shard.parent / "part_x.hdf5"))
        done = bertha("train", *self.data.config(log__run_dir=self.new_folder(),
                                                 data__train=folder), ranks=2)
        self.assert_failure(done, 4, folder / "part_x.hdf5", "manifest.json")
        self.train(self.new_folder(), data__train=folder, train__max_steps=2,
                   data__verify_manifest=False)

    def test_a_model_of_another_vocabulary(self):
        words = dict(model__vocab_size=312, data__vocab="")
        folder = self.new_folder()
        self.train(folder, train__max_steps=1, data__synthetic=True, data__train="",
                   data__eval="", **words)
        checkpoint = folder / "ckpt" / "step_00000001"
        for done in (bertha("train", *self.data.config(log__run_dir=self.new_folder(), **words),
                            ranks=2),
                     bertha("eval", "--checkpoint", checkpoint,
                            *self.data.config(data__synthetic=False, **words))):
            self.assert_failure(done, 2, "manifest.json", "320", "312", "model.vocab_size to 320")

    def test_another_vocabulary(self):
        other = self.scratch / "another_vocab.txt"
        lines = self.data.vocab.read_text().splitlines()
        differs = ("SHA-256", "manifest.json", "data.vocab")
        for changed, code, texts in ((lines[:100] + lines[:99:-1], 4, differs),
                                     (lines[:-20], 4, differs),
                                     (lines + ["more"], 2, ("321", "320", "model.vocab_size"))):
            other.write_text("\n".join(changed) + "\n")
            done = bertha("train", *self.data.config(log__run_dir=self.new_folder(),
                                                     data__vocab=other), ranks=2)
            self.assert_failure(done, code, other, *texts)


if __name__ == "__main__":
    main()
