"""Draws one training step of an Nsight Systems report that `nsys export --type sqlite` wrote.

The report is one of launch/profile_nsys.sh: its ranges name steps and phases, and each kernel
belongs to the ranges in which the host launched it. The picture marks

    phases     from their first kernel to their last; a copy from the host may be a step ahead
    idle       where the stream with the most work stands still for more than 20 us
    exchange   copies between GPUs and NCCL, and how much of it other work covers
"""
import bisect
import contextlib
import functools
import pathlib
import re
import sqlite3
import typing

from bertha_tools.errors import DATA, USAGE, Refused
from bertha_tools.output import check_picture, new_figure, write_figure
from bertha_tools.run_folder import printable

DESCRIPTION = "Draws one training step of an Nsight Systems report: streams, phases, idle time."
EXAMPLES = (
    "nsys export --type sqlite --output step.sqlite bertha_steps_21_25.nsys-rep",
    "bertha-tools timeline step.sqlite --output step.svg",
    "bertha-tools timeline step.sqlite --output step.png --step 3    the third, not the middle one")
IDLE_NS = 20_000
PEER_TO_PEER, HOST_COPIES = 10, (1, 2)  # of CUpti_ActivityMemcpyKind
PHASES = ("forward", "backward", "communication", "optimizer")
# The first pattern that a kernel's name matches gives its kind.
KINDS = {
    "exchange": "nccl|peer|PtoP",
    "attention":
        "attention|(key|query)_gradient|persistent_(for|back)ward|(?<![a-z_])forward_kernel",
    "GEMM": "gemm|nvjet|cutlass|xmma|cublas",
    "LAMB": "lamb|moments|apply_kernel|clip",
    "LayerNorm, softmax, embeddings":
        "norm|softmax|cross_entropy|embedding|residual|gelu|dropout|_row_",
    "copies from and to the host": "HostCopy",
    "other": ""}
HOST = "copies from and to the host"
BAR = 0.7  # of a row


class Work(typing.NamedTuple):
    """A kernel or a copy, in nanoseconds."""
    launched: int
    start: int
    end: int
    stream: int
    kind: str


def add_arguments(parser):
    parser.add_argument("report", help="what nsys export wrote as sqlite")
    parser.add_argument("--output", required=True, metavar="FILE",
                        help="picture: .svg, .png or .pdf")
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


def read_work(report, names):
    """By start."""
    launched = dict(rows_of(report, "CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId, start", "start"))
    place = "start, end, streamId, correlationId"
    work = [(*row, names.get(name, "")) for *row, name in rows_of(
        report, "CUPTI_ACTIVITY_KIND_KERNEL", f"{place}, demangledName", "start end streamId")]
    of_copy = {PEER_TO_PEER: "PtoP", **dict.fromkeys(HOST_COPIES, "HostCopy")}
    work += [(*row, of_copy.get(kind, "copy")) for *row, kind in rows_of(
        report, "CUPTI_ACTIVITY_KIND_MEMCPY", f"{place}, copyKind", "start end streamId")]
    return sorted((Work(launched.get(call, start), start, end, stream, kind_of(name))
                   for start, end, stream, call, name in work), key=lambda one: one.start)


def read_report(path):
    """[Work] and [(name, start, end)] of ranges."""
    what = "is not a file"
    if pathlib.Path(path).is_file():
        try:
            address = f"{pathlib.Path(path).resolve().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(address, uri=True)) as report:
                names = {number: str(value) for number, value in
                         rows_of(report, "StringIds", "id, value", "id")}
                events = rows_of(report, "NVTX_EVENTS", "text, textId, start, end", "start end")
                return read_work(report, names), [(text or names.get(number, ""), start, end)
                                                  for text, number, start, end in events]
        except sqlite3.Error as error:
            what = str(error)
    raise Refused(DATA, f"{printable(path)}: {printable(what)}; want what `nsys export --type "
                  "sqlite --output FILE REPORT.nsys-rep` wrote")


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


def covered_ns(spans, by):
    """How much of some spans lies inside others; both disjoint and in order."""
    starts = [start for start, _ in by]
    total = 0
    for start, end in spans:
        for other in by[max(bisect.bisect_right(starts, start) - 1, 0):]:
            if other[0] >= end:
                break
            total += max(0, min(end, other[1]) - max(start, other[0]))
    return total


def ms(ns):
    return f"{ns / 1e6:.2f} ms"


