"""A run that was stopped and resumed ends as if it had not been stopped."""

import hashlib
import json
import os
import shutil
import signal

from support import (MAX_MASKED, MAX_SEQ_TOKENS, EndToEnd, Running, bertha, checkpoints, main, must,
                     records, steps, steps_so_far, tree)

# What a record says about the training itself, not about the clock.
EXACT = ("samples", "loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "learning_rate",
         "gradient_norm", "loss_scale", "skipped_steps")


class Resume(EndToEnd):
    STEPS = 10

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole = {}

    def settings(self, **changes):
        """Dropout, accumulation and shuffling over epochs: all that has a position to restore."""
        return dict(model__hidden_dropout=0.1, model__attention_dropout=0.1,
                    train__accumulation_steps=2, train__max_steps=self.STEPS,
                    optimizer__warmup_steps=3, **changes)

    def uninterrupted(self, ranks):
        if ranks not in self.whole:
            self.whole[ranks] = self.new_folder(f"whole{ranks}")
            self.train(self.whole[ranks], ranks=ranks, **self.settings())
        return self.whole[ranks]

    def assert_same_end(self, whole, folder, first_step):
        """All files are the same, but for the clock and the evaluations at the stops."""
        name = f"step_{self.STEPS:08d}"
        ours, theirs = tree(whole / "ckpt" / name), tree(folder / "ckpt" / name)
        self.assertEqual(sorted(ours), sorted(theirs))
        weights = [file for file in ours if file.endswith(".safetensors")]
        self.assertGreaterEqual(len(weights), 2, weights)
        for file in ours:
            if file in ("state.json", "DONE"):  # the seconds that the training took
                continue
            self.assertEqual(ours[file], theirs[file], f"{file} differs")
        states = [json.loads(files["state.json"]) for files in (ours, theirs)]
        planned = {e["step"] for e in states[0]["evals"]}
        for state in states:
            self.assertGreater(state.pop("training_seconds"), 0)
            state.pop("joules", None)
            state["evals"] = [e for e in state["evals"] if e["step"] in planned]
        self.assertEqual(states[0], states[1])
        a, b = steps(whole), steps(folder)
        for step in range(1, self.STEPS + 1):
            for key in EXACT:
                self.assertEqual(a[step][key], b[step][key], f"{key} of step {step}")
        self.assertEqual(records(folder, "run")[-1]["first_step"], first_step)
        pairs = [{e["step"]: (e["samples"], e["mlm_accuracy"], e["mlm_loss"])
                  for e in records(f, "eval")} for f in (whole, folder)]
        self.assertEqual(sorted(pairs[0]), [6, self.STEPS])
        for step, values in pairs[0].items():
            self.assertEqual(pairs[1][step], values)

    def test_fp8_is_exact(self):
        whole, folder = self.new_folder("whole"), self.new_folder("resumed")
        settings = self.settings(train__precision="fp8")
        self.train(whole, ranks=2, **settings)
        self.train(folder, ranks=2, **dict(settings, train__max_steps=5))
        self.train(folder, ranks=2, **settings)
        self.assert_same_end(whole, folder, 5)
        state = json.loads((whole / "ckpt" / f"step_{self.STEPS:08d}" / "state.json").read_text())
        self.assertGreater(len(set(state["fp8_scale_exponents"])), 2)

    def test_two_ranks_are_exact(self):
        folder = self.new_folder("resumed")
        self.train(folder, ranks=2, **dict(self.settings(), train__max_steps=7))
        self.assertEqual(checkpoints(folder), ["step_00000007"])
        self.train(folder, ranks=2, **self.settings())
        self.assert_same_end(self.uninterrupted(2), folder, 7)

    def test_dynamic_masks_are_exact_and_leave_evaluation_alone(self):
        whole, folder = self.new_folder("whole"), self.new_folder("resumed")
        settings = self.settings(data__masking="dynamic", data__masked_fraction=0.2,
                                 data__whole_words="true", mlperf__division="open")
        self.train(whole, ranks=2, **settings)
        self.train(folder, ranks=2, **dict(settings, train__max_steps=7))
        self.train(folder, ranks=2, **settings)
        self.assert_same_end(whole, folder, 7)
        stored = steps(self.uninterrupted(2))
        self.assertTrue(all(s["loss"] != stored[n]["loss"] for n, s in steps(whole).items()))
        untrained = []
        for name, masking in (("stored", {}), ("dynamic", settings)):
            only = self.new_folder(f"evaluated_{name}")
            self.train(only, ranks=2, **dict(masking, train__max_steps=0))
            untrained += [(e["mlm_accuracy"], e["mlm_loss"]) for e in records(only, "eval")]
        self.assertEqual(len(untrained), 2)
        self.assertEqual(untrained[0], untrained[1])

    def test_three_ranks_with_small_buckets_are_exact(self):
        whole, folder = self.new_folder("whole"), self.new_folder("resumed")
        settings = self.settings(optimizer__bucket_mib=0.02)
        self.train(whole, ranks=3, **settings)
        self.train(folder, ranks=3, **dict(settings, train__max_steps=5))
        self.train(folder, ranks=3, **settings)
        self.assert_same_end(whole, folder, 5)

    def test_other_threads_are_exact(self):
        folder = self.new_folder("threads")
        for last, threads in ((4, 3), (self.STEPS, 2)):
            self.train(folder, ranks=1, **dict(self.settings(), train__max_steps=last,
                                               train__threads_per_rank=threads))
        self.assert_same_end(self.uninterrupted(1), folder, 4)

    def test_stopping_three_times_is_exact(self):
        folder = self.new_folder("often")
        for last in (1, 2, 9, self.STEPS):
            self.train(folder, ranks=1, **dict(self.settings(), train__max_steps=last))
        self.assert_same_end(self.uninterrupted(1), folder, 9)

    def test_evaluations_go_on_at_other_intervals(self):
        folder = self.new_folder("intervals")
        self.train(folder, train__max_steps=4, eval__every_samples=12, eval__start_samples=0)
        self.train(folder, train__max_steps=12, eval__every_samples=36, eval__start_samples=0)
        self.assertEqual([r["step"] for r in records(folder, "eval")], [1, 2, 3, 4, 6, 9, 12])
        self.train(folder, train__max_steps=14, eval__every_samples=12, eval__start_samples=0)
        self.assertEqual([r["step"] for r in records(folder, "eval")][-2:], [13, 14])

    def test_resuming_an_earlier_checkpoint_by_its_path_is_exact(self):
        first = self.new_folder("named")
        self.train(first, ranks=2, **self.settings(checkpoint__every_steps=2, checkpoint__keep=9))
        self.assertEqual(checkpoints(first), [f"step_{n:08d}" for n in (2, 4, 6, 8, 10)])
        folder = self.new_folder("from_named")
        self.train(folder, ranks=2, **self.settings(
            checkpoint__resume=first / "ckpt" / "step_00000006"))
        whole = self.uninterrupted(2)
        name = f"step_{self.STEPS:08d}/model.safetensors"
        self.assertEqual((whole / "ckpt" / name).read_bytes(),
                         (folder / "ckpt" / name).read_bytes())
        self.assertEqual(sorted(steps(folder)), [7, 8, 9, 10])

    def test_warming_up_leaves_no_trace(self):
        for ranks in (1, 2):
            folder = self.new_folder("warm")
            changes = self.settings(train__init_warmup_steps=3)
            self.train(folder, ranks=ranks, **dict(changes, train__max_steps=4))
            self.train(folder, ranks=ranks, **changes)
            self.assert_same_end(self.uninterrupted(ranks), folder, 4)

    def test_dropout_and_order_depend_on_the_seed(self):
        folder = self.new_folder("seed")
        self.train(folder, ranks=1, **dict(self.settings(), train__seed=4))
        self.assertNotEqual(steps(folder)[self.STEPS]["loss"],
                            steps(self.uninterrupted(1))[self.STEPS]["loss"])

    def test_a_signal_in_between_is_exact(self):
        folder = self.new_folder("signal")
        # Long enough to be hit, short of the schedule's end.
        changes = dict(self.settings(), train__max_steps=4000, optimizer__schedule_steps=5000,
                       eval__every_samples=10**7)
        with Running("train", *self.data.config(log__run_dir=folder, **changes), ranks=2) as run:
            run.wait_for(lambda: len(steps_so_far(folder)) >= 3, "three steps")
            os.kill(run.rank_processes()[0], signal.SIGUSR1)
            done = run.wait()
        self.assertEqual(done.code, 75, done)
        stopped = max(steps(folder))
        self.assertEqual(checkpoints(folder), [f"step_{stopped:08d}"])
        last = stopped + 3
        self.train(folder, ranks=2, **dict(changes, train__max_steps=last))
        whole = self.new_folder("no_signal")
        self.train(whole, ranks=2, **dict(changes, train__max_steps=last))
        a, b = steps(whole), steps(folder)
        for step in range(1, last + 1):
            for key in EXACT:
                self.assertEqual(a[step][key], b[step][key], f"{key} of step {step}")
        ours, theirs = (tree(f / f"ckpt/step_{last:08d}") for f in (whole, folder))
        for file in ours:
            if file.endswith(".safetensors"):
                self.assertEqual(ours[file], theirs[file], f"{file} differs")


