"""torch_time_to_accuracy.py in fp32 on the CPU has the losses and accuracies of the program itself. Needs
torch, safetensors and h5py.

usage: torch_time_to_accuracy_test.py BERTHA
"""

import json
import sys
import unittest

from script_case import ScriptCase
from small_data import make_small_data, must

BERTHA = sys.argv[1]
RECIPE = ["train.nsp_weight=0", "optimizer.name=adamw", "optimizer.base_learning_rate=3e-3",
          "mlperf.division=open"]


def evaluations(run):
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [(r["samples"], r["mlm_accuracy"]) for r in records if r["kind"] == "eval"]


class TimeToAccuracy(ScriptCase):
    def setUp(self):
        super().setUp()
        config = ["--config", make_small_data(BERTHA, self.folder)]
        self.config = config + [word for setting in RECIPE for word in ("--set", setting)]

    def test_has_the_losses_and_accuracies_of_the_program(self):
        ours, dump = self.folder / "ours", self.folder / "dump"
        must(BERTHA, "train", *self.config, "--output-dir", ours)
        must(BERTHA, "data", "dump-batches", *self.config, "--steps", 20, "--weights", "--output", dump)
        for shapes in ("dynamic", "fixed"):
            theirs = self.folder / shapes
            code, text = self.code_and_text("torch_time_to_accuracy.py", dump, "--output", theirs,
                                            "--device", "cpu", "--shapes", shapes)
            self.assertEqual(code, 3, text)  # no target
            self.assertEqual(len(evaluations(ours)), 2)
            self.assertEqual(evaluations(theirs), evaluations(ours))
            code, text = self.code_and_text("compare_curves.py", ours, theirs)
            self.assertEqual(code, 0, text)
        target = evaluations(ours)[0][1]
        code, text = self.code_and_text("torch_time_to_accuracy.py", dump, "--output",
                                        self.folder / "first", "--device", "cpu", "--target", target)
        self.assertEqual(code, 0, text)
        result = json.loads((self.folder / "first" / "result.json").read_text())
        self.assertEqual((result["samples"], result["accuracy"]), (160, target))
        self.assertEqual(result["seconds"] > result["seconds_of_evaluations"] > 0, True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
