"""A jump of the gradient norm or the loss is told of; where asked for, its update is skipped or the
run goes back and leaves out what led there."""

import json
import math
import random
import shutil

from support import VOCAB_SIZE, EndToEnd, main, records, steps

CALM_STEPS = 40  # more than it takes to know what is usual
JUMP = {"optimizer__name": "adamw", "train__log_every_steps": 1,
        "eval__every_samples": 10**9, "optimizer__schedule_steps": 100000}


class Spike(EndToEnd):
    """A run trains calmly, then goes on with a learning rate that no model survives."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.calm = cls.new_folder("calm")
        cls().train(cls.calm, ranks=2, train__max_steps=CALM_STEPS,
                    optimizer__base_learning_rate=0.001, **JUMP)
        cls.checkpoint = cls.calm / "ckpt" / f"step_{CALM_STEPS:08}"

    def go_on(self, steps_more, code=0, ranks=2, **changes):
        folder = self.new_folder()
        done = self.train(folder, ranks=ranks, code=code, train__max_steps=CALM_STEPS + steps_more,
                          optimizer__base_learning_rate=10, checkpoint__resume=self.checkpoint,
                          **JUMP, **changes)
        return folder, done

    def told(self, folder):
        return [event["text"] for event in records(folder, "event")
                if event["text"].startswith("the gradient norm of step ")]

    def test_a_calm_run_has_none(self):
        self.assertEqual(self.told(self.calm), [])
        self.assertEqual(steps(self.calm)[CALM_STEPS]["spikes"], 0)

    def test_it_is_told_of_with_step_norm_and_advice(self):
        folder, done = self.go_on(6)
        told = self.told(folder)
        self.assertTrue(told, done)
        self.assertIn("times the usual", told[0])
        self.assertIn("its update was applied", told[0])
        self.assertIn("optimizer.gradient_spike", told[0])
        self.assertIn("warning: " + told[0], done.err)
        last = steps(folder)[CALM_STEPS + 6]
        self.assertGreater(last["spikes"], 0)
        self.assertEqual(last["skipped_steps"], 0)

    def test_its_update_is_skipped_where_asked(self):
        folder, done = self.go_on(6, optimizer__gradient_spike="skip")
        told = self.told(folder)
        self.assertTrue(told, done)
        self.assertIn("its update was skipped", told[0])
        last = steps(folder)[CALM_STEPS + 6]
        self.assertGreater(last["skipped_steps"], 0)
        self.assertEqual(last["spikes"], last["skipped_steps"])

    def test_too_many_in_a_row_end_the_run(self):
        folder, done = self.go_on(60, code=7, optimizer__gradient_spike="skip",
                                  train__stop_after_skips=2)
        self.assertIn("or its norm a spike", records(folder, "event")[-1]["text"], done)

    def reports(self, ranks, **changes):
        """The post-mortems of a run that ended, and its folder."""
        folder, _ = self.go_on(60, code=7, ranks=ranks, optimizer__gradient_spike="skip",
                               train__stop_after_skips=2, **changes)
        return [json.loads((folder / f"post_mortem.rank_{rank:04}.json").read_text())
                for rank in range(max(ranks, 1))], folder

    def test_its_last_step_is_written_tensor_by_tensor(self):
        reports, folder = self.reports(2, train__precision="fp8", train__accumulation_steps=2,
                                       model__hidden_dropout=0.1, model__attention_dropout=0.1)
        last = records(folder, "step")[-1]
        for report in reports:
            self.assertEqual((report["step"], report["skipped_steps"]),
                             (last["step"], last["skipped_steps"]))
            self.assertEqual(report["not_finite"], [])
            self.assertTrue(report["fp8_scale_exponents"])
            names = [figure["name"] for figure in report["figures"]]
            self.assertEqual(len(set(names)), len(names))
            for name in ("micro-batch 1: layer.1.feed_forward.sum",
                         "micro-batch 2: layer.1.attention.context",
                         "gradient of embeddings.word.weight"):
                self.assertIn(name, names)
            self.assertEqual([len(ids) for ids in report["sample_ids"]], [3, 3])
        # The ranks have the same weights, and samples of their own.
        self.assertEqual(reports[0]["weights"], reports[1]["weights"])
        self.assertEqual(len({i for report in reports for ids in report["sample_ids"] for i in ids}), 12)

    def test_its_figures_are_those_of_the_step(self):
        (report,), folder = self.reports(0)
        self.assertEqual(report["fp8_scale_exponents"], [])
        squares = sum(figure["elements"] * figure["rms"]**2 for figure in report["figures"]
                      if figure["name"].startswith("gradient of "))
        norm = steps(folder)[report["step"]]["gradient_norm"]
        self.assertAlmostEqual(math.sqrt(squares) / norm, 1, 4)

    def test_a_resume_goes_on_with_what_is_usual(self):
        whole, part = self.new_folder(), self.new_folder()
        calm = dict(JUMP, optimizer__base_learning_rate=0.001)
        self.train(whole, ranks=2, train__max_steps=CALM_STEPS + 4, **calm)
        self.train(part, ranks=2, train__max_steps=CALM_STEPS + 4,
                   checkpoint__resume=self.checkpoint, **calm)
        name = f"ckpt/step_{CALM_STEPS + 4:08}/model.safetensors"
        self.assertEqual((whole / name).read_bytes(), (part / name).read_bytes())

    def test_a_run_that_goes_back_three_times_in_vain_ends(self):
        folder, done = self.go_on(60, code=7, optimizer__gradient_spike="rewind",
                                  checkpoint__every_steps=50)
        texts = [event["text"] for event in records(folder, "event")]
        back = [text for text in texts if text.startswith("returned to step ")]
        self.assertEqual(len(back), 3, done)
        for i, text in enumerate(back):
            self.assertIn(f"returned to step {CALM_STEPS} ({self.checkpoint})", text)
            self.assertIn(f"rewind {i + 1} of at most 3 ", text)
        self.assertIn("rewound 3 times", texts[-1])
        self.assertEqual(records(folder, "stop")[-1]["status"], "aborted")


class BadShard(EndToEnd):
    """Among the shards is one of noise, which a run that has learned the others meets at NOISE_STEP."""

    EVERY_STEPS, LAST_STEP = 10, 60
    NOISE_STEP, NOISE_STEPS, SEED = 40, 2, 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = random.Random(5)
        text = cls.scratch / "noise.txt"
        line = lambda: " ".join(draw.choice("bcdfghjklmnpqrstvwxz") for _ in range(12))
        text.write_text("\n".join(f"{line()}\n{line()}\n" for _ in range(12)) + "\n")
        noise = cls.scratch / "noise"
        cls.data.prepare(text, noise, "--duplication", 1, "--shards", 1)
        cls.mixed = cls.scratch / "mixed"
        cls.mixed.mkdir()
        for i, shard in enumerate([*sorted(cls.data.train.glob("*.hdf5")), *noise.glob("*.hdf5")]):
            shutil.copy(shard, cls.mixed / f"part_{i:05}.hdf5")

    def run_to(self, folder, last_step, ranks=2, **changes):
        return self.train(folder, ranks=ranks, **{**JUMP, **dict(
            data__train=self.mixed, data__verify_manifest=False, data__window_shards=1,
            train__seed=self.SEED, train__max_steps=last_step, optimizer__base_learning_rate=0.01,
            checkpoint__every_steps=self.EVERY_STEPS, checkpoint__keep=100), **changes})

    def texts(self, folder, begin):
        return [e["text"] for e in records(folder, "event") if e["text"].startswith(begin)]

    def test_a_jump_of_the_loss_is_told_of(self):
        folder = self.new_folder()
        self.run_to(folder, self.NOISE_STEP + 1)
        told = self.texts(folder, "the masked-token loss jumped to ")
        self.assertIn(f"in the 1 step to step {self.NOISE_STEP} from the usual", told[0])
        loss = {step: record["mlm_loss"] for step, record in steps(folder).items()}
        self.assertGreater(loss[self.NOISE_STEP] - loss[self.NOISE_STEP - 1],
                           math.log(VOCAB_SIZE) / 4)
        self.assertEqual(self.texts(folder, "returned to step"), [])

    def check(self, ranks):
        folder = self.new_folder()
        self.run_to(folder, self.LAST_STEP, ranks, optimizer__gradient_spike="rewind")
        back = self.texts(folder, "returned to step ")
        self.assertEqual(len(back), self.NOISE_STEPS, back)
        before = self.NOISE_STEP - self.EVERY_STEPS
        self.assertIn(f"returned to step {before} ({folder}/ckpt/step_{before:08}) and leaves out the "
                      f"{self.EVERY_STEPS} batches from there to step {self.NOISE_STEP}: rewind 1 of at most 3", back[0])
        left_out = self.EVERY_STEPS + self.NOISE_STEPS - 1
        losses = [record["mlm_loss"] for record in steps(folder).values()]
        self.assertLess(max(losses[-20:]), math.log(VOCAB_SIZE) - 1)
        last = f"ckpt/step_{self.LAST_STEP:08}"
        state = json.loads((folder / last / "state.json").read_text())
        self.assertEqual((state["step"], state["batches_left_out"]), (self.LAST_STEP, left_out))
        # The skipped steps are on no checkpoint's account.
        self.assertEqual(state["optimizer"]["successful_steps"], self.LAST_STEP)

        # A run that stops on the way goes on to the same weights: before the noise, which it then
        # meets and leaves out in the same way, and after it.
        for stop in (before + 5, self.LAST_STEP - 7):
            part = self.new_folder()
            for end in (stop, self.LAST_STEP):
                self.run_to(part, end, ranks, optimizer__gradient_spike="rewind")
            files = sorted(path.name for path in (folder / last).glob("*.safetensors"))
            self.assertEqual(len(files), 1 + max(ranks, 1))
            for name in files:
                self.assertEqual((folder / last / name).read_bytes(),
                                 (part / last / name).read_bytes(), (stop, name))

    def test_a_run_goes_back_and_leaves_the_noise_out(self):
        self.check(2)

    def test_in_one_process(self):
        self.check(0)


if __name__ == "__main__":
    main()
