"""Updates that are not finite are skipped and counted; too many in a row end the run."""

import json
import struct

from support import EndToEnd, checkpoints, main, records


class NumericFailure(EndToEnd):
    """Weights that are not finite: every update is skipped."""

    def poisoned_weights(self, value, tensor="bert.embeddings.LayerNorm.weight"):
        """A checkpoint whose `tensor` begins with an element of this value."""
        folder = self.new_folder("start")
        self.train(folder, train__max_steps=1)
        place = folder / "ckpt" / "step_00000001"
        weights = (place / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", weights[:8])[0]
        header = json.loads(weights[8:8 + length])
        begin = 8 + length + header[tensor]["data_offsets"][0]
        init = self.new_folder("init")
        init.mkdir()
        (init / "model.safetensors").write_bytes(
            weights[:begin] + struct.pack("<f", value) + weights[begin + 4:])
        (init / "config.json").write_bytes((place / "config.json").read_bytes())
        return init

    def check(self, ranks, value):
        folder = self.new_folder("run")
        done = self.train(folder, ranks=ranks, code=7, checkpoint__init=self.poisoned_weights(value),
                          train__stop_after_skips=4, train__max_steps=50)
        skipped = [r["skipped_steps"] for r in records(folder, "step")]
        self.assertEqual(skipped, list(range(1, len(skipped) + 1)))
        self.assertGreaterEqual(skipped[-1], 4)
        self.assertLessEqual(skipped[-1], 6)  # the counters come back a step or two later
        self.assertEqual(checkpoints(folder), [])
        self.assertEqual(records(folder, "stop")[-1]["status"], "aborted")
        for rank in range(max(ranks, 1)):
            report = json.loads((folder / f"post_mortem.rank_{rank:04d}.json").read_text())
            self.assertEqual(report["skipped_steps"], skipped[-1])
            self.assertEqual(report["successful_steps"], 0)
            self.assertIn("weight embeddings.layer_norm.gain", report["not_finite"])
            self.assertEqual(sum(len(ids) for ids in report["sample_ids"]), 12 // max(ranks, 1))
        self.assertIn("post_mortem", done.out + done.err, "the user is told where to look")

    def test_nan_in_the_weights(self):
        self.check(2, float("nan"))

    def test_infinity_in_the_weights_of_one_process(self):
        self.check(0, float("inf"))

    def test_it_ends_soon_where_log_lines_are_rare(self):
        folder = self.new_folder()
        self.train(folder, ranks=2, code=7, checkpoint__init=self.poisoned_weights(float("nan")),
                   train__stop_after_skips=4, train__log_every_steps=50, train__max_steps=200)
        report = json.loads((folder / "post_mortem.rank_0000.json").read_text())
        self.assertGreaterEqual(report["skipped_steps"], 4)
        self.assertLessEqual(report["skipped_steps"], 9)  # looked for every 4 steps
        self.assertEqual([r["step"] for r in records(folder, "step")], [1])
        self.assertEqual(checkpoints(folder), [])

    def test_a_row_of_skips_that_ended_between_two_looks_ends_the_run_too(self):
        # The gradient of the word table is that of the logits times this gain: too large for f32
        # until the loss scale has come down.
        settings = dict(
            checkpoint__init=self.poisoned_weights(
                1e33, "cls.predictions.transform.LayerNorm.weight"),
            optimizer__loss_scale="dynamic", optimizer__initial_loss_scale=1e9,
            train__max_steps=30, eval__every_samples=10**6)
        folder = self.new_folder()
        self.train(folder, train__stop_after_skips=1000, **settings)
        skipped = {r["step"]: r["skipped_steps"] for r in records(folder, "step")}
        row = 1
        while skipped[row + 1] > skipped[row]:
            row += 1
        self.assertGreaterEqual(row, 3, skipped)

        # The looks are after steps 1 and 1 + row; at the second the row is over.
        folder = self.new_folder()
        self.train(folder, code=7, train__stop_after_skips=row, train__log_every_steps=50,
                   **settings)
        report = json.loads((folder / "post_mortem.rank_0000.json").read_text())
        self.assertEqual(report["most_skips_in_a_row"], row)
        self.assertLess(report["skips_in_a_row"], row)
        self.assertLess(report["step"], 2 * row + 3)

        folder = self.new_folder()
        self.train(folder, train__stop_after_skips=row + 1, train__log_every_steps=50, **settings)
        self.assertEqual([r["step"] for r in records(folder, "step")], [1, 30])


if __name__ == "__main__":
    main()
