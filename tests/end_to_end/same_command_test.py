"""The same command again: where it finds its run, what it goes on from, and who may not join in."""

import os
import shutil
import signal
import socket

from support import (BACKEND, EndToEnd, Running, bertha, checkpoints, main, mllog, records, steps,
                     steps_so_far)

# From the program's start; on a GPU the first step comes seconds after it.
SOON_MINUTES = (0.5 if BACKEND == "cpu" else 8) / 60


class SameCommand(EndToEnd):
    def start(self, place, *options, code=0, extra=None, **changes):
        """Trains in a folder of its own, without a word about where the run goes."""
        place.mkdir(exist_ok=True)
        done = bertha("train", *self.data.config(**changes), *options, cwd=place, extra=extra)
        self.assertEqual(done.code, code, done)
        return done

    def soon_stopped(self, **changes):
        """Settings of a run that saves and ends with 75 after some steps."""
        return dict(train__max_steps=10**6, optimizer__schedule_steps=10**6,
                    eval__every_samples=10**9, train__time_limit_minutes=SOON_MINUTES, **changes)

    def test_a_run_without_a_folder_is_found_again(self):
        place = self.new_folder("cwd")
        settings = self.soon_stopped(log__run_name="mine")
        first = self.start(place, code=75, **settings)
        self.assertIn("all saved in runs/mine; run the same command again", first.err)
        folder = place / "runs" / "mine"
        stopped = max(steps(folder))
        self.start(place, code=75, **settings)
        self.assertEqual(records(folder, "run")[-1]["first_step"], stopped)
        self.assertGreater(max(steps(folder)), stopped)
        self.assertEqual(sorted(p.name for p in (place / "runs").iterdir()), ["latest", "mine"])
        self.assertEqual((place / "runs" / "latest").resolve(), folder.resolve())

    def test_after_sigterm_the_same_command_goes_on(self):
        place = self.new_folder("cwd")
        place.mkdir()
        folder = place / "runs" / "bert"
        words = ("train", *self.data.config(train__max_steps=10**6, eval__every_samples=10**9))
        stopped = 0
        for _ in range(3):
            with Running(*words, ranks=2, cwd=place) as run:
                run.wait_for(lambda: max(steps_so_far(folder), default=0) >= stopped + 3,
                             "three more steps")
                for process in run.rank_processes():
                    os.kill(process, signal.SIGTERM)
                done = run.wait()
            self.assertEqual(done.code, 75, done)
            self.assertEqual(records(folder, "run")[-1]["first_step"], stopped)
            stopped = max(steps(folder))
            self.assertIn(f"step_{stopped:08d}", checkpoints(folder))
        self.assertEqual(sorted(steps(folder)), list(range(1, stopped + 1)))
        self.assertEqual(os.readlink(place / "runs" / "latest"), "bert")

    def test_a_batch_job_has_a_folder_of_its_own_that_it_finds_again(self):
        place = self.new_folder("cwd")
        settings = self.soon_stopped()
        for job in ("71", "72", "71"):
            self.start(place, code=75, extra={"SLURM_JOB_ID": job}, **settings)
        starts = {p.name: len(records(p, "run")) for p in (place / "runs").glob("bert-*")}
        self.assertEqual(starts, {"bert-71": 2, "bert-72": 1})
        self.assertGreater(records(place / "runs" / "bert-71", "run")[-1]["first_step"], 0)
        done = self.start(place, code=5, extra={"SLURM_JOB_ID": "a/b"}, **settings)
        self.assert_failure(done, 5, 'SLURM_JOB_ID is "a/b"')

    def test_a_run_that_had_ended_says_so_and_how_to_train_again(self):
        place = self.new_folder("cwd")
        self.start(place, train__max_steps=3)
        done = self.start(place, train__max_steps=3)
        for words in ("already ended at step 3", "--output-dir", "log.run_name", "--resume never"):
            self.assertIn(words, done.err)
        self.assertEqual(len(records(place / "runs" / "bert", "step")), 3)
        self.start(place, "--resume", "never", train__max_steps=2)
        folder = place / "runs" / "bert"
        self.assertEqual(checkpoints(folder), ["step_00000002"])
        # The benchmark's log is that of the run that is there now.
        values = {r["key"]: r["value"] for r in mllog(folder / "mllog" / "result_0.txt")}
        self.assertEqual(values["train_samples"], 2 * 12)
        self.assertTrue((folder / "mllog.superseded1" / "result_0.txt").exists())

    def test_other_settings_need_a_folder_by_name(self):
        place = self.new_folder("cwd")
        self.start(place, train__max_steps=2)
        before = sorted(place.rglob("*"))
        done = self.start(place, code=2, train__max_steps=4, optimizer__base_learning_rate=0.02)
        self.assert_failure(done, 2, "runs/bert: contains a run with other settings",
                            "optimizer.base_learning_rate 0.01 -> 0.02", "log.run_name",
                            "--resume never", "--output-dir runs/bert")
        self.assertEqual(sorted(place.rglob("*")), before)
        # What no model learns by may change.
        self.start(place, train__max_steps=4, train__target_accuracy=0.0,
                   train__log_every_steps=2, checkpoint__keep=5)
        done = self.start(place, "--output-dir", "runs/bert", train__max_steps=6,
                          optimizer__base_learning_rate=0.02)
        self.assertEqual(checkpoints(place / "runs" / "bert"), ["step_00000004", "step_00000006"])
        self.assertIn("optimizer.base_learning_rate 0.01 -> 0.02", done.err)
        # A start that saved nothing holds no run to go on with.
        self.start(place, "--set", "log.run_name=empty", train__max_steps=1,
                   checkpoint__at_end=False)
        self.start(place, "--set", "log.run_name=empty", train__max_steps=1, train__seed=9)

    def test_latest_is_the_newest_run_below_runs_however_it_got_its_folder(self):
        place = self.new_folder("cwd")
        self.start(place, train__max_steps=1)
        self.start(place, "--output-dir", "runs/quick/train", train__max_steps=1)
        self.start(place, "--output-dir", "elsewhere", train__max_steps=1)
        latest = place / "runs" / "latest"
        self.assertEqual(os.readlink(latest), "quick/train")
        self.assertEqual(bertha("checkpoint", "show", "runs/latest", cwd=place).code, 0)
        # Read before it points to the folder that reads it.
        self.start(place, "--output-dir", "runs/next", "--init-checkpoint",
                   "runs/latest/ckpt/step_00000001", train__max_steps=1)
        self.assertEqual(os.readlink(latest), "next")

    def test_a_longer_schedule_says_what_the_learning_rate_becomes(self):
        folder = self.new_folder()
        short = dict(train__max_steps=10, optimizer__schedule_steps=0)
        self.train(folder, **short)
        done = self.train(folder, **dict(short, train__max_steps=20))
        # Of 0.01 over 10 steps the last update had a tenth; over 20 steps the next one has a half.
        words = "the learning rate changes from 1.0e-3 at the last step to 5.0e-3 at the next"
        self.assertIn(words, done.err)
        self.assertIn("train.max_steps 10 -> 20", done.err)
        self.assertIn(words, " ".join(r["text"] for r in records(folder, "event")))
        self.assertAlmostEqual(steps(folder)[11]["learning_rate"], 0.005, 7)
        again = self.train(folder, **dict(short, train__max_steps=20))
        self.assertNotIn("learning rate changes", again.err)


