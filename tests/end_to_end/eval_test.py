"""Evaluation covers the whole set once, whatever its size, the ranks and the batches."""

import json
import re

from support import LOSS_F32, EndToEnd, Running, bertha, checkpoints, main, must, records


class Eval(EndToEnd):
    SEQS = 37  # divisible by none of the ranks and batches below

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.new_folder("trained")
        cls().train(cls.run_folder, ranks=2, train__max_steps=40, optimizer__schedule_steps=60,
                    optimizer__base_learning_rate=0.02)
        cls.checkpoint = cls.run_folder / "ckpt" / "step_00000040"

    def evaluate(self, ranks, code=0, **changes):
        done = bertha("eval", "--checkpoint", self.checkpoint, *self.data.config(**changes),
                      ranks=ranks)
        self.assertEqual(done.code, code, done)
        found = {}
        for name in ("sequences", "masked tokens", "masked-token accuracy", "masked-token loss",
                     "next-sentence accuracy", "constant answer scores"):
            values = re.findall(rf"^{name} +([0-9.]+)", done.out, re.M)
            self.assertEqual(len(values), 1, done)  # printed by one rank
            found[name] = float(values[0])
        return found

    def test_every_number_of_ranks_and_batches_gives_the_same(self):
        alone = self.evaluate(0)
        self.assertEqual(alone["sequences"], self.SEQS)
        self.assertGreater(alone["masked-token accuracy"], 0)
        for ranks, batch in ((1, 1), (2, 8), (3, 8), (4, 5), (3, 64), (2, 37)):
            self.assertEqual(self.evaluate(ranks, eval__batch_seqs=batch), alone)

    def test_the_evaluation_inside_of_training_is_the_same(self):
        trained = records(self.run_folder, "eval")[-1]
        found = self.evaluate(3)
        self.assertEqual(trained["step"], 40)
        self.assertAlmostEqual(trained["mlm_accuracy"], found["masked-token accuracy"], delta=5e-5)
        self.assertAlmostEqual(trained["nsp_accuracy"], found["next-sentence accuracy"], delta=5e-5)
        # Printed with four places.
        self.assertAlmostEqual(trained["mlm_loss"], found["masked-token loss"],
                               delta=5e-5 + 40 * LOSS_F32)
        self.assertEqual(records(self.run_folder, "data")[0]["eval_samples"], self.SEQS)

    def test_fp8_evaluates_with_the_scales_of_the_run(self):
        folder = self.new_folder("fp8")
        self.train(folder, ranks=2, train__max_steps=6, train__precision="fp8")
        trained = records(folder, "eval")[-1]
        checkpoint = folder / "ckpt" / "step_00000006"
        done = must("eval", "--checkpoint", checkpoint, *self.data.config(train__precision="fp8"))
        loss = float(re.search(r"^masked-token loss +([0-9.]+)", done.out, re.M)[1])
        self.assertAlmostEqual(loss, trained["mlm_loss"], delta=5e-5 + 40 * LOSS_F32)
        done = bertha("eval", "--checkpoint", self.checkpoint,  # of a run in fp32
                      *self.data.config(train__precision="fp8"))
        self.assertEqual(done.code, 4, done)
        self.assertIn("has no fp8 scales", done.err)

    def test_training_over_any_number_of_ranks_evaluates_the_same(self):
        evals = []
        for ranks in (1, 2, 3):
            folder = self.new_folder()
            # One step with a rate too small to move any weight far: the weights are those of init.
            self.train(folder, ranks=ranks, checkpoint__init=self.checkpoint, train__max_steps=1,
                       optimizer__base_learning_rate=1e-12)
            evals.append(records(folder, "eval"))
        for found in evals:
            self.assertEqual(len(found), 1)
            self.assertEqual(found[0]["mlm_accuracy"], evals[0][0]["mlm_accuracy"])
            self.assertEqual(found[0]["nsp_accuracy"], evals[0][0]["nsp_accuracy"])
            self.assertAlmostEqual(found[0]["mlm_loss"], evals[0][0]["mlm_loss"], delta=10 * LOSS_F32)

    def test_a_part_of_the_set(self):
        part = self.evaluate(3, eval__max_samples=10)
        self.assertEqual(part["sequences"], 10)
        self.assertLess(part["masked tokens"], self.evaluate(0)["masked tokens"])
        # More ranks than sequences leave some without any.
        self.assertEqual(self.evaluate(4, eval__max_samples=3)["sequences"], 3)

    def test_the_exit_code_tells_of_the_target(self):
        self.evaluate(2, code=3, train__target_accuracy=0.999)
        self.evaluate(2, code=0, train__target_accuracy=0.001)

    def test_the_same_figures_as_json(self):
        path = self.new_folder().with_suffix(".json")
        arguments = ("eval", "--checkpoint", self.checkpoint,
                     *self.data.config(train__target_accuracy=0.999), "--json")
        done = bertha(*arguments, path, ranks=2)
        self.assertEqual(done.code, 3, done)
        found = json.loads(path.read_text())
        self.assertEqual((found["command"], found["exit_code"]), ("eval", 3))
        self.assertEqual((found["checkpoint"], found["target_accuracy"]),
                         (str(self.checkpoint), 0.999))
        for name, value in self.evaluate(2).items():
            key = {"sequences": "seqs", "masked tokens": "masked_tokens",
                   "masked-token accuracy": "mlm_accuracy", "masked-token loss": "mlm_loss",
                   "next-sentence accuracy": "nsp_accuracy",
                   "constant answer scores": "constant_answer_accuracy"}[name]
            self.assertEqual(round(found[key], 4), value, name)
        done = bertha(*arguments, "-", ranks=2)
        self.assertEqual(json.loads(done.out), found)  # in place of the text

    def test_the_target_is_that_of_training(self):
        # One of 0.001 is reached; one of 100 times what a constant answer scores is not.
        done = bertha("eval", "--checkpoint", self.checkpoint,
                      *self.data.config(train__target_accuracy=0.001,
                                        train__target_times_constant=100))
        self.assertEqual(done.code, 3, done)
        constant = float(re.search(r"^constant answer scores +([0-9.]+)", done.out, re.M)[1])
        target = float(re.search(r"\(target ([0-9.]+) missed\)", done.out)[1])
        self.assertAlmostEqual(target, 100 * constant, delta=100 * 5e-5 + 5e-5)
        folder = self.new_folder()
        done = self.train(folder, code=3, train__target_accuracy=0.001, train__max_steps=2,
                          train__target_times_constant=100)
        self.assertEqual(done.err.count(f"(target {target:.4f})"), 1, done)
        self.assertIn(f"target        {target:.4f} masked-LM accuracy", done.out)
        recorded = records(folder, "data")[0]["target_accuracy"]
        self.assertAlmostEqual(recorded, target, delta=5e-5)

    def test_a_run_folder_stands_for_its_newest_checkpoint(self):
        for ranks in (0, 2):
            done = must("eval", "--checkpoint", self.run_folder, *self.data.config(), ranks=ranks)
            self.assertIn(f"checkpoint               {self.checkpoint}\n", done.out)

    def test_settings_are_those_of_the_run_unless_given(self):
        wanted = must("eval", "--checkpoint", self.checkpoint, *self.data.config()).out
        for path in (self.run_folder, self.checkpoint):
            done = must("eval", "--checkpoint", path)
            self.assertEqual(done.out.splitlines()[1:], wanted.splitlines()[1:], done)
        done = must("eval", "--checkpoint", self.run_folder, "--set", "eval.max_samples=8")
        self.assertIn("sequences                8\n", done.out)

    def test_a_run_folder_gives_weights_to_start_from(self):
        folder = self.new_folder()
        self.train(folder, train__max_steps=1, checkpoint__init=self.run_folder)
        start = records(folder, "run")[0]["start_weights"]
        self.assertEqual(start, str(self.run_folder))
        empty = self.new_folder("no_checkpoint")
        (empty / "ckpt").mkdir(parents=True)
        done = bertha("train", *self.data.config(log__run_dir=folder, checkpoint__init=empty,
                                                 checkpoint__resume="never"))
        self.assert_failure(done, 4, "this run has not saved a checkpoint yet")

    def test_readers_of_a_run_that_saves_at_every_step_find_a_checkpoint(self):
        folder = self.new_folder()
        changes = dict(log__run_dir=folder, checkpoint__every_steps=1, checkpoint__keep=2,
                       train__max_steps=10**6, optimizer__schedule_steps=10**6,
                       eval__every_samples=10**9)
        with Running("train", *self.data.config(**changes)) as run:
            run.wait_for(lambda: checkpoints(folder), "a checkpoint")
            for n in range(12):
                for words in (["eval", "--checkpoint", folder], ["checkpoint", "verify", folder],
                              ["checkpoint", "show", folder],
                              ["checkpoint", "export", folder, "-o", self.new_folder("model")]):
                    must(*words)

    def test_evaluation_changes_nothing(self):
        before = {p: p.stat().st_mtime_ns for p in self.run_folder.rglob("*")}
        self.evaluate(2)
        self.assertEqual({p: p.stat().st_mtime_ns for p in self.run_folder.rglob("*")}, before)


if __name__ == "__main__":
    main()
