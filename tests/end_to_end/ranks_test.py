"""The same global batches give the same losses, however they are assigned over ranks and micro-batches."""

from support import LOSS_F32, EndToEnd, main, must, possible_ranks, records, steps


class SameLosses(EndToEnd):
    STEPS = 12

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.alone = cls.new_folder("alone")
        cls().train(cls.alone, ranks=1)

    def assert_same_losses(self, one, other):
        self.assert_same_steps(one, other, self.STEPS)
        evals = [[(e["step"], e["samples"]) for e in records(folder, "eval")]
                 for folder in (one, other)]
        self.assertEqual(evals[0], [(6, 72), (12, 144)])
        self.assertEqual(evals[1], evals[0])
        for a, b in zip(records(one, "eval"), records(other, "eval")):
            self.assertLessEqual(abs(a["mlm_loss"] - b["mlm_loss"]),
                                 a["step"] * LOSS_F32 * max(1.0, a["mlm_loss"]))

    def test_the_losses_change_from_step_to_step(self):
        losses = [record["loss"] for record in steps(self.alone).values()]
        self.assertEqual(len(set(losses)), self.STEPS)
        self.assertLess(sum(losses[-4:]), sum(losses[:4]) - 4 * 0.1, losses)

    def check(self, ranks, **changes):
        folder = self.new_folder(f"ranks{ranks}")
        self.train(folder, ranks=ranks, **changes)
        self.assertEqual(records(folder, "run")[0]["world_size"],
                         max(possible_ranks(ranks), 1))
        self.assert_same_losses(self.alone, folder)

    def test_one_process_without_a_launcher(self):
        self.check(0)

    def test_two_ranks(self):
        self.check(2)

    def test_three_ranks(self):
        self.check(3)

    def test_four_ranks(self):
        self.check(4)

    def test_small_buckets_of_gradients(self):
        self.check(3, optimizer__bucket_mib=0.05)

    def test_small_buckets_of_gradients_with_micro_batches(self):
        self.check(2, optimizer__bucket_mib=0.05, train__accumulation_steps=3)

    def test_two_micro_batches(self):
        self.check(1, train__accumulation_steps=2)

    def test_two_ranks_with_three_micro_batches(self):
        self.check(2, train__accumulation_steps=3)

    def test_without_exchange_padding(self):
        self.check(3, data__exchange_padding="off")

    def test_exchange_padding_by_all_gather(self):
        self.check(3, data__exchange_padding="allgather")

    def test_two_threads(self):
        self.check(2, train__threads_per_rank=2)

    def test_resumed_over_another_number_of_ranks(self):
        """Without dropout, whose masks depend on the rank."""
        for before, after, buckets_before in (2, 1, {}), (1, 3, {}), (3, 2, {"optimizer__bucket_mib": 0.02}):
            folder = self.new_folder("changed")
            self.train(folder, ranks=before, train__max_steps=4, **buckets_before)
            self.train(folder, ranks=after)
            self.assertEqual([run["world_size"] for run in records(folder, "run")], [before, after])
            self.assert_same_steps(self.alone, folder, self.STEPS)

    def test_shards_of_one_folder_may_differ_in_layout(self):
        fixed, mixed, packed = (self.new_folder(name) for name in ("fixed", "mixed", "packed"))
        must("data", "convert", self.data.train, "--output", fixed, "--layout", "fixed")
        must("data", "pack", self.data.eval, "--output", packed)
        mixed.mkdir()
        for name, source in zip(sorted(p.name for p in fixed.glob("part_*")),
                                (fixed, self.data.train, fixed)):
            (mixed / name).write_bytes((source / name).read_bytes())
        self.check(2, data__train=mixed, data__eval=packed)


class LocalMeans(EndToEnd):
    """The published mean of the ranks' means is another number when the ranks' counts differ."""

    def test_differs_from_the_global_mean(self):
        folders = {}
        for rule in ("global", "local"):
            folders[rule] = self.new_folder(rule)
            self.train(folders[rule], ranks=2, train__max_steps=3, train__loss_mean=rule)
        ours, theirs = steps(folders["global"]), steps(folders["local"])
        # The losses of the first step are those of the same weights, reported as one mean.
        self.assertAlmostEqual(ours[1]["loss"], theirs[1]["loss"], delta=LOSS_F32 * 10)
        self.assertGreater(abs(ours[1]["gradient_norm"] - theirs[1]["gradient_norm"]), 1e-5)


class Binding(EndToEnd):
    def test_ranks_divide_the_cores_of_a_described_machine(self):
        folder = self.new_folder("described")
        self.train(folder, ranks=4, train__max_steps=1,
                   extra={"HWLOC_SYNTHETIC": "pack:2 [numa] core:8 pu:1"})
        ranks = possible_ranks(4)
        log = "".join(file.read_text() for file in (folder / "logs").glob("*.log"))
        self.assertEqual(log.count(" cores ("), ranks + 1, log)  # a line of each, and rank 0's for the terminal
        for rank in range(ranks) if ranks > 1 else ():
            first, last = 16 * rank // ranks, 16 * (rank + 1) // ranks - 1
            memory = f", prefers memory of NUMA node {first // 8}" if first // 8 == last // 8 else ""
            self.assertIn(f"bound to {last - first + 1} cores ({first}-{last}) of the 16 shared by {ranks} "
                          f"ranks{memory}\n", log)


if __name__ == "__main__":
    main()
