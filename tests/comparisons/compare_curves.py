#!/usr/bin/env python3
"""Compares the losses of several runs on the same batches with those of the first.

    python3 tests/comparisons/compare_curves.py runs/a runs/b:bf16 --svg loss.svg

A run is a folder with metrics.jsonl, or such a file; ":bf16", ":fp16" or ":fp8" after it names the type
its model computes in (otherwise fp32; ":same" wants the very same numbers). Prints a table, draws one
SVG, and exits 1 when a run is beyond its bound or lacks a step of the first. Standard library only.

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
COLORS = ("#1f6fb4", "#d1620f", "#2c8c4a", "#b3323d", "#7a55b0", "#806040", "#c04f9c", "#5a6470")


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


class Picture:
    """Lines over steps, as SVG: a frame with its axes, `top` pixels below the top of the file."""

    WIDTH, LEFT, RIGHT = 860, 62, 16

    def __init__(self, title, unit, steps, values, top=0, height=480):
        self.begin, self.end = top + 42, top + height - 46
        self.first, self.last = min(steps), max(max(steps), min(steps) + 1)
        # Five ticks or so, 1, 2 or 5 times a power of ten apart.
        span = max(max(values) - min(values), 1e-9)
        power = 10.0 ** math.floor(math.log10(span / 4))
        tick = next(factor * power for factor in (1, 2, 5, 10) if span <= 5 * factor * power)
        ticks = range(math.floor(min(values) / tick), math.ceil(max(values) / tick + 1e-9) + 1)
        self.low, self.high = ticks[0] * tick, ticks[-1] * tick
        right = self.WIDTH - self.RIGHT
        middle = (self.begin + self.end) / 2
        self.out = [f'<text x="{self.LEFT}" y="{top + 20}" font-size="15" fill="#222222">{title}</text>']
        for i in ticks:
            self.out.append(f'<path d="M{self.LEFT} {self.y(i * tick):.1f}H{right}" stroke="#dddddd"/>')
            self.text(self.LEFT - 8, self.y(i * tick) + 4, f"{i * tick:.6g}", "end")
        for part in range(6):
            step = self.first + (self.last - self.first) * part / 5
            self.text(self.x(step), self.end + 18, f"{step:.0f}", "middle")
        self.text((self.LEFT + right) / 2, self.end + 38, "step", "middle")
        self.out.append(f'<text transform="translate(16 {middle}) rotate(-90)" '
                        f'text-anchor="middle" fill="#444444">{unit}</text>')

    def x(self, step):
        return self.LEFT + (step - self.first) / (self.last - self.first) * (
            self.WIDTH - self.LEFT - self.RIGHT)

    def y(self, value):
        return self.end - (value - self.low) / (self.high - self.low) * (self.end - self.begin)

    def text(self, x, y, words, anchor, color="#444444"):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
                        f'fill="{color}">{words}</text>')

    def legend(self, row, words, color):
        self.text(self.WIDTH - self.RIGHT - 8, self.begin + 18 + 18 * row, words, "end", color)

    def points(self, steps, values):
        return " ".join(f"{self.x(s):.1f},{self.y(v):.1f}" for s, v in zip(steps, values)
                        if math.isfinite(v))

    def line(self, steps, values, color, width=1.3, opacity=1):
        self.out.append(f'<polyline points="{self.points(steps, values)}" fill="none" '
                        f'stroke="{color}" stroke-width="{width}" stroke-opacity="{opacity}"/>')

    def band(self, steps, low, high, color):
        points = self.points(steps, low) + " " + self.points(steps[::-1], high[::-1])
        self.out.append(f'<polygon points="{points}" fill="{color}" fill-opacity="0.25"/>')


def svg_of(pictures):
    height = max(picture.end for picture in pictures) + 46
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {Picture.WIDTH} {height}" '
           'font-family="sans-serif" font-size="13">',
           f'<rect width="{Picture.WIDTH}" height="{height}" fill="#ffffff"/>']
    return "\n".join(out + [line for picture in pictures for line in picture.out]) + "\n</svg>\n"


def svg(runs):
    picture = Picture("Loss on the same batches", "loss (nats)", [s for run in runs for s in run.losses],
                      [v for run in runs for v in run.losses.values() if math.isfinite(v)])
    for i, run in enumerate(runs):
        color = COLORS[i % len(COLORS)]
        # The first is widest and lowest, so that runs that lie on it are seen at all.
        wide = {"width": 4, "opacity": 0.45} if i == 0 else {}
        picture.line(sorted(run.losses), [v for _, v in sorted(run.losses.items())], color, **wide)
        picture.legend(i, f"{run.name} ({run.dtype})", color)
    return svg_of([picture])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("runs", nargs="+", metavar="RUN[:TYPE]")
    parser.add_argument("--svg", help="file to draw all losses in")
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
    if arguments.svg:
        pathlib.Path(arguments.svg).write_text(svg(runs), encoding="utf-8")
        print(f"written: {arguments.svg}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
