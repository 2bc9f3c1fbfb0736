"""Measures the gain of each technique that is a key of the configuration on this machine.

A row compares whole steps without and with its technique, by `bertha bench step` in processes that
take turns: without, with, without, with. The figure of a process is the median of its steps; a row
has the medians of its processes and their spread. A gain below the spread is not a figure.
Techniques that are not keys have their measured figures in kernels/measured/gains.md.
"""
import datetime
import shlex
import statistics
import sys
import typing

from bertha_tools import output, program
from bertha_tools.errors import MEMORY, SUCCESS, USAGE, Refused, say, shortened, within

DESCRIPTION = "Measures the gain of each technique that is a key of the configuration on this GPU."
EXAMPLES = (
    "bertha-tools gains --config configs/quickstart_gpu.yaml",
    "bertha-tools gains --config configs/mlperf_closed_8gpu_448.yaml --lengths lengths.txt "
    "--tokens-per-rank 24576 --json gains.json --plot gains.svg",
    "bertha-tools gains --launcher 'mpirun -n 2' --only cuda.exchange,data.exchange_padding")
PASSED = {"--lengths": ("FILE", "counts of sequence lengths (default: all at full length)"),
          "--tokens-per-rank": ("N", "live tokens of each rank's micro-batch"),
          "--steps": ("N", "steps to time in each process (default 50)"),
          "--warmup": ("N", "steps before the timed ones (default 10)"),
          "--global-batch": ("N", "sequences per step over all ranks"),
          "--grad-accum": ("N", "micro-batches per rank and step"),
          "--seed": ("N", "seed of the data order and the initial weights"),
          "--backend": ("NAME", "auto, cpu or cuda")}


class Technique(typing.NamedTuple):
    key: str
    name: str
    off: str | None   # value of the key; None: as given
    on: str | None
    both: tuple = ()  # settings of both variants
    needs: str = ""   # see unmet()


TECHNIQUES = (
    Technique("cuda.attention", "attention in one launch", "grouped", "auto", ("cuda.graphs=off",)),
    Technique("cuda.embedding_gradient", "gradient of the word table sorted", "atomic", "sorted"),
    Technique("cuda.exchange", "copies between the GPUs of a node", "nccl", "auto",
              needs="2 ranks or more"),
    Technique("cuda.fp8_fast_wgrad", "fast sums in fp8 weight gradients", "false", "true",
              needs="train.precision fp8"),
    Technique("cuda.gelu_gemms", "own kernels of GEMMs with a GELU", "library", "auto"),
    Technique("cuda.gemm_plans", "tuned GEMMs", "", None, needs="a file of plans, cuda.gemm_plans"),
    Technique("cuda.graphs", "forward and backward as graphs", "off", "auto"),
    Technique("cuda.kernels", "kernels that are made for the GPU", "portable", "auto"),
    Technique("data.exchange_padding", "samples assigned to ranks by length", "off", "lengths",
              needs="2 ranks or more"),
    Technique("optimizer.clip", "clipping after the sum over ranks", "before", "after"),
    Technique("train.last_layer", "last layer for the rows that losses read", "all_rows",
              "needed_rows"),
    Technique("train.precision", "GEMMs in fp8", None, "fp8", needs="another train.precision"))


def add_arguments(parser):
    program.add_options(parser)
    parser.add_argument("--only", metavar="KEY[,..]", help="only these rows")
    parser.add_argument("--repeat", metavar="N", type=within(2), default=4,
                        help="processes per variant (default %(default)s)")
    parser.add_argument("--launcher", metavar="WORDS", default="",
                        help="command that starts several ranks, such as 'mpirun -n 2'")
    for name, (value, text) in PASSED.items():
        parser.add_argument(name, metavar=value, help=text)
    output.add_json_option(parser)
    parser.add_argument("--plot", metavar="FILE", type=output.picture,
                        help=f"bar chart: {', '.join(output.PICTURES)}")


def chosen(only):
    known = {technique.key: technique for technique in TECHNIQUES}
    keys = only.split(",") if only else known
    for key in keys:
        if key not in known:
            raise Refused(USAGE, f"--only {shortened(key)} is not a row; choose from "
                          f"{', '.join(known)}")
    return [technique for technique in TECHNIQUES if technique.key in keys]


