#!/usr/bin/env python3
"""Compares the losses of several runs on the same batches with those of the first.

    python3 tests/comparisons/compare_curves.py runs/a runs/b:bf16

A run is a folder with metrics.jsonl, or such a file; ":bf16", ":fp16" or ":fp8" after it names the type
its model computes in (otherwise fp32; ":same" wants the very same numbers). Prints a table, and exits 1
when a run is beyond its bound or lacks a step of the first. `bertha-tools plot` draws the runs.

Bounds: some 300 roundings of half a unit u lie between input and loss. They are independent and
grow as the root of their number (Higham and Mary 2019).
  fp32 (u = 2^-24)  at step k sqrt(300 k) u of max(1, loss): each update hands its own roundings on.
  bf16 (u = 2^-9), fp16 (u = 2^-11)  the weights that are updated are fp32, so nothing is handed on
                    but sqrt(300) u of max(1, loss) is left in a batch; the mean over a window of n
                    steps, 25 or what there is, keeps to sqrt(300 / n) u.
  fp8               likewise with the 16 roundings to e4m3 of a model of two layers (input and weight
                    of four GEMMs each), 2.65 % rms each.
"""
import argparse
import json
import math
import pathlib
import sys

ROUNDINGS = {"fp32": 300, "bf16": 300, "fp16": 300, "fp8": 16}
UNIT = {"fp32": 2.0**-24, "bf16": 2.0**-9, "fp16": 2.0**-11, "fp8": 0.0265}
WINDOW = 25


def read_losses(path):
    """{step: loss} of the last record of each step; a loss that is not finite is nan."""
    file = path / "metrics.jsonl" if path.is_dir() else path
    losses = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record.get("kind") == "step":
            losses[record["step"]] = math.nan if record["loss"] is None else record["loss"]
    if not losses:
        sys.exit(f"compare_curves.py: {file}: no record of a step")
    return losses


class Run:
    def __init__(self, word):
        path, _, dtype = word.rpartition(":")
        if dtype not in (*UNIT, "same"):
            path, dtype = word, "fp32"
        self.dtype = dtype
        self.path = pathlib.Path(path)
        self.name = self.path.stem if self.path.is_file() else self.path.name
        self.losses = read_losses(self.path)

    def row(self, first, from_step):
        """Largest difference, the step it is at, and the step that is nearest its bound."""
        steps = [s for s in sorted(first.losses) if s >= from_step]
        missing = [s for s in steps if s not in self.losses]
        if missing or not steps:
            return None
        differences = {s: self.losses[s] - first.losses[s] for s in steps}
        scale = {s: max(1.0, first.losses[s]) for s in steps}
        if self.dtype == "same":
            bounds = {s: 0.0 for s in steps}
        elif self.dtype == "fp32":
            bounds = {s: math.sqrt(ROUNDINGS["fp32"] * s) * UNIT["fp32"] * scale[s] for s in steps}
        else:
            windows = {s: steps[max(0, i + 1 - WINDOW): i + 1] for i, s in enumerate(steps)}
            bounds = {s: math.sqrt(ROUNDINGS[self.dtype] / len(windows[s])) * UNIT[self.dtype] * scale[s]
                      for s in steps}
            differences = {s: sum(differences[t] for t in windows[s]) / len(windows[s])
                           for s in steps}
        # Where it is worst beside its bound; nan is worse than anything.
        def excess(step):
            d = abs(differences[step])
            if math.isnan(d):
                return math.inf
            return d / bounds[step] if bounds[step] > 0 else (math.inf if d > 0 else 0.0)
        worst = max(steps, key=excess)
        largest = max(steps, key=lambda s: abs(differences[s]))
        return {"largest": abs(differences[largest]), "at": largest, "worst": worst,
                "share": excess(worst), "bound": bounds[worst]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("runs", nargs="+", metavar="RUN[:TYPE]")
    parser.add_argument("--from-step", type=int, default=1,
                        help="compare from this step on, for runs that began at a checkpoint")
    arguments = parser.parse_args()
    runs = [Run(word) for word in arguments.runs]
    failed = False
    names = max(len(run.name) for run in runs)
    print(f"{'run':{names}}  {'type':5} {'steps':>5} {'last loss':>9}  {'largest difference':>18} "
          f"{'at step':>7}  {'nearest its bound':>17} {'at step':>7} {'bound':>9}")
    for run in runs:
        start = f"{run.name:{names}}  {run.dtype:5} {len(run.losses):5} " \
                f"{run.losses[max(run.losses)]:9.4f}"
        if run is runs[0]:
            print(f"{start}  {'(the others are compared with it)'}")
            continue
        row = run.row(runs[0], arguments.from_step)
        if row is None:
            failed = True
            print(f"{start}  FAILED: lacks steps of the first run")
            continue
        good = row["share"] <= 1
        failed |= not good
        print(f"{start}  {row['largest']:18.2e} {row['at']:7}  {100 * row['share']:15.1f} % "
              f"{row['worst']:7} {row['bound']:9.2e}{'' if good else '  FAILED'}")
    if any(run.dtype in ("bf16", "fp16") for run in runs):
        print(f"bf16, fp16: of the mean over {WINDOW} steps")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