class Picture:
    """Rows of bars over the milliseconds since `begin`."""

    def __init__(self, begin, end, rows):
        self.begin, self.duration = begin, max(end - begin, 1)
        self.figure = new_figure(13, 2.2 + 0.4 * rows)
        self.axes = self.figure.subplots()

    def bars(self, row, spans, color, label=None, **style):
        self.axes.broken_barh([((start - self.begin) / 1e6, (end - start) / 1e6)
                               for start, end in spans], (row - BAR / 2, BAR), facecolors=color,
                              label=label, **style)

    def text(self, row, start, end, words):
        """Words that begin at `start`, if they fit."""
        if (end - start) / self.duration > 0.007 * len(words):
            self.axes.text((start - self.begin) / 1e6, row, f" {words}", va="center", fontsize=8)


def draw_phases(picture, work, ranges):
    for name in PHASES:
        inside = [one for of_range, start, end in ranges if of_range == name
                  for one in launched_in(work, start, end)]
        if inside:
            start, end = min(one.start for one in inside), max(one.end for one in inside)
            picture.bars(0, [(start, end)], "#e3e7ee", edgecolor="#7b8494")
            picture.text(0, start, end, f"{name} {ms(end - start)}")


def draw_stream(picture, work, row, colors):
    """Work of one kind that touches, or nearly does, is one bar."""
    least = picture.duration // 4000
    for kind, color in colors.items():
        spans = union((one.start, max(one.end, one.start + least))
                      for one in work if one.kind == kind)
        if spans:
            picture.bars(row, spans, color, kind, linewidth=0)


def draw(inside, ranges, title):
    """The figure of a step's work."""
    on_gpu = [one for one in inside if one.kind != HOST]
    begin, end = on_gpu[0].start, max(one.end for one in on_gpu)
    work = [one for one in inside if one.end > begin and one.start < end]
    streams = {}
    for one in work:
        streams.setdefault(one.stream, []).append(one)
    order = sorted(streams, key=lambda stream: -length(busy(streams[stream])))
    picture = Picture(begin, end, len(order) + 1)
    colors = {kind: f"C{place}" for place, kind in enumerate(KINDS)}
    draw_phases(picture, on_gpu, ranges)
    for row, stream in enumerate(order, 1):
        draw_stream(picture, streams[stream], row, colors)
    of_first = busy(streams[order[0]])
    gaps = [(a[1], b[0]) for a, b in zip(of_first, of_first[1:]) if b[0] - a[1] > IDLE_NS]
    picture.bars(1, gaps, "red", "idle", alpha=0.3)
    for gap in gaps:
        picture.text(1, *gap, f"idle {(gap[1] - gap[0]) / 1e3:.0f} us")
    remark = (f"idle for more than {IDLE_NS // 1000} us: {ms(length(gaps))}, "
              f"{100 * length(gaps) / picture.duration:.1f} % of the step")
    if exchange := busy(work, "exchange"):
        hidden = covered_ns(exchange, busy(work, *(kind for kind in KINDS if kind != "exchange")))
        remark += f"; exchange: {ms(length(exchange))}, of which other work covers {ms(hidden)}"
    axes = picture.axes
    axes.set_title(f"{title}: {ms(end - begin)}\n{remark}", loc="left", fontsize=10)
    axes.set(xlabel="ms", xlim=(0, picture.duration / 1e6))
    axes.set_yticks(range(len(order) + 1), ["phases", *(f"stream {stream}" for stream in order)])
    axes.invert_yaxis()
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels())}
    axes.legend([handles[kind] for kind in KINDS if kind in handles],
                [f"{kind} {ms(length(busy(work, kind)))}" for kind in KINDS if kind in handles],
                loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return picture.figure


def run(options):
    check_picture(options.output)
    work, ranges = read_report(options.report)
    report = printable(options.report)
    steps = sorted((start, end) for name, start, end in ranges if name == "step")
    if not steps or not work:
        raise Refused(DATA, f"{report}: holds {len(steps)} ranges named step, {len(work)} kernels "
                      "and copies; record it with launch/profile_nsys.sh")
    number = options.step or (len(steps) + 1) // 2
    if not 1 <= number <= len(steps):
        raise Refused(USAGE, f"--step {number}: want 1 to {len(steps)}, the steps of this report")
    start, end = steps[number - 1]
    inside = launched_in(work, start, end)
    if all(one.kind == HOST for one in inside):
        raise Refused(DATA, f"{report}: step {number} launched no kernel; kernels of graphs have "
                      "no launch of their own, so record it with --set cuda.graphs=off")
    in_step = [one for one in ranges if start <= one[1] < end]
    write_figure(draw(inside, in_step, f"Step {number} of {len(steps)} recorded"), options.output)
    print(f"written: {printable(options.output)}")
    return 0
