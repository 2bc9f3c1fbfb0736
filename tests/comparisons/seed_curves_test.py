"""What seed_curves.py accepts, refuses and draws."""

import json
import random
import re
import unittest

from script_case import ScriptCase

STEPS = 400


class SeedCurves(ScriptCase):
    def setUp(self):
        super().setUp()
        for seed in range(3):
            self.write(f"bf16_{seed}", seed)

    def write(self, name, seed, error=lambda step: 0.0, steps=STEPS):
        """A run: a falling loss, noise of its seed in each batch, and `error`."""
        draw = random.Random(seed)
        own = draw.gauss(0, 0.02)
        lines = []
        for step in range(1, steps + 1):
            loss, wrong = 9 - 0.01 * step + own + draw.gauss(0, 0.1), error(step)
            lines.append({"kind": "step", "step": step,
                          "loss": None if wrong is None else loss + wrong})
            if step % 100 == 0:
                lines.append({"kind": "eval", "samples": 64 * step, "mlm_accuracy": step / 1000})
        (self.folder / name).mkdir()
        (self.folder / name / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")

    def judge(self, *judged, spread=("bf16_0", "bf16_1", "bf16_2"), more=()):
        return self.code_and_text("seed_curves.py", "--spread", *spread, "--judged", *judged, *more)

    def test_other_seeds_pass_and_are_drawn(self):
        self.write("fp8_7", 7)
        self.write("fp8_8", 8, steps=STEPS + 50)  # as far as all go
        code, text = self.judge("fp8_7", "fp8_8", more=["--svg", "curves.svg"])
        self.assertEqual(code, 0, text)
        self.assertIn("of 20 windows", text)
        self.assertIn("accuracy at 25600 samples", text)
        self.assertIn("0.4000", text)
        drawn = (self.folder / "curves.svg").read_text()
        self.assertEqual(len(re.findall(r'<g id="\w*PolyCollection_', drawn)), 2)
        self.assertEqual(len(re.findall('<path d="[^>]* clip-path', drawn)), 5 + 5 + 2)
        self.assertIn(">fp8_8</text>", drawn)

    def test_a_shifted_curve_fails(self):
        for seed in (7, 8):
            self.write(f"fp8_{seed}", seed, lambda step: 0.5)
        code, text = self.judge("fp8_7", "fp8_8")
        self.assertEqual(code, 1, text)
        self.assertIn("FAILED", text)
        self.assertIn("inside the band of the others in 0 of 20 windows", text)

    def test_a_curve_that_diverges_at_the_end_fails(self):
        self.write("fp8_7", 7, lambda step: 0.02 * max(0, step - 360))
        code, text = self.judge("fp8_7")
        self.assertEqual(code, 1, text)
        self.assertIn("farthest at step 400", text)

    def test_a_loss_that_is_no_number_and_too_few_runs_are_refused(self):
        self.write("fp8_7", 7, lambda step: None if step == 9 else 0.0)
        self.assertEqual(self.judge("fp8_7")[0], 1)
        self.assertIn("no number", self.judge("fp8_7")[1])
        self.assertEqual(self.judge("bf16_2", spread=("bf16_0", "bf16_1"))[0], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
