#!/usr/bin/env python3
"""Says whether the loss of some runs stays within the spread that seeds alone cause.

    python3 tests/comparisons/seed_curves.py --spread runs/bf16_1 runs/bf16_2 runs/bf16_3 \\
      --judged runs/fp8_1 runs/fp8_2 --svg curves.svg

A run is a folder with metrics.jsonl, or such a file; train.log_every_steps 1 gives every step. Runs
of --spread differ in nothing but train.seed, those of --judged in one thing more, such as
train.precision. The script draws all of them with the band that the first fill, prints where the mean
of the judged ones is farthest from that of the others, and ends with exit code 1 where that is too
far. It also shows the accuracy of their last evaluation in common. --svg needs matplotlib.

Rule: each curve becomes the means over windows of --window steps, as far as all runs go. In a window
the k runs of --spread have a mean and a variance; the variance is averaged over NEIGHBORS windows. The
mean of the j judged runs may be LIMIT standard errors s sqrt(1/k + 1/j) away: 7 for three seeds and 4.5
for more, which Student's t with 2 and 3 degrees of freedom exceeds with probability 2 %. Neighbors move
together, so that whole curves of equals pass some nine times of ten. The rule finds what shifts a
curve by more than seeds do, and says by how much; it cannot find less.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys

from compare_curves import read_losses

NEIGHBORS = 9
LIMIT = {3: 7.0}  # standard errors, by seeds
LIMIT_OF_MORE = 4.5


class Run:
    def __init__(self, word):
        self.path = pathlib.Path(word)
        self.name = self.path.stem if self.path.is_file() else self.path.name
        self.losses = read_losses(self.path)
        self.windows = []

    def smooth(self, window, last_step):
        """Means over the windows that are full; nan where a loss is no number or none is there."""
        for end in range(window, last_step + 1, window):
            inside = [self.losses[s] for s in range(end - window + 1, end + 1) if s in self.losses]
            self.windows.append(statistics.fmean(inside) if inside else math.nan)

    def accuracies(self):
        file = self.path / "metrics.jsonl" if self.path.is_dir() else self.path
        records = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        return {r["samples"]: r["mlm_accuracy"] for r in records if r["kind"] == "eval"}


def judge(spread, judged):
    """For each window: mean of the judged runs minus that of the others, and what it may be."""
    windows = list(zip(*(run.windows for run in spread)))
    variances = [statistics.variance(values) for values in windows]
    limit = LIMIT.get(len(spread), LIMIT_OF_MORE)
    differences, bounds = [], []
    for i, values in enumerate(windows):
        near = variances[max(0, i - NEIGHBORS // 2): i + NEIGHBORS // 2 + 1]
        error = math.sqrt(statistics.fmean(near) * (1 / len(spread) + 1 / len(judged)))
        differences.append(statistics.fmean(run.windows[i] for run in judged)
                           - statistics.fmean(values))
        bounds.append(limit * error)
    return differences, bounds


def draw(path, spread, judged, steps, bounds):
    """All curves, and their differences from the mean of the spread with what the judged may have."""
    from pictures import new_figure, write_figure
    means = [statistics.fmean(values) for values in zip(*(run.windows for run in spread))]
    figure = new_figure(9, 8.5)
    curves, difference = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    for axes, base in ((curves, [0] * len(steps)), (difference, means)):
        values = {run: [v - b for v, b in zip(run.windows, base)] for run in spread + judged}
        columns = list(zip(*(values[run] for run in spread)))
        axes.fill_between(steps, [min(c) for c in columns], [max(c) for c in columns], color="C0", alpha=0.25)
        for run in spread:
            axes.plot(steps, values[run], color="C0", linewidth=0.6, label=run.name)
        for i, run in enumerate(judged):
            axes.plot(steps, values[run], color=f"C{1 + i % 9}", linewidth=1.3, label=run.name)
    limits = difference.get_ylim()  # of the runs
    for sign in (-1, 1):
        difference.plot(steps, [sign * bound for bound in bounds], color="gray", linewidth=0.8)
    curves.set(title=f"Loss, means over {steps[0]} steps", ylabel="loss (nats)")
    curves.legend()
    difference.set(title=f"Minus the mean of {', '.join(run.name for run in spread)}", xlabel="step",
                   ylabel="difference (nats)", ylim=limits)
    write_figure(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--spread", nargs="+", required=True, metavar="RUN", help="three at least")
    parser.add_argument("--judged", nargs="+", required=True, metavar="RUN")
    parser.add_argument("--window", type=int, default=20, help="steps (default 20)")
    parser.add_argument("--svg", help="file to draw all runs in")
    arguments = parser.parse_args()
    spread, judged = ([Run(word) for word in words] for words in (arguments.spread, arguments.judged))
    last_step = min(max(run.losses) for run in spread + judged)
    if len(spread) < 3 or last_step < arguments.window:
        parser.error(f"want three runs of --spread and {arguments.window} steps, "
                     f"found {len(spread)} and {last_step}")
    for run in spread + judged:
        run.smooth(arguments.window, last_step)
        if not all(math.isfinite(v) for v in run.windows):
            sys.exit(f"seed_curves.py: {run.path}: a window has a loss that is no number, or none")
    steps = [arguments.window * (i + 1) for i in range(len(spread[0].windows))]
    differences, bounds = judge(spread, judged)
    accuracies = {run: run.accuracies() for run in spread + judged}
    common = set.intersection(*(set(found) for found in accuracies.values()))
    print(f"{'run':20} {'steps':>6} {f'loss at {steps[-1]}':>14}"
          + (f"  accuracy at {max(common)} samples" if common else ""))
    for run in spread + judged:
        print(f"{run.name[-20:]:20} {max(run.losses):6} {run.windows[-1]:14.4f}"
              + (f"  {accuracies[run][max(common)]:.4f}" if common else ""))
    inside = sum(min(run.windows[i] for run in spread) <= statistics.fmean(
        run.windows[i] for run in judged) <= max(run.windows[i] for run in spread)
                 for i in range(len(steps)))
    shares = [abs(d) / b if b > 0 else (math.inf if d else 0.0)
              for d, b in zip(differences, bounds)]
    worst = shares.index(max(shares))
    failed = shares[worst] > 1
    print(f"mean of the judged runs: inside the band of the others in {inside} of {len(steps)} windows; "
          f"farthest at step {steps[worst]}: {differences[worst]:+.4f} nats, "
          f"{100 * shares[worst]:.0f} % of what is allowed"
          f"{'  FAILED' if failed else ''}; {statistics.fmean(differences):+.4f} nats on average")
    if arguments.svg:
        draw(arguments.svg, spread, judged, steps, bounds)
        print(f"written: {arguments.svg}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