class ChangedData(EndToEnd):
    """A run goes on with the data that it was trained on, wherever they lie, and with no other."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.other = cls.new_folder("other")
        cls.other.mkdir()
        cls.vocab = cls.other / "vocab.txt"
        words = cls.data.vocab.read_text().splitlines()
        the, stop = words.index("the"), words.index(".")
        words[the], words[stop] = words[stop], words[the]
        cls.vocab.write_text("\n".join(words) + "\n")
        for name, text, more in (("train", cls.data.text, ("--duplication", 2, "--shards", 3)),
                                 ("eval", cls.data.eval_text, ("--duplication", 1,
                                                               "--eval-samples", 37))):
            must("data", "prepare", "--text", text, "--vocab", cls.vocab, "--output",
                 cls.other / name, "--max-seq-tokens", MAX_SEQ_TOKENS, "--max-masked-per-seq",
                 MAX_MASKED, *more)
            ours, theirs = tree(cls.data.folder / name), tree(cls.other / name)
            shards = [file for file in ours if file.endswith(".hdf5")]
            assert [len(ours[s]) for s in shards] == [len(theirs[s]) for s in shards]
            assert all(ours[s] != theirs[s] for s in shards)

    def started(self, ranks=2, **changes):
        folder = self.new_folder()
        self.train(folder, ranks=ranks, train__max_steps=2, **changes)
        return folder

    def go_on(self, folder, last=4, **changes):
        return bertha("train", *self.data.config(log__run_dir=folder, train__max_steps=last,
                                                 **changes), ranks=2)

    def state(self, folder):
        return json.loads((folder / "ckpt" / checkpoints(folder)[-1] / "state.json").read_text())

    def test_data_made_again_with_another_vocabulary_are_refused(self):
        folder = self.started()
        done = self.go_on(folder, data__train=self.other / "train", data__vocab=self.vocab,
                          data__eval=self.other / "eval")
        self.assert_failure(done, 4, self.other / "train", "step_00000002", "prepared again",
                            self.state(folder)["data"]["content"], "checkpoint.resume to never")
        self.assertEqual(checkpoints(folder), ["step_00000002"])
        self.assertEqual(self.go_on(folder).code, 0)

    def test_data_that_were_moved_go_on(self):
        folder = self.started(checkpoint__keep_best=True)
        for name in ("train", "eval"):
            shutil.copytree(self.data.folder / name, folder / "moved" / name)
        done = self.go_on(folder, data__train=folder / "moved/train",
                          data__eval=folder / "moved/eval")
        self.assertEqual(done.code, 0, done)
        self.assertNotIn("data.eval", done.err)
        self.assertEqual([e["step"] for e in self.state(folder)["evals"]], [2, 4])

    def test_hashes_are_compared_once_they_are_known(self):
        folder = self.started(data__verify_manifest=False)  # as a checkpoint of before
        self.assertNotIn("content", self.state(folder)["data"])
        self.assertEqual(self.go_on(folder).code, 0)
        done = self.go_on(folder, 6, data__train=self.other / "train", data__vocab="")
        self.assert_failure(done, 4, self.other / "train", "prepared again")

    def test_another_vocabulary_is_refused_where_no_manifest_tells_of_it(self):
        folder = self.started(data__verify_manifest=False)
        done = self.go_on(folder, data__vocab=self.vocab, data__verify_manifest=False)
        self.assert_failure(done, 4, self.vocab, "ckpt/step_00000002/vocab.txt", *(
            hashlib.sha256(path.read_bytes()).hexdigest() for path in (self.vocab, self.data.vocab)))

    def test_other_evaluation_data_are_said_and_start_a_new_comparison(self):
        for changes in (dict(data__eval=self.other / "eval"), dict(eval__max_samples=20)):
            folder = self.started(checkpoint__keep_best=True, data__vocab="")
            self.assertEqual([e["step"] for e in self.state(folder)["evals"]], [2])
            done = self.go_on(folder, data__vocab="", checkpoint__keep_best=True, **changes)
            self.assertEqual(done.code, 0, done)
            self.assertEqual(done.err.count("differs from the run's earlier evaluation data"), 1, done)
            self.assertEqual([e["step"] for e in self.state(folder)["evals"]], [4])
            self.assertEqual((folder / "ckpt/best").readlink().name, "step_00000004")
            done = self.go_on(folder, 6, data__vocab="", checkpoint__keep_best=True, **changes)
            self.assertEqual(done.code, 0, done)
            self.assertNotIn("earlier evaluation data", done.err)
            self.assertEqual([e["step"] for e in self.state(folder)["evals"]], [4, 6])


if __name__ == "__main__":
    main()