class Bench:
    """Runs `bertha bench step` with the given options."""

    def __init__(self, options):
        try:
            launcher = shlex.split(options.launcher)
        except ValueError as error:
            raise Refused(USAGE, f"--launcher: {error}; want the words of a shell command") from None
        given = {name: getattr(options, name[2:].replace("-", "_")) for name in PASSED}
        bertha, config = program.find(options.bertha), program.configuration(options)
        self.words = [*launcher, bertha, "bench", "step", *config,
                      *(word for name, value in given.items() if value for word in (name, value))]
        shown = program.report_of([bertha, "config", "show", *config, "--json", "-"])
        self.values = {key: entry["value"] for key, entry in shown["keys"].items()}

    def step(self, settings=()):
        sets = [word for setting in settings for word in ("--set", setting)]
        return program.report_of([*self.words, *sets, "--json", "-"])

    def unmet(self, technique, as_given):
        """Why a row cannot run here; "" if it can."""
        if technique.key.startswith("cuda.") and as_given["device"].startswith("cpu"):
            return "needs a GPU"
        is_fp8 = self.values["train.precision"] == "fp8"
        met = {"2 ranks or more": as_given["ranks"] > 1, "train.precision fp8": is_fp8,
               "another train.precision": not is_fp8,
               "a file of plans, cuda.gemm_plans": self.values["cuda.gemm_plans"]}
        return "" if met.get(technique.needs, True) else f"needs {technique.needs}"


def measure(bench, technique, repeat):
    """The figures of a row; {"reason": ...} if a variant is refused or does not fit."""
    found = {"off": [], "on": []}
    for turn in range(repeat):
        for variant, figures in found.items():
            if sys.stderr.isatty():
                print(f"{technique.key}: {variant}, {turn + 1} of {repeat}", file=sys.stderr)
            value = getattr(technique, variant)
            settings = (*technique.both, *([] if value is None else [f"{technique.key}={value}"]))
            try:
                figures.append(float(bench.step(settings)["step_ms"]["median"]))
            except Refused as refused:
                if refused.code not in (USAGE, MEMORY):
                    raise
                return {"reason": str(refused)}
    return {"reason": "", **judged(**found)}


def judged(off, on):
    """Medians, the larger spread of the two variants, and the gain if it is above the spread."""
    off_ms, on_ms = ({"median": statistics.median(values), "all": values} for values in (off, on))
    spread = max(100 * (max(one["all"]) - min(one["all"])) / one["median"]
                 for one in (off_ms, on_ms))
    gain = 100 * (off_ms["median"] / on_ms["median"] - 1)
    return {"off_ms": off_ms, "on_ms": on_ms, "spread_percent": spread,
            "gain_percent": gain if abs(gain) > spread else None}


def print_report(report):
    say(f"gain of each technique: {report['model']}, {report['precision']}, "
        f"{output.counted(report['ranks'], 'rank')}, {report['device']}, {report['date']}\n"
        f"step as configured: {report['step_ms']:.3f} ms, {report['tokens_per_step']:,.0f} "
        f"tokens; figures are medians of {report['repeat']} processes")
    table = []
    for row in report["rows"]:
        figures = ("-", "-", "-", "not run")
        if not row["reason"]:
            gain = row["gain_percent"]
            figures = (f"{row['off_ms']['median']:.3f}", f"{row['on_ms']['median']:.3f}",
                       f"{row['spread_percent']:.1f} %",
                       "below the spread" if gain is None else f"{gain:+.1f} %")
        table.append((row["key"], row["off"], row["on"], *figures))
    output.print_table(("key", "off", "on", "off, ms", "on, ms", "spread", "faster by"), table)
    for row in report["rows"]:
        say(f"{row['key']}: {row['technique']}"
            + (f"; not run: {row['reason']}" if row["reason"] else ""))


def draw(report):
    rows = [row for row in report["rows"] if not row["reason"]]
    figure = output.new_figure(8, 1.5 + 0.4 * len(rows))
    axes = figure.subplots()
    axes.barh([row["key"] for row in rows], [row["gain_percent"] or 0 for row in rows])
    for place, row in enumerate(rows):
        spread = f"spread {row['spread_percent']:.1f} %"
        text = f"below the {spread}" if row["gain_percent"] is None else spread
        axes.annotate(text, (row["gain_percent"] or 0, place), (4, 0), textcoords="offset points",
                      va="center", fontsize="small")
    axes.invert_yaxis()
    axes.set(title=f"Gain of each technique, {report['model']}, {report['device'].split(',')[0]}",
             xlabel="more steps per second with it (%)")
    return figure


def run(options):
    techniques, bench = chosen(options.only), Bench(options)
    as_given = bench.step()
    report = {**{name: as_given[name] for name in ("model", "device", "precision", "ranks",
                                                   "tokens_per_step")},
              "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
              "repeat": options.repeat, "step_ms": as_given["step_ms"]["median"], "rows": []}
    for technique in techniques:
        reason = bench.unmet(technique, as_given)
        figures = {"reason": reason} if reason else measure(bench, technique, options.repeat)
        off, on = ("as given" if value is None else value or "none"
                   for value in (technique.off, technique.on))
        report["rows"].append({"key": technique.key, "technique": technique.name,
                               "off": off, "on": on, **figures})
    if options.json != "-":
        print_report(report)
    output.write_json(options.json, "gains", SUCCESS, report)
    if options.plot:
        output.write_figure(draw(report), options.plot)
    return SUCCESS
