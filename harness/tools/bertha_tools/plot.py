"""Draws runs with matplotlib: loss, accuracy, throughput and learning rate by steps, and accuracy
by samples over the published runs of the benchmark.

A folder gets a file per chart, the name of a picture one picture with all charts. The same records
give the same bytes.
"""
import dataclasses
import math
import os
import pathlib

from bertha_tools import diagnose
from bertha_tools import metrics as records
from bertha_tools import output
from bertha_tools.errors import SUCCESS, USAGE, Refused, printable, say
from bertha_tools.metrics import number
from bertha_tools.output import exponent, fixed, scaled

DESCRIPTION = "Draws the curves of runs: loss, accuracy, throughput, learning rate."
EXAMPLES = ("bertha-tools plot runs/latest",
            "bertha-tools plot runs/latest --output plots --format png",
            "bertha-tools plot runs/seed-0 runs/seed-1 --output seeds.svg",
            "bertha-tools plot runs/latest/metrics.jsonl --output curves.png")
WIDTH, HEIGHT = 9, 4.8  # inches of a chart
MOST = 1e30             # larger values become gaps: they would flatten the rest of the curve
POINTS = {"marker": "o", "markerfacecolor": "white", "markersize": 5}


@dataclasses.dataclass
class Chart:
    name: str      # name of its file
    title: str
    y_label: str
    runs: list     # (name, metrics)
    x: str = "step"
    lines: list = dataclasses.field(default_factory=list)  # (x, y, how matplotlib draws them)
    has_targets: bool = False
    published: tuple | None = None

    def add(self, kind, label, field, last_text=lambda value: fixed(value, 3), **style):
        """A figure of all "steps" or "evals"; the legend has its last value."""
        for index, (name, metrics) in enumerate(self.runs):
            found = getattr(metrics, kind)
            y = [value if abs(value := number(one, field)) < MOST else math.nan for one in found]
            known = [value for value in y if not math.isnan(value)]
            if known:
                # Colors distinguish runs, or else the lines of the only one. matplotlib leaves
                # labels that begin with an underscore out of the legend.
                color = f"C{(index if len(self.runs) > 1 else len(self.lines)) % 10}"
                words = printable(" ".join(filter(None, (name, label, last_text(known[-1])))))
                words = f" {words}" if words.startswith("_") else words
                self.lines.append(([float(one[self.x]) for one in found], y,
                                   {"color": color, "label": words, "linewidth": 1.5,
                                    "marker": "." if len(known) == 1 else "", **style}))

    def draw(self, axes):
        if self.published:
            axes.fill_between(*diagnose.band_of(self.published), color="tab:green", alpha=0.25,
                              linewidth=0, label=diagnose.band_name(self.published))
        for x, y, style in self.lines:
            axes.plot(x, y, **style)
        targets = {metrics.target for _, metrics in self.runs} - {0} if self.has_targets else ()
        for target in sorted(targets):
            axes.axhline(target, color="tab:red", linestyle="--", linewidth=1,
                         label=f"target {fixed(target, 3)}")
        axes.set(title=self.title, xlabel=self.x, ylabel=self.y_label)
        axes.grid(alpha=0.3)
        if not self.lines:
            axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center")
        elif not self.published:  # the axes reach down to 0
            axes.set_xlim(left=min(axes.get_xlim()[0], 0))
            axes.set_ylim(bottom=0 if axes.dataLim.y0 >= 0 else None)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")


def charts_of(runs, published=None):
    """All charts of [(name, metrics)]; published: a submission to compare with, or None."""
    loss = Chart("loss", "Loss", "loss (nats)", runs)
    if len(runs) == 1:  # or the picture is too full
        loss.add("steps", "next sentence", "nsp_loss", linestyle=":")
    if loss.lines:  # without next sentences the sum is the loss of the masked tokens
        loss.add("steps", "train", "loss", linestyle="--")
    loss.add("steps", "masked tokens", "mlm_loss")
    loss.add("evals", "eval, masked tokens", "mlm_loss", **POINTS)
    accuracy = Chart("accuracy", "Masked-token accuracy", "accuracy (fraction)", runs,
                     has_targets=True)
    accuracy.add("steps", "train", "mlm_accuracy")
    accuracy.add("evals", "eval", "mlm_accuracy", **POINTS)
    throughput = Chart("throughput", "Throughput, all ranks", "sequences per second", runs)
    throughput.add("steps", "train", "seqs_per_second", scaled)
    rate = Chart("learning_rate", "Learning rate", "learning rate", runs)
    rate.add("steps", "learning rate", "learning_rate", exponent)
    compared = [accuracy_by_samples(runs, "eval", published)] if published else []
    return [loss, accuracy, throughput, rate, *compared]


def accuracy_by_samples(runs, label="", published=None):
    title = "compared with published runs" if published else "on the evaluation set"
    chart = Chart("accuracy_by_samples", f"Masked-token accuracy {title}", "accuracy (fraction)",
                  runs, x="samples", has_targets=bool(published), published=published)
    chart.add("evals", label, "mlm_accuracy", lambda value: fixed(value, 4), **POINTS)
    return chart


def write_picture(charts, path):
    """One picture with all charts, two in a row."""
    columns = min(len(charts), 2)
    rows = math.ceil(len(charts) / columns)
    figure = output.new_figure(WIDTH * columns, HEIGHT * rows)
    for place, chart in enumerate(charts):
        chart.draw(figure.add_subplot(rows, columns, place + 1))
    output.write_figure(figure, path)


def add_arguments(parser):
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, or metrics.jsonl")
    parser.add_argument("-o", "--output", metavar="PATH",
                        help="folder for a file per chart (default: plots/ in the folder of a "
                             f"single run), or a name that ends with {', '.join(output.PICTURES)} "
                             "for one picture")
    parser.add_argument("--format", choices=("svg", "png"), default="svg",
                        help="format of the files in a folder (default svg)")
    diagnose.add_published_option(parser)


def run(options):
    if not options.output and len(options.runs) > 1:
        raise Refused(USAGE, f"{len(options.runs)} runs have no common folder; choose one for their "
                             "charts with --output")
    runs = [records.read(path) for path in options.runs]
    names = output.short_names(options.runs) if len(runs) > 1 else [""]
    charts = charts_of(list(zip(names, runs)), diagnose.published_for(runs[0], options.published))
    place = pathlib.Path(options.output or runs[0].path.parent / "plots")
    if place.suffix in output.PICTURES:
        write_picture(charts, place)
        say(f"written: {place}")
    else:
        os.makedirs(place, exist_ok=True)
        for chart in charts:
            write_picture([chart], place / f"{chart.name}.{options.format}")
        say(f"written: {place}/*.{options.format}")
    for path, metrics in zip(options.runs, runs):
        diagnose.print_remarks(diagnose.remarks_on(path, metrics))
    return SUCCESS
