"""launch/export_metrics.py: curves as CSV, and read back by Weights & Biases' and MLflow's own code.

usage: export_metrics_test.py    (what needs wandb or mlflow runs where Python has them)
"""

import csv
import importlib.util
import json
import os
import pathlib
import resource
import unittest

from script_case import ScriptCase

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "launch" / "export_metrics.py"
BLOCK_BYTES = 32768  # of the record file of Weights & Biases
HEADER_BYTES = 7


def has(package):
    return importlib.util.find_spec(package) is not None


def record(kind, step, time_ms, **values):
    return dict(kind=kind, time_ms=time_ms, step=step, samples=8 * step, **values)


class ExportMetrics(ScriptCase):
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
        self.metrics = self.folder / "metrics.jsonl"
        self.metrics.write_text("".join(json.dumps(line) + "\n" for line in self.RECORDS))

    def export(self, *words, code=0):
        done = self.run_script(SCRIPT, *words, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def test_csv_has_a_row_for_each_step(self):
        self.export(self.folder, "--csv", self.folder / "out.csv")
        with open(self.folder / "out.csv", newline="") as file:
            rows = {int(row["step"]): row for row in csv.DictReader(file)}
        self.assertEqual({step: float(row["train/loss"]) for step, row in rows.items()}, self.LOSSES)
        self.assertEqual(rows[2]["eval/mlm_accuracy"], "0.25")
        self.assertEqual((rows[3]["eval/mlm_accuracy"], rows[3]["train/learning_rate"]), ("", ""))
        self.assertEqual((rows[3]["samples"], rows[3]["time_ms"]), ("24", "6000"))
        self.assertFalse(list(self.folder.glob("*.partial")))

    def test_what_a_resumed_run_trains_anew_is_dropped(self):
        with open(self.metrics, "a") as file:
            file.write(json.dumps(record("step", 2, 8000, loss=4.0)) + "\n")
        self.export(self.folder, "--csv", self.folder / "out.csv")
        with open(self.folder / "out.csv", newline="") as file:
            self.assertEqual([row["step"] for row in csv.DictReader(file)], ["1", "2"])

    def test_a_line_that_a_killed_run_left_unfinished_is_left_out(self):
        lines = self.metrics.read_text().splitlines()
        lines[2:2] = ['{"kind":"st', "7"]
        self.metrics.write_text("\n".join(lines) + '\n{"kind":"step","step":2001')
        said = self.export(self.folder, "--csv", self.folder / "out.csv")
        for number in (3, 4, len(lines) + 1):
            self.assertIn(f"line {number}: left out, is no record", said)
        with open(self.folder / "out.csv", newline="") as file:
            rows = {int(row["step"]): row for row in csv.DictReader(file)}
        self.assertEqual({step: float(row["train/loss"]) for step, row in rows.items()}, self.LOSSES)

    def test_mistakes_are_sentences(self):
        self.assertIn("want at least one of", self.export(self.folder, code=2))
        self.assertIn("cannot be read", self.export(self.folder / "none", "--csv", "o", code=4))
        self.assertIn("cannot be written",
                      self.export(self.folder, "--csv", self.folder / "none" / "o", code=4))
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.assertIn("is a device, a pipe", self.export(self.folder, "--csv", pipe, code=4))
        self.assertTrue(pipe.is_fifo())
        self.metrics.write_text('{"kind": "event", "text": ""}\n')
        self.assertIn("holds no step", self.export(self.folder, "--csv", "o", code=4))
        for option in ("--wandb-offline", "--mlflow"):
            package = "wandb" if "wandb" in option else "mlflow"
            (self.folder / f"{package}.py").write_text("raise ImportError\n")
            self.metrics.write_text(json.dumps(self.RECORDS[1]) + "\n")
            done = self.run_script(SCRIPT, self.folder, option, "o",
                                   env={**os.environ, "PYTHONPATH": str(self.folder)})
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn("pip install", done.stderr)

    def test_a_full_disk_is_told_with_the_file_and_leaves_no_part_of_it(self):
        out = self.folder / "out.csv"
        out.write_text("old\n")
        done = self.run_script(SCRIPT, self.folder, "--csv", out, preexec_fn=lambda:
                               resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn(f"{out}: cannot be written", done.stderr)
        self.assertEqual([path.name for path in self.folder.glob("out*")], ["out.csv"])
        self.assertEqual(out.read_text(), "old\n")

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

    @unittest.skipUnless(has("wandb"), "Python has no wandb")
    def test_weights_and_biases_reads_what_was_written(self):
        self.export(self.folder, "--wandb-offline", self.folder / "copy")
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
                self.assertEqual("eval/mlm_accuracy" in values, values["_step"] == 2)
        self.assertEqual(losses, self.LOSSES)
        self.assertEqual(config["world_size"], 2)

    @unittest.skipUnless(has("mlflow"), "Python has no mlflow")
    def test_mlflow_reads_what_was_written(self):
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        from mlflow import MlflowClient
        for _ in range(2):  # the second run joins the experiment of the first
            self.export(self.folder, "--mlflow", self.folder / "copy")
        client = MlflowClient(tracking_uri=(self.folder / "copy").as_uri())
        runs = client.search_runs([client.get_experiment_by_name("bertha").experiment_id])
        self.assertEqual([run.info.status for run in runs], ["FINISHED", "FINISHED"])
        self.assertEqual(runs[0].info.run_name, "trial")
        self.assertEqual(runs[0].data.params["world_size"], "2")
        history = client.get_metric_history(runs[0].info.run_id, "train/loss")
        self.assertEqual({m.step: m.value for m in history}, self.LOSSES)
        self.assertEqual({m.step: m.timestamp for m in history}[3], 6000)


if __name__ == "__main__":
    unittest.main()
