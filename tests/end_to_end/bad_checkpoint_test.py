"""Checkpoints that are torn, damaged or of another model are refused and stay as they are."""

import shutil

from support import EndToEnd, bertha, checkpoints, flip, main, records, steps, tree


class BadCheckpoint(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.new_folder("first")
        cls().train(cls.run_folder, ranks=2, train__max_steps=6, checkpoint__every_steps=3)
        cls.good = cls.run_folder / "ckpt" / "step_00000006"

    def copy(self, change):
        folder = self.new_folder("checkpoint")
        shutil.copytree(self.good, folder)
        change(folder)
        return folder

    def check(self, *texts, ranks=0, code=4, **changes):
        before = tree(self.run_folder)
        folder = self.new_folder()
        done = bertha("train", *self.data.config(log__run_dir=folder, **changes), ranks=ranks)
        self.assert_failure(done, code, *texts)
        self.assertEqual(checkpoints(folder), [])
        self.assertEqual(tree(self.run_folder), before)

    def test_a_flipped_byte_in_any_file(self):
        for name in sorted(p.name for p in self.good.iterdir() if p.name != "DONE"):
            with self.subTest(name):
                bad = self.copy(lambda folder, n=name: flip(folder / n))
                found = bertha("checkpoint", "show", bad)
                self.assertEqual(found.code, 4, found)
                self.assertIn(name, found.err)
                if name in ("config.json", "vocab.txt"):
                    continue  # not needed to resume
                self.check(bad / name, "damaged", checkpoint__resume=bad, ranks=2)

    def test_the_newest_checkpoint_of_a_run_is_checked_even_where_it_is_damaged(self):
        folder = self.new_folder("run")
        self.train(folder, train__max_steps=2, checkpoint__every_steps=1)
        newest = folder / "ckpt" / "step_00000002" / "model.safetensors"
        for change, code in (lambda path: None, 0), (flip, 4):
            change(newest)
            for command in (["verify", folder], ["show", folder], ["show", folder / "ckpt"]):
                with self.subTest(f"{command}, {code}"):
                    done = bertha("checkpoint", *command)
                    self.assertEqual(done.code, code, done)
                    if code:
                        self.assert_failure(done, code, newest, "damaged")

    def test_torn_checkpoints(self):
        bad = self.copy(lambda folder: (folder / "DONE").unlink())
        self.check(bad, "DONE", checkpoint__resume=bad)
        for name in ("model.safetensors", "state.json", "optimizer-00001-of-00002.safetensors"):
            with self.subTest(name):
                bad = self.copy(lambda folder, n=name: (folder / n).unlink())
                self.check(bad, checkpoint__resume=bad)
                bad = self.copy(lambda folder, n=name: (folder / n).write_bytes(
                    (folder / n).read_bytes()[:300]))
                self.check(bad / name, checkpoint__resume=bad)

    def test_no_checkpoint(self):
        self.check("/nowhere", checkpoint__resume="/nowhere")
        self.check("/nowhere", checkpoint__init="/nowhere")

    def test_another_shape(self):
        for changes in ({"model__hidden": 64}, {"model__layers": 3}, {"model__feed_forward": 128}):
            with self.subTest(str(changes)):
                self.check(self.good, "want", "model", ranks=2, checkpoint__resume=self.good, **changes)
                self.check(self.good / "config.json", "another shape", "remove these keys",
                           checkpoint__init=self.good, **changes)

    def test_another_seed(self):
        self.check(self.good, "train.seed 3", "found 9", code=2, checkpoint__resume=self.good,
                   train__seed=9)

    def test_another_position_in_the_data(self):
        for key, found, wanted in (("train.global_batch_seqs", 24, 12),
                                   ("data.order", "published", "windowed"),
                                   ("data.window_shards", 3, 2)):
            with self.subTest(key):
                self.check(self.good, f"{key} {wanted}, found {found}", f"set {key} to {wanted}",
                           "checkpoint.resume to never", code=2, checkpoint__resume=self.good,
                           ranks=2, **{key.replace(".", "__"): found})

    def test_the_published_order_on_other_ranks_and_micro_batches(self):
        run = self.new_folder("published")
        self.train(run, ranks=2, train__max_steps=2, data__order="published")
        saved = {"checkpoint__resume": run / "ckpt" / "step_00000002", "data__order": "published"}
        self.check("was trained on 2 ranks, found 1", "data.order published", code=2, **saved)
        self.check("train.accumulation_steps 1, found 3", code=2, ranks=2,
                   train__accumulation_steps=3, **saved)
        self.train(self.new_folder(), ranks=2, train__max_steps=3, **saved)

    def test_other_shards(self):
        moved, fewer = self.new_folder("moved"), self.new_folder("fewer")
        for folder in (moved, fewer):
            shutil.copytree(self.data.train, folder)
        sorted(fewer.glob("*part*"))[-1].unlink()
        self.check(self.good, "other shards", fewer, code=2, checkpoint__resume=self.good,
                   data__train=fewer, data__verify_manifest=False)
        self.train(self.new_folder("goes_on"), checkpoint__resume=self.good, data__train=moved,
                   train__max_steps=7)

    def test_no_sound_checkpoint(self):
        folder = self.new_folder("damaged")
        shutil.copytree(self.run_folder, folder)
        for path in (folder / "ckpt").iterdir():
            flip(path / "model.safetensors")
        before = tree(folder / "ckpt")
        done = bertha("train", *self.data.config(log__run_dir=folder), ranks=2)
        self.assert_failure(done, 4, "none of the 2 checkpoints", folder / "ckpt", "never")
        self.assertEqual(tree(folder / "ckpt"), before)
        self.train(folder, checkpoint__resume="never", train__max_steps=2)
        self.assertEqual(checkpoints(folder), ["step_00000002"])
        self.assertEqual(sorted(p.name for p in (folder / "ckpt").glob("*.superseded*")),
                         ["step_00000003.superseded1", "step_00000006.superseded1"])
        done = self.train(folder, train__max_steps=2)  # the new run, ended: nothing left to train
        self.assertEqual(records(folder, "run")[-1]["first_step"], 2)
        self.assertIn("sequences/s", done.out)

    def test_a_flipped_byte_in_weights_to_start_from(self):
        bad = self.copy(lambda folder: flip(folder / "model.safetensors", 0.9))
        # One rank reads them; the others fail with its sentence.
        self.check(bad / "model.safetensors", "damaged", "(rank 0 of 2 on ", checkpoint__init=bad,
                   ranks=2)
        done = bertha("eval", "--checkpoint", bad, *self.data.config(), ranks=2)
        self.assert_failure(done, 4, bad / "model.safetensors", "(rank 0 of 2 on ")

    def run_with_bad_newest(self, change):
        """A run folder whose newest checkpoint is bad goes on from the one before it."""
        folder = self.new_folder("auto")
        shutil.copytree(self.run_folder, folder)
        change(folder / "ckpt" / "step_00000006")
        done = self.train(folder, ranks=2, train__max_steps=8)
        self.assertEqual(records(folder, "run")[-1]["first_step"], 3)
        self.assertIn("step_00000006", done.err)  # the user hears of it
        whole = self.new_folder("whole")
        self.train(whole, ranks=2, train__max_steps=8)
        self.assertEqual(steps(folder)[8]["loss"], steps(whole)[8]["loss"])

    def test_resume_passes_over_a_torn_checkpoint(self):
        self.run_with_bad_newest(lambda newest: (newest / "DONE").unlink())

    def test_resume_passes_over_a_damaged_checkpoint(self):
        self.run_with_bad_newest(lambda newest: flip(newest / "model.safetensors"))


if __name__ == "__main__":
    main()
