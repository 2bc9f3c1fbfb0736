"""Draws one training step of an Nsight Systems report that `nsys export --type sqlite` wrote.

The report is one of launch/profile_nsys.sh: its ranges name steps and phases, and each kernel
belongs to the ranges in which the host launched it. The picture marks

    phases     from their first kernel to their last; a copy from the host may be a step ahead
    idle       where the stream with the most work stands still for more than 20 us
    communication   copies between GPUs and NCCL, and how much of it other work covers
"""
import contextlib
import functools
import itertools
import pathlib
import re
import sqlite3
import typing

from bertha_tools import output
from bertha_tools.errors import DATA, SUCCESS, USAGE, Refused, say

DESCRIPTION = "Draws one training step of an Nsight Systems report: streams, phases, idle time."
EXAMPLES = (
    "nsys export --type sqlite --output step.sqlite bertha_steps_21_25.nsys-rep",
    "bertha-tools timeline step.sqlite --output step.svg",
    "bertha-tools timeline step.sqlite --output step.png --step 3    the third, not the middle one")
IDLE_NS = 20_000
PHASES = ("forward", "backward", "communication", "optimizer")
HOST = "copies from and to the host"
COPIES = {1: "HostCopy", 2: "HostCopy", 10: "PtoP"}  # names for kinds of CUpti_ActivityMemcpyKind
# The first pattern that the name of a kernel or copy matches gives its kind.
KINDS = {
    "communication": "nccl|peer|PtoP",
    "attention":
        "attention|(key|query)_gradient|persistent_(for|back)ward|(?<![a-z_])forward_kernel",
    "GEMM": "gemm|nvjet|cutlass|xmma|cublas",
    "LAMB": "lamb|moments|apply_kernel|clip",
    "LayerNorm, softmax, embeddings":
        "norm|softmax|cross_entropy|embedding|residual|gelu|dropout|_row_",
    HOST: "HostCopy",
    "other": ""}
BAR = 0.7  # of a row


class Work(typing.NamedTuple):
    """A kernel or a copy, in nanoseconds."""
    launched: int
    start: int
    end: int
    stream: int
    kind: str


def add_arguments(parser):
    parser.add_argument("report", help="SQLite file from nsys export")
    parser.add_argument("--output", required=True, metavar="FILE", type=output.picture,
                        help=f"picture: {', '.join(output.PICTURES)}")
    parser.add_argument("--step", type=int, default=0, metavar="N",
                        help="which of the recorded steps, from 1 (default: the middle one)")


@functools.cache
def kind_of(name):
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, name, re.IGNORECASE))


def rows_of(report, table, columns, whole):
    """Rows whose columns `whole` are whole numbers. A report lacks a table if nothing of its kind
    was recorded.
    """
    if not report.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
        return []
    check = " AND ".join(f"typeof({column}) = 'integer'" for column in whole.split())
    return report.execute(f"SELECT {columns} FROM {table} WHERE {check}").fetchall()


def read_report(path):
    """[Work] by start and [(name, start, end)] of ranges."""
    what = "is not a file"
    if pathlib.Path(path).is_file():
        try:
            address = f"{pathlib.Path(path).resolve().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(address, uri=True)) as report:
                return read_tables(report)
        except sqlite3.Error as error:
            what = str(error)
    raise Refused(DATA, f"{path}: {what}; want the output of `nsys export --type sqlite --output "
                  "FILE REPORT.nsys-rep`")


def read_tables(report):
    names = {number: str(value) for number, value in
             rows_of(report, "StringIds", "id, value", "id")}
    launched = dict(rows_of(report, "CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId, start", "start"))
    work = []
    for table, kind, called in (("KERNEL", "demangledName", names), ("MEMCPY", "copyKind", COPIES)):
        work += [Work(launched.get(call, start), start, end, stream, kind_of(called.get(name, "")))
                 for call, start, end, stream, name in rows_of(
                     report, f"CUPTI_ACTIVITY_KIND_{table}",
                     f"correlationId, start, end, streamId, {kind}", "start end streamId")]
    ranges = [(text or names.get(number, ""), start, end) for text, number, start, end
              in rows_of(report, "NVTX_EVENTS", "text, textId, start, end", "start end")]
    return sorted(work, key=lambda one: one.start), ranges


def launched_in(work, start, end):
    return [one for one in work if start <= one.launched < end]


def union(spans):
    """Disjoint spans that cover the same, in order."""
    joined = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return joined


