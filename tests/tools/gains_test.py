"""bertha-tools gains: which rows run, how their figures come about, and what it refuses."""

import pathlib

from tool_case import BERTHA, ROOT, ToolCase, main
from bertha_tools import gains

SMALL = ["--config", ROOT / "configs" / "quickstart.yaml", "--set", "model.layers=1", "--global-batch", 2,
         "--backend", "cpu", "--steps", 4]
# Why a row does not run on a CPU.
REASONS = {**{technique.key: "needs a GPU" for technique in gains.TECHNIQUES},
           "data.exchange_padding": "needs 2 ranks or more", "optimizer.clip": "", "train.last_layer": "",
           "train.precision": ""}
# Stands for the program on a machine with a GPU; takes down what it is asked for.
PROGRAM = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
if words[0] == "config":
    print(json.dumps({"keys": {"train.precision": {"value": "auto"},
                               "cuda.gemm_plans": {"value": "plans"}}}))
    sys.exit(0)
with open(__file__ + ".log", "a+") as log:
    log.seek(0)
    turn = len(log.readlines())
    print(" ".join(words), file=log)
if "cuda.graphs=auto" in words:
    print("bertha: error: cuda.graphs = auto \\x1b[2J does not fit; change it", file=sys.stderr)
    sys.exit(6)
if "cuda.gelu_gemms=auto" in words:
    sys.exit(7)
ms = 10 + (turn + 1) // 2 % 2 * 0.1 + 5 * ("cuda.attention=grouped" in words)
print(json.dumps({"model": "large", "device": "NVIDIA H200, 132 SMs", "precision": "bf16",
                  "ranks": 1, "tokens_per_step": 64.0, "step_ms": {"median": ms}}))
"""


class Gains(ToolCase):
    def setUp(self):
        super().setUp()
        self.program = self.folder / "bertha"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def rows(self, *words):
        return {row["key"]: row for row in self.report("gains", *words)["rows"]}

    def asked(self):
        return pathlib.Path(f"{self.program}.log").read_text().splitlines()

    def test_every_row_runs_or_says_why_not(self):
        found = self.rows("--bertha", BERTHA, *SMALL, "--repeat", 2)
        self.assertEqual({key: row["reason"] for key, row in found.items()}, REASONS)
        for key, reason in REASONS.items():
            self.assertEqual("off_ms" in found[key], not reason, key)
            if not reason:
                self.assertEqual(len(found[key]["on_ms"]["all"]), 2)
                self.assertGreater(found[key]["off_ms"]["median"], 0)
        self.assertFalse((self.folder / "runs").exists())

    def test_processes_take_turns_and_get_the_options(self):
        row = self.rows("--bertha", self.program, "--only", "cuda.attention", "--lengths", "l.txt",
                        "--tokens-per-rank", 64, "--set", "train.seed=3")["cuda.attention"]
        given = "bench step --set train.seed=3 --lengths l.txt --tokens-per-rank 64"
        off = f"{given} --set cuda.graphs=off --set cuda.attention=grouped --json -"
        on = f"{given} --set cuda.graphs=off --set cuda.attention=auto --json -"
        self.assertEqual(self.asked(), [f"{given} --json -", *[off, on] * 4])
        self.assertEqual(row["off_ms"]["all"], [15.1, 15.0, 15.1, 15.0])
        self.assertEqual(row["on_ms"]["all"], [10.1, 10.0, 10.1, 10.0])
        self.assertAlmostEqual(row["spread_percent"], 100 * 0.1 / 10.05)
        self.assertAlmostEqual(row["gain_percent"], 100 * (15.05 / 10.05 - 1))

    def test_a_gain_below_the_spread_is_no_figure(self):
        self.assertIsNone(gains.judged([10.0, 10.4, 10.1], [10.0, 10.1, 9.9])["gain_percent"])
        self.assertAlmostEqual(gains.judged([12.0, 12.1], [10.0, 10.1])["gain_percent"], 19.9, 1)
        self.assertAlmostEqual(gains.judged([10.0, 10.1], [12.0, 12.1])["gain_percent"], -16.6, 1)
        out = self.tool("gains", "--bertha", self.program, "--plot", self.folder / "gains.svg", "--only",
                        "optimizer.clip,cuda.attention")
        self.assertRegex(out, r"optimizer\.clip +before +after +10\.050 +10\.050 +1\.0 % +below")
        self.assertRegex(out, r"attention +grouped +auto +15\.050 +10\.050 +1\.0 % +\+49\.8 %")
        self.assertIn("below the spread", (self.folder / "gains.svg").read_text())

    def test_a_variant_that_does_not_fit_has_a_reason(self):
        out = self.tool("gains", "--bertha", self.program, "--only", "cuda.graphs")
        self.assertIn("not run: cuda.graphs = auto ", out)
        self.assertNotIn("\x1b", out)
        self.tool("gains", "--bertha", self.program, "--only", "cuda.gelu_gemms", code=7)

    def test_a_launcher_starts_the_ranks(self):
        self.rows("--bertha", self.program, "--only", "data.exchange_padding", "--launcher", "env A=1")
        self.assertEqual(len(self.asked()), 1)  # as given: one rank, which exchanges nothing

    def test_mistakes_are_sentences(self):
        # A configuration that cannot run is an error and not a reason.
        self.assertIn("train.precision is bf16", self.tool(
            "gains", "--bertha", BERTHA, *SMALL, "--set", "train.precision=bf16", code=2))
        self.assertIn("--only graph is not a row; choose from cuda.attention,",
                      self.tool("gains", "--only", "graph", code=2))
        self.assertIn("at least 2", self.tool("gains", "--repeat", 1, code=2))
        self.assertIn("ends with .svg", self.tool("gains", "--plot", "gains", code=2))
        self.assertIn("--launcher: No closing quotation",
                      self.tool("gains", "--bertha", self.program, "--launcher", "'", code=2))
        self.program.write_text("#!/bin/sh\necho 7\n")
        self.assertIn("a report that is not JSON", self.tool("gains", "--bertha", self.program, code=5))


if __name__ == "__main__":
    main()
