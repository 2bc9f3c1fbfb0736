"""Runs for the tests of plot, compare, watch and diagnose: real ones, and invented records."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from mllog_case import program, tool  # noqa: E402,F401
from bertha_tools import metrics  # noqa: E402
from small_data import make_small_data, must  # noqa: E402

STEP_FIGURES = ("loss", "mlm_loss", "mlm_accuracy", "learning_rate", "gradient_norm", "loss_scale",
                "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms",
                "optimizer_ms", "seqs_per_second", "tokens_per_second", "flops_per_second",
                "token_imbalance")
BERT_LARGE = {"model": "bert-large", "parameters": 336_232_258, "vocab_size": 30522,
              "global_batch_seqs": 448, "target_accuracy": 0.72, "start_weights": "ckpt/start",
              "constant_answer": 0.052}
SMALL_MODEL = {"model": "tiny", "parameters": 500_000, "vocab_size": 4096, "global_batch_seqs": 32,
               "target_accuracy": 0.12, "constant_answer": 0.0394}
ESCAPES = "\x1b[31mred\x07\x9b1m$x_1$"


def run_records(model, **more):
    """The first records of a run."""
    facts = {**model, **more}
    constant = facts.pop("constant_answer")
    return [{"kind": "run", "time_ms": 1_000, "name": "invented", "device": "cpu", "world_size": 2,
             "max_steps": 1000, "first_step": 0, **facts},
            {"kind": "data", "time_ms": 2_000, "constant_answer_accuracy": constant}]


def step(number, mlm_loss=4.0, **more):
    return {"kind": "step", "time_ms": 3_000 + number, "step": number, "samples": 32 * number,
            **dict.fromkeys(STEP_FIGURES, 1.0), "mlm_loss": mlm_loss, "nsp_loss": 0.7,
            "skipped_steps": number, **more}


def evaluation(number, accuracy, mlm_loss, nsp_accuracy=0.97, every=150_000):
    return {"kind": "eval", "time_ms": 4_000 + number, "step": 335 * number,
            "samples": every * number, "mlm_accuracy": accuracy, "mlm_loss": mlm_loss,
            "nsp_accuracy": nsp_accuracy, "seconds": 2.0, "seqs_per_second_since_last": 100.0}


def evaluations(figures, every=150_000):
    return [evaluation(i + 1, *one, every=every) for i, one in enumerate(figures)]


def write(folder, records):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def metrics_of(records):
    """As the tools read them."""
    found = metrics.Metrics(pathlib.Path("metrics.jsonl"))
    for one in records:
        found.take(json.loads(json.dumps(one)))
    return found


class RunCase(unittest.TestCase):
    """Each class has a folder that goes away with it."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)

    @classmethod
    def train(cls, bertha, *settings):
        """The folder of a new small run."""
        if not (cls.scratch / "config.yaml").exists():
            make_small_data(bertha, cls.scratch)
        folder = cls.scratch / f"run_{len(list(cls.scratch.glob('run_*')))}"
        words = [word for one in (f"log.run_dir={folder}", *settings) for word in ("--set", one)]
        must(bertha, "train", "--config", cls.scratch / "config.yaml", *words)
        return folder

    def assert_refused(self, found, code, *texts):
        """One sentence on standard error that contains all texts."""
        self.assertEqual(found[0], code, found)
        self.assertEqual(found[1], "")
        self.assertEqual(len(found[2].splitlines()), 1, found)
        for text in texts:
            self.assertIn(str(text), found[2])

    def assert_cannot_steer(self, shown):
        self.assertEqual([letter for letter in shown if letter in "\x1b\x07\x7f\x9b"], [])


def main():
    unittest.main(module="__main__", argv=sys.argv[:1], verbosity=2)
