"""Runs without data: made-up batches, and one batch again and again."""

import json

from support import (GRADIENT_F32, EndToEnd, bertha, checkpoints, command, main, must, mllog, records,
                     run, steps)

NO_DATA = dict(data__train="", data__eval="", data__vocab="")


class Synthetic(EndToEnd):
    def made_up(self, folder, ranks=0, code=0, **changes):
        return self.train(folder, ranks=ranks, code=code, data__synthetic=True,
                          **{**NO_DATA, **changes})

    def test_a_run_needs_no_file_and_says_first_that_it_learns_nothing(self):
        folder = self.new_folder()
        done = self.made_up(folder, ranks=2, train__target_accuracy=0.99)
        self.assertIn("  accuracy  ", done.out)
        self.assertNotIn("target", done.out)
        lines = done.err.splitlines()
        self.assertIn("the data are synthetic", lines[0])
        self.assertIn("accuracies mean nothing", lines[0])
        self.assertEqual([e["step"] for e in records(folder, "eval")], [6, 12])
        self.assertEqual(checkpoints(folder), ["step_00000012"])
        values = {r["key"]: r["value"] for r in mllog(folder / "mllog" / "result_0.txt")}
        self.assertEqual(values["submission_division"], "open")
        self.assertEqual(values["eval_samples"], 1024)

    def test_batches_are_the_same_for_every_number_of_ranks_and_exchange(self):
        runs = []
        for ranks, exchange in ((1, "lengths"), (3, "lengths"), (2, "off")):
            folder = self.new_folder()
            self.made_up(folder, ranks=ranks, data__exchange_padding=exchange,
                         eval__max_samples=101)
            runs.append((steps(folder), records(folder, "eval")))
        for others, evals in runs[1:]:
            for step, record in runs[0][0].items():
                bound = step * GRADIENT_F32 * record["loss"]
                self.assertAlmostEqual(record["loss"], others[step]["loss"], delta=bound)
            for one, other in zip(runs[0][1], evals):
                self.assertAlmostEqual(one["mlm_loss"], other["mlm_loss"],
                                       delta=12 * GRADIENT_F32 * one["mlm_loss"])

    def test_a_stopped_run_goes_on_with_the_same_batches(self):
        whole, folder = self.new_folder(), self.new_folder()
        self.made_up(whole)
        self.made_up(folder, train__max_steps=5)
        self.made_up(folder)
        self.assertEqual([r["loss"] for r in steps(whole).values()],
                         [r["loss"] for r in steps(folder).values()])
        self.assertGreater(len({r["loss"] for r in steps(whole).values()}), 10)
        lengths = self.scratch / "lengths.txt"
        lengths.write_text("10 1\n32 2\n")
        done = bertha("train", *self.data.config(log__run_dir=folder, data__synthetic=True,
                                                 data__synthetic_lengths=lengths, **NO_DATA))
        self.assert_failure(done, 2, "other data than data.synthetic gives", lengths)
        done = bertha("train", *self.data.config(log__run_dir=folder))
        self.assert_failure(done, 2, "was trained on other shards")

    def test_lengths_follow_the_histogram(self):
        lengths = self.scratch / "fixed.txt"
        lengths.write_text("20 1\n")
        output = self.new_folder("dump")
        must("data", "dump-batches", "--steps", 2, "--output", output,
             *self.data.config(data__synthetic=True, data__synthetic_lengths=lengths,
                               **NO_DATA))
        with open(output / "batch_00000002.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual(header["input_ids"]["shape"], [12 * 20])
        lengths.write_text("20 x\n")
        done = bertha("train", *self.data.config(data__synthetic=True,
                                                 log__run_dir=self.new_folder(),
                                                 data__synthetic_lengths=lengths, **NO_DATA))
        self.assert_failure(done, 4, f"{lengths}:1: found")

    def test_lengths_that_differ_between_nodes_are_refused(self):
        nodes = self.new_folder("nodes")
        for rank, lengths in enumerate(("10 1\n32 2\n", "10 1\n32 3\n")):
            (nodes / str(rank)).mkdir(parents=True)
            (nodes / str(rank) / "lengths.txt").write_text(lengths)
        in_its_folder = ["sh", "-c", 'cd "$OMPI_COMM_WORLD_RANK" && exec "$0" "$@"']
        words = command(["train", *self.data.config(
            data__synthetic=True, data__synthetic_lengths="lengths.txt",
            log__run_dir=self.new_folder(), **NO_DATA)], 2, in_its_folder)
        self.assert_failure(run(words, cwd=nodes), 4, "data.synthetic_lengths: lengths.txt",
                            "rank 1 read other lengths than rank 0")
        (nodes / "1" / "lengths.txt").write_text("# the same\n32 2\n10 1\n")
        self.assertEqual(run(words, cwd=nodes).code, 0)

    def test_a_vocabulary_without_special_ids_is_refused(self):
        folder = self.new_folder()
        done = bertha("train", *self.data.config(log__run_dir=folder, data__synthetic=True,
                                                 **{**NO_DATA, "model__vocab_size": 96}), ranks=2)
        self.assert_failure(done, 2, "model.vocab_size is 96", "want more than 104")

    def test_the_command_that_follows_evaluates_on_the_same_set(self):
        folder = self.new_folder()
        self.made_up(folder)
        done = must("eval", "--config", folder / "resolved.yaml", "--checkpoint", folder)
        self.assertIn(f"{records(folder, 'eval')[-1]['mlm_accuracy']:.4f}", done.out)
        self.assertIn("accuracies mean nothing", done.err)


class OneBatch(EndToEnd):
    ADAMW = dict(optimizer__name="adamw", optimizer__schedule_steps=10**6,
                 eval__every_samples=10**9)

    def overfit(self, folder, last, ranks=0, **changes):
        return self.train(folder, ranks=ranks, train__overfit_one_batch=True,
                          train__max_steps=last, **self.ADAMW, **changes)

    def test_the_loss_of_one_batch_goes_to_zero(self):
        for ranks, made_up in ((2, {}), (0, dict(data__synthetic=True, **NO_DATA))):
            folder = self.new_folder()
            done = self.overfit(folder, 300, ranks=ranks, **made_up)
            self.assertIn("every step trains on the first batch", done.err)
            self.assertGreater(steps(folder)[1]["loss"], 5)
            self.assertLess(steps(folder)[300]["loss"], 0.05)
        normal = self.new_folder()
        self.train(normal, train__max_steps=300, mlperf__division="open", **self.ADAMW)
        self.assertGreater(steps(normal)[300]["loss"], 1)

    def test_a_stopped_run_goes_on_with_its_first_batch(self):
        whole, folder = self.new_folder(), self.new_folder()
        self.overfit(whole, 8)
        self.overfit(folder, 5)
        self.overfit(folder, 8)
        self.assertEqual([r["loss"] for r in steps(whole).values()],
                         [r["loss"] for r in steps(folder).values()])


if __name__ == "__main__":
    main()