class NamedCheckpoint(EndToEnd):
    """checkpoint.resume: PATH says where a continuation begins, not where it begins each time."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.first = cls.new_folder("first")
        cls().train(cls.first, train__max_steps=6, checkpoint__every_steps=2, checkpoint__keep=9)

    def copy(self):
        folder = self.new_folder("copy")
        shutil.copytree(self.first, folder)
        return folder

    def ran_from(self, folder):
        return records(folder, "run")[-1]["first_step"]

    def test_the_same_command_goes_on_with_the_continuation(self):
        for folder in (self.new_folder(), self.copy()):
            path = (folder if folder.exists() else self.first) / "ckpt" / "step_00000004"
            settings = dict(checkpoint__resume=path, train__max_steps=10**6,
                            optimizer__schedule_steps=10**6, eval__every_samples=10**9,
                            train__time_limit_minutes=SOON_MINUTES)
            self.train(folder, code=75, **settings)
            self.assertEqual(self.ran_from(folder), 4)
            stopped = records(folder, "step")[-1]["step"]
            superseded = sorted((folder / "ckpt").glob("*.superseded*"))
            done = self.train(folder, code=75, **settings)
            self.assertEqual(self.ran_from(folder), stopped, done)
            self.assertIn(f"this folder already continues {path}; ", done.err)
            self.assertEqual(sorted((folder / "ckpt").glob("*.superseded*")), superseded)
            # keep-N may have removed the named one by now.
            shutil.rmtree(folder / "ckpt" / "step_00000004", ignore_errors=True)
            stopped = records(folder, "step")[-1]["step"]
            self.train(folder, code=75, **settings)
            self.assertEqual(self.ran_from(folder), stopped)

    def test_another_named_checkpoint_begins_there(self):
        folder = self.copy()
        for step in (4, 2):
            self.train(folder, train__max_steps=step + 1, checkpoint__keep=9,
                       checkpoint__resume=folder / "ckpt" / f"step_{step:08d}")
            self.assertEqual(self.ran_from(folder), step)
        self.assertEqual(checkpoints(folder), ["step_00000002", "step_00000003"])

    def test_what_else_the_folder_held_is_not_the_continuation(self):
        folder = self.new_folder()
        self.train(folder, train__max_steps=3, train__seed=8)
        settings = dict(checkpoint__resume=self.first / "ckpt" / "step_00000004",
                        checkpoint__at_end=False)
        for _ in range(2):
            self.train(folder, train__max_steps=5, **settings)
            self.assertEqual(self.ran_from(folder), 4)
        self.assertEqual(checkpoints(folder), [])

    def test_a_start_that_failed_has_not_gone_on(self):
        folder = self.copy()
        settings = dict(checkpoint__resume=folder / "ckpt" / "step_00000002", train__max_steps=3)
        self.train(folder, code=2, **dict(settings, train__seed=9))
        self.train(folder, **settings)
        self.assertEqual(self.ran_from(folder), 2)


class OneRunInAFolder(EndToEnd):
    def words(self, folder, **changes):
        return self.data.config(log__run_dir=folder, train__max_steps=10**6,
                                eval__every_samples=10**9, **changes)

    def under_way(self, run, folder):
        run.wait_for(lambda: len(steps_so_far(folder)) >= 3, "three steps")

    def test_a_second_run_is_told_who_is_there_and_the_first_goes_on(self):
        folder = self.new_folder()
        with Running("train", *self.words(folder), ranks=2) as run:
            self.under_way(run, folder)
            before = sorted(p for p in folder.rglob("*") if "step_" not in str(p))
            done = bertha("train", *self.words(folder), ranks=2)
            self.assert_failure(done, 5, folder, f" on {socket.gethostname()} since ",
                                "is training in this folder", "log.run_dir")
            pid = int(done.errors()[0].split(": process ")[1].split()[0])
            self.assertIn(pid, run.rank_processes())
            self.assertEqual(sorted(p for p in folder.rglob("*") if "step_" not in str(p)), before)
            os.kill(pid, signal.SIGUSR1)
            self.assertEqual(run.wait().code, 75)

    def test_a_killed_run_leaves_nothing_in_the_way(self):
        folder = self.new_folder()
        for _ in range(2):
            with Running("train", *self.words(folder, checkpoint__every_steps=5)) as run:
                self.under_way(run, folder)
                run.process.kill()
        self.train(folder, train__max_steps=max(steps(folder)), eval__every_samples=10**9)

    def test_a_folder_that_vanishes_ends_the_run_with_4(self):
        folder = self.new_folder()
        with Running("train", *self.words(folder), ranks=2) as run:
            self.under_way(run, folder)
            shutil.rmtree(folder, ignore_errors=True)
            done = run.wait()
        self.assert_failure(done, 4, folder, "was removed or replaced")


if __name__ == "__main__":
    main()
