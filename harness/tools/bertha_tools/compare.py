"""Shows runs in adjacent columns: what they reached, their speed, and the settings that differ.

Speed is taken from the median step. The time to the target includes training and evaluation, but
not the time between a stop and the next start.
"""
import math
import os
import pathlib
import statistics

from bertha_tools import metrics as records
from bertha_tools import plot
from bertha_tools.errors import DATA, SUCCESS, USAGE, Refused
from bertha_tools.run_folder import (add_json_option, count_of, duration, fixed, newest_settings,
                                     number, printable, read_settings, scaled, short_names,
                                     target_of, text, write_json)

DESCRIPTION = "Compares runs: what they reached, their speed, and the settings that differ."
EXAMPLES = ("bertha-tools compare runs/quickstart runs/other",
            "bertha-tools compare runs/a runs/b --output accuracy.svg",
            "bertha-tools compare runs/seed-0 runs/seed-1 runs/seed-2 --json -")


def median_speed(metrics):
    speeds = [number(step, "seqs_per_second") for step in metrics.steps]
    return statistics.median(speeds or [math.nan])


def seconds_until_target(metrics):
    """NaN if the target was missed, or without a target."""
    target = target_of(metrics)
    seconds = 0
    samples = metrics.first_step * number(metrics.run, "global_batch_seqs", 0)
    for one in metrics.evals:
        speed = number(one, "seqs_per_second_since_last")
        seconds += (one["samples"] - samples) / speed if speed > 0 else math.nan
        seconds += number(one, "seconds")
        samples = one["samples"]
        if 0 < target <= number(one, "mlm_accuracy"):
            return seconds
    return math.nan


def result_of(folder, metrics):
    """The figures of a run, as the JSON report has them."""
    last = metrics.evals[-1] if metrics.evals else {}
    return {"run_dir": folder, "model": text(metrics.run, "model"),
            "parameters": count_of(metrics.run, "parameters"),
            "samples": metrics.steps[-1]["samples"] if metrics.steps else 0,
            "seqs_per_second": median_speed(metrics), "target_accuracy": target_of(metrics),
            "seconds_to_target": seconds_until_target(metrics),
            "mlm_accuracy": number(last, "mlm_accuracy"), "mlm_loss": number(last, "mlm_loss")}


def cells_of(result, metrics):
    """The same for people, as {name of the row: text}."""
    target, seconds = result["target_accuracy"], result["seconds_to_target"]
    time_to_it = "missed" if math.isnan(seconds) else duration(seconds)
    accuracy, loss = (fixed(result[name], 4) if metrics.evals else "never evaluated"
                      for name in ("mlm_accuracy", "mlm_loss"))
    return {"model": result["model"], "parameters": f"{result['parameters']:,}",
            "samples": f"{result['samples']:,}",
            "sequences/s": scaled(result["seqs_per_second"]) if metrics.steps else "no step",
            "target": fixed(target, 4) if target else "none",
            "time to it": time_to_it if target else "no target",
            "accuracy": accuracy, "eval loss": loss}


def differing_settings(settings):
    """{key: its value in each run} of the keys whose values are not the same in all."""
    keys = dict.fromkeys(key for one in settings for key in one)  # in the order of the files
    rows = {key: [one.get(key, "not recorded") for one in settings] for key in keys}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}


def print_rows(runs, rows):
    """A table, or a block per row if the table is wider than the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in ("", *runs):
        table.add_column(Text(printable(name)), no_wrap=True)
    for name, cells in rows.items():
        table.add_row(*(Text(printable(cell)) for cell in (name, *cells)))
    console = Console(highlight=False)
    width = console.measure(table, options=console.options.update_width(100_000)).maximum
    if not console.is_terminal:
        console.width = max(width, 1)  # whole lines for a pipe or a file
    if width <= console.width:
        console.print(table)
        return
    for name, cells in rows.items():
        console.print(Text(printable(name), style="bold"))
        for run_name, cell in zip(runs, cells):
            console.print(Text(printable(f"  {run_name}  {cell}")))


def add_arguments(parser):
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder")
    parser.add_argument("-o", "--output", metavar="FILE", default="",
                        help="FILE.svg or FILE.png for the accuracy of all runs by samples")
    add_json_option(parser)


def run(options):
    if options.output and pathlib.Path(options.output).suffix not in plot.ENDINGS:
        raise Refused(USAGE, f"--output is {printable(options.output)}, want a name that ends in "
                             f"{' or '.join(plot.ENDINGS)}")
    for folder in options.runs:
        if not os.path.isdir(folder):
            raise Refused(DATA, f"{printable(folder)}: no such folder; give the folder of a run")
    runs = [records.read(folder) for folder in options.runs]
    differing = differing_settings([read_settings(newest_settings(one)) for one in options.runs])
    results = [result_of(folder, metrics) for folder, metrics in zip(options.runs, runs)]
    cells = [cells_of(result, metrics) for result, metrics in zip(results, runs)]
    if options.json != "-":
        rows = {name: [one[name] for one in cells] for name in cells[0]}
        print_rows(options.runs, {**rows, **differing})
    if options.output:
        named = list(zip(short_names(options.runs), runs))
        plot.write_charts([plot.accuracy_by_samples(named)], options.output)
        if options.json != "-":
            print(printable(f"written: {options.output}"))
    write_json(options.json, "compare", SUCCESS, {"runs": results, "differing_keys": differing})
    return SUCCESS
