"""How a run ends by itself: target, plan, samples, time limit, each with its exit code."""

import os
import re
import shlex

from support import EndToEnd, bertha, checkpoints, main, mllog, must, records, steps


class Ends(EndToEnd):
    def stop_status(self, folder):
        return records(folder, "stop")[-1]["status"]

    def test_a_reached_target_ends_the_run_with_0(self):
        folder = self.new_folder()
        done = self.train(folder, ranks=2, train__target_accuracy=0.01,
                          optimizer__base_learning_rate=0.02, train__max_steps=200,
                          optimizer__schedule_steps=400)
        evals = records(folder, "eval")
        self.assertGreaterEqual(evals[-1]["mlm_accuracy"], 0.01)
        self.assertTrue(all(e["mlm_accuracy"] < 0.01 for e in evals[:-1]))
        self.assertLess(max(steps(folder)), 200)
        self.assertEqual(evals[-1]["step"], max(steps(folder)))
        self.assertEqual(self.stop_status(folder), "success")
        self.assertIn("target", done.out)

    def test_a_missed_target_ends_the_run_with_3(self):
        folder = self.new_folder()
        self.train(folder, ranks=2, code=3, train__target_accuracy=0.99, train__max_steps=7)
        self.assertEqual(self.stop_status(folder), "aborted")
        log = mllog(folder / "mllog" / "result_0.txt")
        self.assertEqual(log[-1]["metadata"]["status"], "aborted")
        self.assertEqual(checkpoints(folder), ["step_00000007"])
        # The last step is evaluated even when the plan has no evaluation there.
        self.assertEqual([e["step"] for e in records(folder, "eval")], [6, 7])

    def next_command(self, done):
        """The words after `bertha` in the last line of the summary."""
        found = re.search(r"^  next +bertha (.+)$", done.out, re.MULTILINE)
        self.assertIsNotNone(found, done)
        return shlex.split(found.group(1))

    def test_the_command_after_the_end_of_the_schedule_is_a_longer_run_of_its_own(self):
        folder = self.new_folder()
        done = self.train(folder, code=3, train__target_accuracy=0.99, train__max_steps=3,
                          optimizer__schedule_steps=0)
        again = bertha(*self.next_command(done))
        self.assertEqual(again.code, 3, again)
        self.assertNotIn("learning rate changes", again.err)
        self.assertEqual(max(steps(folder)), 3)
        longer = folder.with_name(folder.name + "-6-steps")
        self.assertEqual(sorted(steps(longer)), [1, 2, 3, 4, 5, 6])
        self.assertAlmostEqual(steps(longer)[4]["learning_rate"], 0.01 * (1 - 3 / 6), 7)

    def test_the_command_after_a_missed_target_goes_on_with_the_schedule(self):
        folder = self.new_folder()
        done = self.train(folder, code=3, train__target_accuracy=0.99, train__max_steps=3,
                          checkpoint__resume="never")
        again = bertha(*self.next_command(done))
        self.assertEqual(again.code, 3, again)
        self.assertNotIn("learning rate changes", again.err)
        self.assertEqual(sorted(steps(folder)), [1, 2, 3, 4, 5, 6])

    def test_the_command_after_a_success_evaluates_the_checkpoint(self):
        folder = self.new_folder("it's my run")
        done = self.train(folder, train__max_steps=2)
        must(*self.next_command(done))

    def test_max_samples_ends_the_run(self):
        folder = self.new_folder()
        done = self.train(folder, ranks=2, train__max_samples=50)
        self.assertEqual(max(steps(folder)), 5)  # the first step at or beyond 50 samples of 12 each
        self.assertEqual(steps(folder)[5]["samples"], 60)
        self.assertRegex(done.out + done.err, r"step 5/5\b.* 0s")

    def test_the_steps_since_the_last_record_have_one_at_the_end(self):
        every, some = self.new_folder(), self.new_folder()
        self.train(every, ranks=2, train__max_samples=72)
        self.train(some, ranks=2, train__max_samples=72, train__log_every_steps=4)
        self.assertEqual(sorted(steps(some)), [1, 4, 6])
        single = [steps(every)[step]["mlm_loss"] for step in (5, 6)]
        self.assertGreaterEqual(steps(some)[6]["mlm_loss"], min(single))
        self.assertLessEqual(steps(some)[6]["mlm_loss"], max(single))

    def test_without_a_checkpoint_at_the_end_none_is_written(self):
        folder = self.new_folder()
        self.train(folder, train__max_steps=2, checkpoint__at_end=False)
        self.assertEqual(checkpoints(folder), [])

    def test_no_steps_evaluate_and_save_the_weights_of_the_start(self):
        folder = self.new_folder()
        self.train(folder, train__max_steps=0)
        self.assertEqual([e["step"] for e in records(folder, "eval")], [0])
        self.assertEqual((steps(folder), checkpoints(folder)), ({}, ["step_00000000"]))
        self.assertEqual(self.stop_status(folder), "success")
        # The weights are those that the run is given, which the evaluation command finds too.
        trained, again = self.new_folder(), self.new_folder()
        self.train(trained, train__max_steps=6)
        init = trained / "ckpt" / "step_00000006"
        done = self.train(again, ranks=2, code=3, train__max_steps=0, checkpoint__init=init,
                          train__target_accuracy=0.99)
        self.assertIn("next          bertha eval", done.out)
        self.assertAlmostEqual(records(again, "eval")[0]["mlm_accuracy"],
                               records(trained, "eval")[-1]["mlm_accuracy"], 7)
        saved = again / "ckpt" / "step_00000000"
        self.assertEqual((init / "model.safetensors").read_bytes(),
                         (saved / "model.safetensors").read_bytes())
        # And a longer run goes on from them.
        self.train(again, train__max_steps=2)
        self.assertEqual(records(again, "run")[-1]["first_step"], 0)
        self.assertEqual(sorted(steps(again)), [1, 2])

    def test_the_best_checkpoint_and_multiples_are_kept_beside_the_newest(self):
        folder = self.new_folder()
        # The learning rate ruins the model soon, so that its best evaluation comes early.
        settings = dict(checkpoint__every_steps=2, checkpoint__keep=1, checkpoint__keep_best=True,
                        checkpoint__keep_every_steps=8, eval__every_samples=36,
                        optimizer__base_learning_rate=0.5, optimizer__schedule_steps=100)
        for last in (14, 26):
            self.train(folder, ranks=2, **settings, train__max_steps=last)
            accuracies = {e["step"]: e["mlm_accuracy"] for e in records(folder, "eval")}
            best = max(sorted(accuracies), key=accuracies.get)
            kept = {best, last} | set(range(8, last + 1, 8))
            self.assertEqual(checkpoints(folder), [f"step_{step:08d}" for step in sorted(kept)])
            self.assertEqual(os.readlink(folder / "ckpt" / "best"), f"step_{best:08d}")
        self.assertLess(best, last - 2, "the test wants a best checkpoint among old ones")
        done = bertha("checkpoint", "show", folder)
        shown = {line.split()[0]: line for line in done.out.splitlines() if line.startswith("  ")}
        self.assertEqual(sorted(shown), checkpoints(folder), done)
        self.assertIn(f"accuracy {accuracies[best]:.4f}  best", shown[f"step_{best:08d}"])
        self.assertIn("kept for good", shown["step_00000008"])
        self.assertIn("newest", shown[f"step_{last:08d}"])
        done = must("eval", "--config", folder / "resolved.yaml", "--checkpoint",
                    folder / "ckpt" / "best")
        self.assertIn(f"masked-token accuracy    {accuracies[best]:.4f}", done.out)
        # Without an evaluation that is better, nothing is saved but what was asked for.
        other = self.new_folder()
        self.train(other, **dict(settings, checkpoint__keep_every_steps=0, checkpoint__every_steps=0,
                                 checkpoint__keep_best=False), train__max_steps=26)
        self.assertEqual(checkpoints(other), ["step_00000026"])
        self.assertFalse((other / "ckpt" / "best").exists())

    def test_the_time_limit_saves_and_ends_with_75(self):
        folder = self.new_folder()
        # The limit counts from the start of the process; ranks on GPUs take seconds before a step.
        one_step = self.train(self.new_folder(), ranks=2, train__max_steps=1).seconds
        done = self.train(folder, ranks=2, code=75, train__max_steps=10**6,
                          train__time_limit_minutes=(one_step + 1) / 60, eval__every_samples=10**9,
                          checkpoint__at_end=False)  # the end is not what this is
        self.assertEqual(checkpoints(folder), [f"step_{max(steps(folder)):08d}"])
        self.assertLess(done.seconds, one_step + 30)
        self.assertEqual(self.stop_status(folder), "aborted")


if __name__ == "__main__":
    main()
