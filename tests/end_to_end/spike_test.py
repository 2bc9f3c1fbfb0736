"""A jump of the gradient norm is told of, and its update skipped where that is asked for."""

from support import EndToEnd, main, records, steps

CALM_STEPS = 40  # more than it takes to know what is usual
JUMP = {"optimizer__trust_ratio": False, "mlperf__division": "open", "train__log_every_steps": 1,
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

    def go_on(self, steps_more, code=0, **changes):
        folder = self.new_folder()
        done = self.train(folder, ranks=2, code=code, train__max_steps=CALM_STEPS + steps_more,
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
        self.assertIn("its update was made", told[0])
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

    def test_a_resume_goes_on_with_what_is_usual(self):
        whole, part = self.new_folder(), self.new_folder()
        calm = dict(JUMP, optimizer__base_learning_rate=0.001)
        self.train(whole, ranks=2, train__max_steps=CALM_STEPS + 4, **calm)
        self.train(part, ranks=2, train__max_steps=CALM_STEPS + 4,
                   checkpoint__resume=self.checkpoint, **calm)
        name = f"ckpt/step_{CALM_STEPS + 4:08}/model.safetensors"
        self.assertEqual((whole / name).read_bytes(), (part / name).read_bytes())


if __name__ == "__main__":
    main()
