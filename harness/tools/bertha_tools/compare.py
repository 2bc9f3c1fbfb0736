"""Shows runs in adjacent columns: what they reached, their speed, and the settings that differ.

Speed is taken from the median step. The time to the target includes training and evaluation, but
not the time between a stop and the next start.
"""
import math
import os
import pathlib
import re
import statistics

from bertha_tools import metrics as records
from bertha_tools import output, plot
from bertha_tools.errors import DATA, SUCCESS, USAGE, Refused, say, shortened
from bertha_tools.metrics import count_of, number, text
from bertha_tools.output import duration, fixed, scaled

DESCRIPTION = "Compares runs: what they reached, their speed, and the settings that differ."
EXAMPLES = ("bertha-tools compare runs/quickstart runs/other",
            "bertha-tools compare runs/a runs/b --output accuracy.svg",
            "bertha-tools compare runs/seed-0 runs/seed-1 runs/seed-2 --json -")
# Lines of a resolved.yaml as a run writes it: "section:" or "  key: value", and comments.
LINE = re.compile(r'(?:(?P<section>\w+):|\s+(?P<key>\w+):\s*(?P<value>"(?:[^"\\]|\\.)*"|[^#"]*?))?'
                  r"\s*(?:#.*)?")


def newest_settings(folder):
    """The resolved*.yaml of the newest start: every start that trains also writes an env*.json."""
    path, start = pathlib.Path(folder, "resolved.yaml"), 1
    while os.path.exists(os.path.join(folder, f"env.resume{start}.json")):
        path, start = pathlib.Path(folder, f"resolved.resume{start}.yaml"), start + 1
    return path


def read_settings(path):
    """{"section.key": value as written}. The exit code is that of a wrong configuration."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise OSError(0, "not a file")
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise Refused(USAGE, f"{path}: cannot be read ({error.strerror}); give a run folder with "
                             "the settings that the run recorded") from None
    settings, section = {}, ""
    for count, line in enumerate(lines, 1):
        found = LINE.fullmatch(line)
        if not found or (found["key"] and not section):
            raise Refused(USAGE, f"{path}: line {count} is {shortened(line.strip())}, want "
                                 "'section:' or '  key: value'; restore the file of the run")
        section = found["section"] or section
        if found["key"]:
            settings[f"{section}.{found['key']}"] = found["value"]
    return settings


def seconds_until_target(metrics):
    """NaN if the target was missed, or without a target."""
    seconds = 0
    samples = metrics.first_step * number(metrics.run, "global_batch_seqs", 0)
    for one in metrics.evals:
        speed = number(one, "seqs_per_second_since_last")
        seconds += (one["samples"] - samples) / speed if speed > 0 else math.nan
        seconds += number(one, "seconds")
        samples = one["samples"]
        if 0 < metrics.target <= number(one, "mlm_accuracy"):
            return seconds
    return math.nan


def result_of(folder, metrics):
    """The figures of a run, as the JSON report has them."""
    last = metrics.evals[-1] if metrics.evals else {}
    speeds = [number(step, "seqs_per_second") for step in metrics.steps]
    return {"run_dir": folder, "model": text(metrics.run, "model"),
            "parameters": count_of(metrics.run, "parameters"),
            "samples": metrics.steps[-1]["samples"] if metrics.steps else 0,
            "seqs_per_second": statistics.median(speeds or [math.nan]),
            "target_accuracy": metrics.target, "seconds_to_target": seconds_until_target(metrics),
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
    """{key: its value in each run} for the keys whose values differ."""
    keys = dict.fromkeys(key for one in settings for key in one)  # in the order of the files
    rows = {key: [one.get(key, "not recorded") for one in settings] for key in keys}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}


def add_arguments(parser):
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder")
    parser.add_argument("-o", "--output", metavar="FILE", type=output.picture,
                        help="picture of the accuracy of all runs by samples")
    output.add_json_option(parser)


def run(options):
    for folder in options.runs:
        if not os.path.isdir(folder):
            raise Refused(DATA, f"{folder}: no such folder; give the folder of a run")
    runs = [records.read(folder) for folder in options.runs]
    differing = differing_settings([read_settings(newest_settings(one)) for one in options.runs])
    results = [result_of(folder, metrics) for folder, metrics in zip(options.runs, runs)]
    if options.json != "-":
        cells = [cells_of(result, metrics) for result, metrics in zip(results, runs)]
        rows = {**{name: [one[name] for one in cells] for name in cells[0]}, **differing}
        output.print_table(("", *options.runs), [(name, *row) for name, row in rows.items()],
                           justify="left")
    if options.output:
        named = list(zip(output.short_names(options.runs), runs))
        plot.write_picture([plot.accuracy_by_samples(named)], options.output)
        if options.json != "-":
            say(f"written: {options.output}")
    output.write_json(options.json, "compare", SUCCESS,
                      {"runs": results, "differing_keys": differing})
    return SUCCESS
