"""bertha-tools export: curves as CSV, and read back by Weights & Biases' and MLflow's own code where Python
has their packages."""

import csv
import importlib.util
import json
import os
import subprocess
import threading
import time
import unittest

from tool_case import BERTHA, ToolCase, main, process

BLOCK_BYTES = 32768  # of the record file of Weights & Biases
HEADER_BYTES = 7
needs_wandb, needs_mlflow = (
    unittest.skipUnless(importlib.util.find_spec(package), f"Python has no {package}")
    for package in ("wandb", "mlflow"))
STOP = dict(kind="stop", time_ms=7100, status="success", samples=16000, exit_code=0)


def record(kind, step, time_ms, **values):
    return dict(kind=kind, time_ms=time_ms, step=step, samples=8 * step, **values)


class Export(ToolCase):
    # Stopped after step 3 and resumed from a checkpoint of step 2.
    RECORDS = [
        dict(kind="run", time_ms=1000, name="trial", model="tiny", world_size=2),
        record("step", 1, 2000, loss=6.5, learning_rate=0.1),
        record("step", 2, 3000, loss=6.0, learning_rate=0.2),
        record("eval", 2, 3500, mlm_accuracy=0.25),
        record("step", 3, 4000, loss=99.0, learning_rate=0.3),
        record("eval", 3, 4050, mlm_accuracy=0.99),
        dict(kind="event", time_ms=4100, text="saved"),
        dict(kind="run", time_ms=5000, name="trial", model="tiny", world_size=2),
        record("step", 3, 6000, loss=5.5, learning_rate=None),
        record("step", 2000, 7000, loss=5.0, learning_rate=0.5),
    ]
    LOSSES = {1: 6.5, 2: 6.0, 3: 5.5, 2000: 5.0}

    def setUp(self):
        super().setUp()
        self.metrics, self.out = self.folder / "metrics.jsonl", self.folder / "out.csv"
        self.write(*self.RECORDS)

    def write(self, *records, mode="w"):
        with open(self.metrics, mode) as file:
            file.writelines(json.dumps(line) + "\n" for line in records)

    def export(self, *words, code=0):
        return self.tool("export", *words, code=code)

    def process(self, *words, **how):
        """In a process of its own, which looks for packages in the folder first."""
        return process("export", *words, cwd=self.folder, **how)

    def rows(self):
        with open(self.out, newline="") as file:
            return {int(row["step"]): row for row in csv.DictReader(file)}

    def losses(self):
        return {step: float(row["train/loss"]) for step, row in self.rows().items()}

    def test_csv_has_a_row_for_each_step(self):
        self.export(self.folder, "--csv", self.out)
        rows = self.rows()
        self.assertEqual(self.losses(), self.LOSSES)
        self.assertEqual(rows[2]["eval/mlm_accuracy"], "0.25")
        self.assertEqual((rows[3]["eval/mlm_accuracy"], rows[3]["train/learning_rate"]), ("", ""))
        self.assertEqual((rows[3]["samples"], rows[3]["time_ms"]), ("24", "6000"))
        self.assertEqual([path.name for path in self.folder.glob("out*")], ["out.csv"])

    def test_what_a_resumed_run_trains_anew_is_dropped(self):
        self.write(record("step", 2, 8000, loss=4.0), mode="a")
        self.export(self.folder, "--csv", self.out)
        self.assertEqual(list(self.rows()), [1, 2])
        self.assertEqual(self.rows()[2].get("eval/mlm_accuracy", ""), "")

    def test_lines_that_are_no_record_and_an_unfinished_one_are_left_out(self):
        lines = self.metrics.read_text().splitlines()
        lines[2:2] = ['{"kind":"st', "7", '{"kind":"step","step":1e999,"samples":1}',
                      '{"kind":"step","step":null,"samples":1}']
        self.metrics.write_text("\n".join(lines) + '\n{"kind":"step","step":2001')
        said = self.export(self.folder, "--csv", self.out)
        self.assertIn("4 lines are not records", said)
        self.assertEqual(self.losses(), self.LOSSES)

    def test_values_that_are_no_numbers_are_left_out(self):
        self.write(record("step", 1, "soon", loss="low", good=1.5, flag=True, big=10**400),
                   record("step", 2, 1000, **{"loss": float("nan"), "good": 2, "a\nb": 1}))
        self.export(self.folder, "--csv", self.out)
        self.assertEqual(self.out.read_text(), "step,samples,time_ms,train/good\n2,16,1000,2\n")

    def test_mistakes_are_sentences(self):
        self.assertIn("want at least one of", self.export(self.folder, code=2))
        self.assertIn("cannot be read", self.export(self.folder / "none", "--csv", "o", code=4))
        self.assertIn("cannot write", self.export(self.folder, "--csv", self.folder / "none" / "o", code=4))
        self.write(dict(kind="event", time_ms=1, text=""))
        self.assertIn("contains no step", self.export(self.folder, "--csv", self.out, code=4))
        self.write(self.RECORDS[1])
        for option in ("--wandb", "--wandb-offline", "--mlflow"):
            name = "mlflow" if "mlflow" in option else "wandb"
            (self.folder / f"{name}.py").write_text("raise ImportError\n")
            done = self.process(self.folder, option, "o")
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(f"the Python package {name} is not installed", done.stderr)
            self.assertIn("pip install", done.stderr)

    def test_a_pipe_is_refused_and_a_link_is_replaced(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for place in (pipe, "/dev/null", "/dev/stdout", self.folder):
            self.assertIn("is a device, a pipe", self.export(self.folder, "--csv", place, code=4))
        self.assertTrue(pipe.is_fifo())
        other = self.folder / "other"
        other.write_text("keep\n")
        for link in (self.out, self.folder / "out.csv.tmp"):
            link.symlink_to(other)
        self.export(self.folder, "--csv", self.out)
        self.assertEqual(other.read_text(), "keep\n")
        self.assertFalse(self.out.is_symlink())
        self.metrics.unlink()
        os.mkfifo(self.metrics)  # is not waited for
        self.assertIn("cannot be read", self.export(self.folder, "--csv", self.out, code=4))

    def test_a_full_disk_is_told_with_the_file_and_leaves_no_part_of_it(self):
        self.out.write_text("old\n")
        done = self.process(self.folder, "--csv", self.out, most_bytes=0)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn(f"{self.out}: cannot write", done.stderr)
        self.assertEqual([path.name for path in self.folder.glob("out*")], ["out.csv"])
        self.assertEqual(self.out.read_text(), "old\n")

    def follow(self, *words):
        """Follows a run that goes on for a while; now is the time of its records."""
        now = int(1000 * time.time())
        self.write(dict(self.RECORDS[0], time_ms=now), record("step", 1, now, loss=6.5))

        def train():
            for step, loss in ((2, 6.0), (3, 5.5)):
                time.sleep(0.3)
                self.write(record("step", step, now + step, loss=loss), mode="a")
            self.write(record("eval", 3, now + 4, mlm_accuracy=0.25), mode="a")
            time.sleep(0.3)
            self.write(record("step", 2000, now + 5, loss=5.0), dict(STOP, time_ms=now + 6), mode="a")

        trainer = threading.Thread(target=train)
        trainer.start()
        done = self.process(self.folder, "--follow", "--every", "0.1", *words)
        trainer.join()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_follows_until_the_run_has_stopped(self):
        self.follow("--csv", self.out)
        self.assertEqual(self.losses(), self.LOSSES)
        self.assertEqual(self.rows()[3]["eval/mlm_accuracy"], "0.25")

    def test_follows_the_program_and_has_all_its_figures(self):
        config, run = self.config(), self.folder / "run"
        metrics = run / "metrics.jsonl"
        with subprocess.Popen([BERTHA, "train", "--config", config, "--output-dir", run],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as train:
            while not metrics.exists() and train.poll() is None:
                time.sleep(0.05)
            self.export(run, "--follow", "--every", "0.1", "--csv", self.out)
            self.assertIsNotNone(train.wait(10))
        rows = self.rows()
        self.assertEqual(list(rows), list(range(1, 21)))
        self.assertEqual(list(rows[1])[:4], ["step", "samples", "time_ms", "eval/mlm_accuracy"])
        for found in map(json.loads, metrics.read_text().splitlines()):
            if prefix := {"step": "train/", "eval": "eval/"}.get(found.pop("kind")):
                row = rows[found["step"]]
                if prefix == "train/":
                    self.assertEqual(row["samples"], str(found["samples"]))
                for name in found.keys() - {"step", "samples", "time_ms"}:
                    self.assertEqual(float(row[prefix + name]), found[name], name)

    def test_follows_no_run_whose_process_is_gone(self):
        (self.folder / "run.lock").write_text("")  # nobody holds it
        self.export(self.folder, "--follow", "--csv", self.out)
        self.assertEqual(self.losses(), self.LOSSES)

    def wandb_records(self, path):
        """The messages of the record file: parts of at most a block, joined."""
        from wandb.proto import wandb_internal_pb2
        data, at, message = path.read_bytes(), HEADER_BYTES, b""
        while at + HEADER_BYTES <= len(data):
            left = BLOCK_BYTES - at % BLOCK_BYTES
            if left < HEADER_BYTES:
                at += left
                continue
            length, kind = int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
            message += data[at + HEADER_BYTES:at + HEADER_BYTES + length]
            at += HEADER_BYTES + length
            if kind in (1, 4):  # whole, or the last part
                found = wandb_internal_pb2.Record()
                found.ParseFromString(message)
                yield found
                message = b""

    def check_wandb(self, step_of_eval):
        files = list((self.folder / "copy").glob("wandb/offline-run-*/*.wandb"))
        self.assertEqual(len(files), 1)
        losses, config = {}, {}
        for found in self.wandb_records(files[0]):
            if found.HasField("run"):
                self.assertEqual((found.run.project, found.run.display_name), ("bertha", "trial"))
                config = {item.key: json.loads(item.value_json) for item in found.run.config.update}
            if found.HasField("history"):
                values = {item.key or "/".join(item.nested_key): json.loads(item.value_json)
                          for item in found.history.item}
                losses[values["_step"]] = values["train/loss"]
                self.assertEqual("eval/mlm_accuracy" in values, values["_step"] == step_of_eval)
        self.assertEqual(losses, self.LOSSES)
        self.assertEqual(config["world_size"], 2)

    @needs_wandb
    def test_weights_and_biases_reads_what_was_written(self):
        done = self.process(self.folder, "--wandb-offline", self.folder / "copy")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_wandb(step_of_eval=2)

    @needs_wandb
    def test_weights_and_biases_reads_what_was_followed(self):
        self.follow("--wandb-offline", self.folder / "copy")
        self.check_wandb(step_of_eval=3)

    def mlflow_runs(self):
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        from mlflow import MlflowClient
        client = MlflowClient(tracking_uri=(self.folder / "copy").as_uri())
        runs = client.search_runs([client.get_experiment_by_name("bertha").experiment_id])
        history = client.get_metric_history(runs[0].info.run_id, "train/loss")
        self.assertEqual({m.step: m.value for m in history}, self.LOSSES)
        self.assertEqual(runs[0].info.run_name, "trial")
        self.assertEqual(runs[0].data.params["world_size"], "2")
        return [run.info.status for run in runs], {m.step: m.timestamp for m in history}

    @needs_mlflow
    def test_mlflow_reads_what_was_written(self):
        self.write(STOP, mode="a")
        for _ in range(2):  # the second run joins the experiment of the first
            self.export(self.folder, "--mlflow", self.folder / "copy")
        statuses, times = self.mlflow_runs()
        self.assertEqual((statuses, times[3]), (["FINISHED", "FINISHED"], 6000))

    @needs_mlflow
    def test_mlflow_reads_what_was_followed(self):
        self.follow("--mlflow", self.folder / "copy")
        self.assertEqual(self.mlflow_runs()[0], ["FINISHED"])

    @needs_mlflow
    def test_mlflow_is_told_of_a_run_that_was_killed(self):
        self.export(self.folder, "--mlflow", (self.folder / "copy").as_uri())
        self.assertEqual(self.mlflow_runs()[0], ["KILLED"])

    @needs_mlflow
    def test_services_that_cannot_be_used_are_sentences(self):
        self.assertIn("File exists", self.export(self.folder, "--mlflow", self.metrics, code=4))
        copy = self.folder / "copy"
        copy.mkdir()
        (copy / "wandb").symlink_to(self.folder)
        self.assertIn("is a link", self.export(self.folder, "--mlflow", copy, code=4))
        self.assertIn("check the location and its server",
                      self.export(self.folder, "--mlflow", "odd://x", code=5))


if __name__ == "__main__":
    main()
