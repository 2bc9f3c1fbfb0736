"""The logic of gpu_evidence.py on the CPU backend: a sound program passes, broken ones do not.

usage: gpu_evidence_test.py BERTHA
"""

import json
import shlex
import sys
import unittest

from script_case import ScriptCase
from small_data import make_text

BERTHA = sys.argv[1]


class GpuEvidence(ScriptCase):
    def setUp(self):
        super().setUp()
        (self.folder / "text.txt").write_text(make_text(1, 400), encoding="utf-8")

    def collect(self, stages, bertha=BERTHA, more=()):
        """Exit code, what was printed, and the result of each stage."""
        output = self.folder / "evidence"
        code, text = self.code_and_text(
            "gpu_evidence.py", "--backend", "cpu", "--steps", 4, "--output", output, "--stages",
            stages, "--bertha", bertha, "--text", self.folder / "text.txt", *more)
        summary = output / "summary.json"
        stages = json.loads(summary.read_text())["stages"] if summary.exists() else []
        return code, text, {row["stage"]: row["result"] for row in stages}

    def wrapped(self, lines):
        """A program that does something else first, or instead."""
        path = self.folder / "wrapped"
        path.write_text(f"#!/usr/bin/env bash\n{lines}\nexec {shlex.quote(BERTHA)} \"$@\"\n")
        path.chmod(0o755)
        return path

    def test_a_sound_program_passes(self):
        stages = "resume,to_cpu,too_large,nodes"
        code, text, results = self.collect(stages)
        self.assertEqual(code, 0, text)
        self.assertEqual(results, {stage: "passed" for stage in stages.split(",")})

    def test_runs_that_differ_and_wrong_exit_codes_fail(self):
        wrapped = self.wrapped("if [[ $* == *runs/large* ]]; then exit 0; fi\n"
                               "if [[ $1 == train ]]; then set -- \"$@\" --seed $RANDOM; fi")
        code, text, results = self.collect("resume,too_large", wrapped)
        self.assertEqual(code, 1, text)
        self.assertEqual(results, {"resume": "FAILED", "too_large": "FAILED"})

    def test_a_stage_that_hangs_is_ended(self):
        wrapped = self.wrapped("sleep 1000")
        code, text, results = self.collect("too_large", wrapped, ["--limit", "too_large=2"])
        self.assertEqual(code, 1, text)
        self.assertIn("ran out of the stage's time", text)
        self.assertEqual(results, {"too_large": "FAILED"})

    def test_unknown_stages_are_refused(self):
        code, text, _ = self.collect("resume,speed")
        self.assertEqual(code, 2, text)
        self.assertIn("no stage is named speed", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
