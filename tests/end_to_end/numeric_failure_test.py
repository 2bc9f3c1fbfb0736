"""Updates that are not finite are skipped and counted; too many in a row end the run."""

import json
import struct

from support import EndToEnd, bertha, checkpoints, main, records
from safetensors_file import change_tensors


LARGE = 3e38  # finite in f32, and nothing that is computed from it is


class NumericFailure(EndToEnd):
    """Weights whose gradients are not finite: every update is skipped."""

    @staticmethod
    def put(path, tensor, value, last=False):
        """Makes the first or the last element of a tensor this value."""
        def change(name, data):
            if name != tensor:
                return data
            number = struct.pack("<f", value)
            return data[:-4] + number if last else number + data[4:]

        change_tensors(path, change)

    def poisoned_weights(self, value, tensor="bert.embeddings.LayerNorm.weight", **changes):
        """A checkpoint whose `tensor` begins with an element of this value."""
        folder = self.new_folder("start")
        self.train(folder, train__max_steps=1, **changes)
        place = folder / "ckpt" / "step_00000001"
        init = self.new_folder("init")
        init.mkdir()
        for name in ("model.safetensors", "config.json"):
            (init / name).write_bytes((place / name).read_bytes())
        self.put(init / "model.safetensors", tensor, value)
        return init

    def check(self, ranks):
        folder = self.new_folder("run")
        done = self.train(folder, ranks=ranks, code=7, checkpoint__init=self.poisoned_weights(LARGE),
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
            self.assertEqual(report["step"], records(folder, "step")[-1]["step"])
            # The first of them is where it began: the tensor behind the weight that is too large.
            wrong = [figure["name"] for figure in report["figures"] if figure["not_finite"] > 0]
            self.assertEqual(report["not_finite"], wrong)
            self.assertEqual(wrong[0], "embeddings.output")
            self.assertIn("gradient of embeddings.layer_norm.gamma", wrong)
            self.assertEqual(sum(len(ids) for ids in report["sample_ids"]), 12 // max(ranks, 1))
        self.assertIn("post_mortem", done.out + done.err, "the user is told where to look")
        self.assertIn("the mean loss of the record at step 2 is not finite; 1 update was skipped "
                      "since the previous record", done.err)

    def test_on_two_ranks(self):
        self.check(2)

    def test_in_one_process(self):
        self.check(0)

    def test_weights_that_are_not_finite_are_never_saved(self):
        # The last row of the position table numbers no token: no gradient sees it, and an update of
        # ten times the table's norm takes it beyond f32 at the second step.
        init = self.poisoned_weights(0.0, model__max_positions=40)
        weights = init / "model.safetensors"
        self.put(weights, "bert.embeddings.position_embeddings.weight", 1e37, last=True)
        for ranks in (0, 2):
            folder = self.new_folder("run")
            done = self.train(folder, ranks=ranks, code=7, checkpoint__init=init,
                              model__max_positions=40, optimizer__base_learning_rate=10,
                              optimizer__schedule_steps=10**6, checkpoint__every_steps=1,
                              checkpoint__keep=1)
            said = done.out + done.err
            self.assertIn("embeddings.position.weight", said)
            self.assertIn("nothing is saved", said)
            self.assertIn("post_mortem", said)
            left = checkpoints(folder)
            self.assertEqual(len(left), 1, left)
            self.assertEqual([p.name for p in (folder / "ckpt").iterdir()], left)
            self.assertEqual(bertha("checkpoint", "verify", folder).code, 0)
            self.assertEqual(records(folder, "stop")[-1]["status"], "aborted")
            report = json.loads((folder / "post_mortem.rank_0000.json").read_text())
            self.assertIn("weight embeddings.position.weight", report["not_finite"])
            wrong = [figure["name"] for figure in report["weights"] if figure["not_finite"] > 0]
            self.assertEqual(wrong, ["weight embeddings.position.weight"])

    def test_every_reader_refuses_weights_that_are_not_finite(self):
        name = "bert.encoder.layer.1.output.dense.bias"
        text = self.scratch / "lines.txt"
        text.write_text("the old [MASK]\n")
        for value in (float("nan"), float("inf")):
            init = self.poisoned_weights(value, name)
            out = self.new_folder("out")
            for words in (
                    ["train", *self.data.config(log__run_dir=out, checkpoint__init=init)],
                    ["eval", "--checkpoint", init, *self.data.config()],
                    ["fill", "--checkpoint", init, "--vocab", self.data.vocab, "--text", text],
                    ["checkpoint", "convert", init, "--output", out],
                    ["checkpoint", "export", init, "--output", out],
                    ["checkpoint", "verify", init]):
                done = bertha(*words)
                self.assert_failure(done, 4, "model.safetensors", f"1 of the 32 numbers of {name}",
                                    "not finite")

    def test_results_that_are_not_finite_are_no_results(self):
        init = self.poisoned_weights(LARGE)
        for words in (["eval", "--checkpoint", init, *self.data.config(), "--json", "-"],
                      ["fill", "--checkpoint", init, "--vocab", self.data.vocab, "the old [MASK]"]):
            done = bertha(*words)
            self.assert_failure(done, 7, init, "not finite" if words[0] == "fill" else "nan")
            self.assertEqual(done.out, "")

    def test_it_ends_soon_where_log_lines_are_rare(self):
        folder = self.new_folder()
        self.train(folder, ranks=2, code=7, checkpoint__init=self.poisoned_weights(LARGE),
                   train__stop_after_skips=4, train__log_every_steps=50, train__max_steps=200)
        report = json.loads((folder / "post_mortem.rank_0000.json").read_text())
        self.assertGreaterEqual(report["skipped_steps"], 4)
        self.assertLessEqual(report["skipped_steps"], 9)  # looked for every 4 steps
        found = [r["step"] for r in records(folder, "step")]
        self.assertEqual((found[0], len(found)), (1, 2))  # and one of all steps since, at the end
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
