"""What compare_curves.py accepts and refuses."""

import json
import unittest

from script_case import ScriptCase

STEPS = 40


class CompareCurves(ScriptCase):
    def setUp(self):
        super().setUp()
        self.write("first", lambda step: 0.0)

    def write(self, name, error, steps=STEPS, first=1):
        """A run whose loss at each step is off by error(step)."""
        run = self.folder / name
        run.mkdir()
        lines = ['{"kind": "event", "text": "begin"}']
        for step in range(first, steps + 1):
            loss = 9.0 - 0.05 * step
            wrong = error(step)
            lines.append(json.dumps({"kind": "step", "step": step,
                                     "loss": None if wrong is None else loss + wrong}))
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    def compare(self, *words):
        return self.code_and_text("compare_curves.py", *words)

    def test_fp32_within_its_roundings_passes_and_beyond_fails(self):
        self.write("near", lambda step: 1e-6)
        self.write("far", lambda step: 1e-4 if step == 30 else 0.0)
        self.assertEqual(self.compare("first", "near")[0], 0)
        code, text = self.compare("first", "near", "far")
        self.assertEqual(code, 1, text)
        self.assertEqual(text.count("FAILED"), 1, text)
        self.assertIn("     30", text)

    def test_bf16_is_judged_by_windows(self):
        self.write("noisy", lambda step: 0.1 * (-1) ** step if step > 4 else 0.0)
        self.write("shifted", lambda step: 0.1)
        self.assertEqual(self.compare("first", "noisy:bf16")[0], 0)
        self.assertEqual(self.compare("first", "shifted:bf16")[0], 1)
        self.assertEqual(self.compare("first", "noisy")[0], 1)

    def test_same_means_every_bit(self):
        self.write("copy", lambda step: 0.0)
        self.write("near", lambda step: 1e-9)
        self.assertEqual(self.compare("first", "copy:same")[0], 0)
        self.assertEqual(self.compare("first", "near:same")[0], 1)

    def test_missing_steps_and_losses_that_are_no_number_fail(self):
        self.write("short", lambda step: 0.0, steps=STEPS - 1)
        self.write("infinite", lambda step: None if step == 7 else 0.0)
        self.assertIn("lacks steps", self.compare("first", "short")[1])
        self.assertEqual(self.compare("first", "short")[0], 1)
        self.assertEqual(self.compare("first", "infinite")[0], 1)
        self.assertEqual(self.compare("first", "infinite:bf16")[0], 1)

    def test_a_run_that_began_at_a_checkpoint_is_compared_from_there(self):
        self.write("continued", lambda step: 1e-6, first=21)
        self.assertEqual(self.compare("first", "continued")[0], 1)
        self.assertEqual(self.compare("first", "continued", "--from-step", "21")[0], 0)
        self.assertEqual(self.compare("first", "continued", "--from-step", "20")[0], 1)
        self.assertEqual(self.compare("first", "continued", "--from-step", "99")[0], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