def busy(work, *kinds):
    return union((one.start, one.end) for one in work if not kinds or one.kind in kinds)


def length(spans):
    return sum(end - start for start, end in spans)


def ms(ns):
    return f"{ns / 1e6:.2f} ms"


def draw(inside, ranges, title):
    """The figure of a step's work: rows of bars over milliseconds, the first one for the phases."""
    on_gpu = [one for one in inside if one.kind != HOST]
    begin, end = on_gpu[0].start, max(one.end for one in on_gpu)
    duration = max(end - begin, 1)
    work = [one for one in inside if one.end > begin and one.start < end]
    streams = {}
    for one in work:
        streams.setdefault(one.stream, []).append(one)
    order = sorted(streams, key=lambda stream: -length(busy(streams[stream])))
    figure = output.new_figure(13, 2.6 + 0.4 * len(order))
    axes = figure.subplots()

    def bars(row, spans, color, words="", **style):
        """words: of the last one, if they fit."""
        axes.broken_barh([((start - begin) / 1e6, (end - start) / 1e6) for start, end in spans],
                         (row - BAR / 2, BAR), facecolors=color, **style)
        for start, end in spans[-1:]:
            if (end - start) / duration > 0.007 * len(words):
                axes.text((start - begin) / 1e6, row, f" {words}", va="center", fontsize=8)

    for name in PHASES:
        of_phase = [one for of_range, start, end in ranges if of_range == name
                    for one in launched_in(on_gpu, start, end)]
        if of_phase:
            span = (min(one.start for one in of_phase), max(one.end for one in of_phase))
            bars(0, [span], "#e3e7ee", f"{name} {ms(length([span]))}", edgecolor="#7b8494")
    least = duration // 4000  # work of one kind that touches, or nearly does, is one bar
    for row, stream in enumerate(order, 1):
        for place, kind in enumerate(KINDS):
            bars(row, union((one.start, max(one.end, one.start + least))
                            for one in streams[stream] if one.kind == kind), f"C{place}",
                 label=kind, linewidth=0)
    gaps = [(a[1], b[0]) for a, b in itertools.pairwise(busy(streams[order[0]]))
            if b[0] - a[1] > IDLE_NS]
    for gap in gaps:
        bars(1, [gap], "red", f"idle {length([gap]) / 1e3:.0f} us", alpha=0.3, label="idle")
    remark = (f"idle for more than {IDLE_NS // 1000} us: {ms(length(gaps))}, "
              f"{100 * length(gaps) / duration:.1f} % of the step")
    if communication := length(busy(work, "communication")):
        others = length(busy(work, *(kind for kind in KINDS if kind != "communication")))
        remark += (f"; communication: {ms(communication)}, of which other work covers "
                   f"{ms(communication + others - length(busy(work)))}")
    axes.set_title(f"{title}: {ms(end - begin)}\n{remark}", loc="left", fontsize=10)
    axes.set(xlabel="ms", xlim=(0, duration / 1e6))
    axes.set_yticks(range(len(order) + 1), ["phases", *(f"stream {stream}" for stream in order)])
    axes.invert_yaxis()
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels())}
    shown = [kind for kind in KINDS if busy(work, kind)]
    axes.legend([handles[kind] for kind in shown],
                [f"{kind} {ms(length(busy(work, kind)))}" for kind in shown],
                loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return figure


def run(options):
    work, ranges = read_report(options.report)
    steps = sorted((start, end) for name, start, end in ranges if name == "step")
    if not steps or not work:
        raise Refused(DATA, f"{options.report}: contains {len(steps)} ranges named step, {len(work)} "
                      "kernels and copies; record it with launch/profile_nsys.sh")
    number = options.step or (len(steps) + 1) // 2
    if not 1 <= number <= len(steps):
        raise Refused(USAGE, f"--step {number}: want 1 to {len(steps)}, the steps of this report")
    start, end = steps[number - 1]
    inside = launched_in(work, start, end)
    if all(one.kind == HOST for one in inside):
        raise Refused(DATA, f"{options.report}: step {number} launched no kernel; kernels of "
                      "graphs have no separate launch, so record it with --set cuda.graphs=off")
    in_step = [one for one in ranges if start <= one[1] < end]
    output.write_figure(draw(inside, in_step, f"Step {number} of {len(steps)} recorded"),
                        options.output)
    say(f"written: {options.output}")
    return SUCCESS
