"""A run that is resumed over another number of ranks goes on with the same samples and losses."""

from support import EndToEnd, main, records


class OtherWorldSize(EndToEnd):
    """Without dropout, whose masks depend on the rank, another number of ranks trains the same."""

    STEPS = 9

    def check(self, before, after, **buckets_before):
        whole, folder = self.new_folder("whole"), self.new_folder("changed")
        self.train(whole, ranks=before, train__max_steps=self.STEPS)
        self.train(folder, ranks=before, train__max_steps=4, **buckets_before)
        self.train(folder, ranks=after, train__max_steps=self.STEPS)
        worlds = [run["world_size"] for run in records(folder, "run")]
        self.assertEqual(worlds, [before, after])
        self.assert_same_steps(whole, folder, self.STEPS)

    def test_two_ranks_then_one(self):
        self.check(2, 1)

    def test_one_rank_then_three(self):
        self.check(1, 3)

    def test_three_ranks_with_small_buckets_then_two(self):
        self.check(3, 2, optimizer__bucket_mib=0.02)


if __name__ == "__main__":
    main()
