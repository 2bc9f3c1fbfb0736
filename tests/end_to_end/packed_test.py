"""Training and evaluating on packed shards is training and evaluating on their sequences."""

from support import EndToEnd, LOSS_F32, main, must, records, steps


class Packed(EndToEnd):
    """The data of the other tests, packed by the program."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.packed = {}
        for name, folder in (("train", cls.data.train), ("eval", cls.data.eval)):
            cls.packed[name] = cls.scratch / f"packed_{name}"
            must("data", "pack", folder, "--output", cls.packed[name])
        # The names of the published packed shards; without a manifest, which knows the others.
        for shard in sorted(cls.packed["train"].glob("part_*")):
            shard.rename(shard.with_suffix(""))
        for name in ("manifest.json", "checksums.chk"):
            (cls.packed["train"] / name).unlink()
        cls.sequences = cls.count_of(cls.packed["train"])

    @classmethod
    def count_of(cls, folder):
        """Sequences of a data folder, as the program counts them."""
        out = must("data", "stats", folder, "--max-seq-tokens", 32).out
        line = next(line for line in out.splitlines() if line.startswith("samples"))
        return int(line.split()[1].replace(",", ""))

    def losses(self, ranks, **changes):
        folder = self.new_folder()
        # One step holds every sequence once, so that their order does not matter.
        self.train(folder, ranks=ranks, train__global_batch_seqs=self.sequences,
                   train__max_steps=1, eval__every_samples=self.sequences, **changes)
        step = steps(folder)[1]
        self.assertEqual(step["samples"], self.sequences)
        evaluation = records(folder, "eval")[-1]
        return step["loss"], evaluation["mlm_loss"]

    def test_packs_hold_the_sequences_of_the_unpacked_data(self):
        self.assertEqual(self.sequences, self.count_of(self.data.train))
        several = next(ranks for ranks in (2, 3, 5, 1) if self.sequences % ranks == 0)
        for ranks in (1, several):
            with self.subTest(ranks):
                whole = self.losses(ranks)
                packed = self.losses(ranks, data__train=self.packed["train"],
                                     data__eval=self.packed["eval"])
                for found, want in zip(packed, whole):
                    self.assertLessEqual(abs(found - want), LOSS_F32 * max(1.0, abs(want)))

    def test_shards_of_one_folder_may_differ_in_layout(self):
        fixed = self.scratch / "fixed"
        must("data", "convert", self.data.train, "--output", fixed, "--layout", "fixed")
        mixed = self.new_folder("mixed")
        mixed.mkdir()
        for name, source in zip(sorted(p.name for p in fixed.glob("part_*")),
                                (fixed, self.data.train, fixed)):
            (mixed / name).write_bytes((source / name).read_bytes())
        weights = []
        for data in (self.data.train, mixed):
            folder = self.new_folder()
            self.train(folder, ranks=2, data__train=data, train__max_steps=4)
            weights.append((folder / "ckpt" / "step_00000004" / "model.safetensors").read_bytes())
        self.assertEqual(*weights)


if __name__ == "__main__":
    main()
