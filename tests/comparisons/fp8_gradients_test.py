"""fp8_gradients.py on the CPU backend, which rounds to fp8 bit for bit as a GPU does: sound gradients pass,
one that is twice as long or noise does not.

usage: fp8_gradients_test.py BERTHA
"""

import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy

from checkpoint_tensors import read_weights_and_moments
from script_case import HERE
from small_data import make_small_data, must

BERTHA = sys.argv[1]
PROGRAM = HERE / "fp8_gradients.py"
EDITED = "bert.encoder.layer.1.intermediate.dense.weight"
WORDS = "bert.embeddings.word_embeddings.weight"


class Fp8Gradients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        # 315 entries are padded to a multiple of 16: the decoder is in fp8.
        must(BERTHA, "train", "--config", make_small_data(BERTHA, cls.folder, 315), "--output-dir",
             cls.folder / "run")
        cls.weights = cls.folder / "run" / "ckpt" / "step_00000020"
        cls.first = cls.compare(cls.folder / "gradients")

    @classmethod
    def compare(cls, output):
        done = subprocess.run(
            [sys.executable, "-B", str(PROGRAM), BERTHA, "--config", str(cls.folder / "config.yaml"),
             "--weights", "random", str(cls.weights), "--backend", "cpu", "--output", str(output)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout.decode()

    def edited(self, change, logged=True, name=EDITED):
        """What is printed where one gradient of fp8 in the trained model is another."""
        output = self.folder / self._testMethodName
        shutil.copytree(self.folder / "gradients", output)
        run = next(output.glob("*step_00000020_fp8"))
        checkpoint = run / "ckpt" / "step_00000002"
        gradients = read_weights_and_moments(checkpoint)[1]
        file = checkpoint / "optimizer-00000-of-00001.safetensors"
        before, data = gradients[name].tobytes(), file.read_bytes()
        self.assertEqual(data.count(before), 1)
        gradients[name] = change(gradients[name]).astype("<f4")
        file.write_bytes(data.replace(before, gradients[name].tobytes()))
        if logged:
            norm = math.sqrt(sum(float(numpy.vdot(g, g)) for g in gradients.values()))
            with open(run / "metrics.jsonl", "a", encoding="utf-8") as log:
                log.write(json.dumps({"kind": "step", "gradient_norm": norm}) + "\n")
        return self.compare(output)

    def assert_one_failure(self, code, text, kind=("ff_in",)):
        self.assertEqual(code, 1, text)
        lines = [line.split() for line in text.splitlines() if "FAILED" in line]
        self.assertEqual([line[1:2 + len(kind)] for line in lines], [["fp8", *kind]], text)

    def test_sound_gradients_pass(self):
        code, text = self.first
        self.assertEqual(code, 0, text)
        found = json.loads((self.folder / "gradients" / "gradients.json").read_text())
        self.assertEqual(len(found["rows"]), 2)
        for row in found["rows"]:
            self.assertAlmostEqual(row["lowest_cosine"], 0.94, places=2)  # kFp8GradientCosine
            self.assertAlmostEqual(row["highest_norm_ratio"], 1.18, places=2)  # kFp8GradientNorm
            for kind in ("qkv", "projection", "ff_in", "ff_out"):
                self.assertEqual(sorted(row["kinds"][kind]), ["0", "1"])
                for layer in row["kinds"][kind].values():
                    self.assertLess(layer["cosine"], 1 - 1e-5)  # fp8 was in use
            self.assertEqual(list(row["kinds"]["word table"]), [WORDS])

    def test_a_gradient_twice_as_long_fails(self):
        self.assert_one_failure(*self.edited(lambda g: 2 * g))

    def test_a_word_table_with_a_gradient_twice_as_long_fails(self):
        self.assert_one_failure(*self.edited(lambda g: 2 * g, name=WORDS), kind=("word", "table"))

    def test_a_gradient_half_as_long_fails(self):
        self.assert_one_failure(*self.edited(lambda g: g / 2))

    def test_noise_fails(self):
        draw = numpy.random.default_rng(1)
        self.assert_one_failure(*self.edited(
            lambda g: numpy.linalg.norm(g) / math.sqrt(g.size) * draw.standard_normal(g.shape)))

    def test_moments_that_are_not_the_logged_gradient_are_refused(self):
        code, text = self.edited(lambda g: 2 * g, logged=False, name=WORDS)
        self.assertEqual(code, 1, text)
        self.assertIn("not the logged gradient", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
