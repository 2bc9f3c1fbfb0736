#!/usr/bin/env python3
"""Draws one training step of an Nsight Systems report as an annotated SVG.

examples:
  nsys export --type sqlite --output step.sqlite bertha_steps_21_25.nsys-rep
  launch/draw_timeline.py step.sqlite --output step.svg
  launch/draw_timeline.py step.sqlite --output step.svg --step 3    the third, not the middle one

The report is one of launch/profile_nsys.sh: its ranges name steps and phases, and each kernel
belongs to the ranges inside which the host launched it. What the picture marks:
  phases         from their first kernel to their last one; a copy from the host may be a step ahead
  idle           the stream with the most work stands still for more than 20 us
  exchange       copies between GPUs and NCCL, and how much of it other work covers
"""
import argparse
import bisect
import html
import re
import sqlite3
import sys

IDLE_NS = 20_000
PEER_TO_PEER = 10  # of CUpti_ActivityMemcpyKind
PHASES = ("forward", "backward", "communication", "optimizer")
# The first pattern that a kernel's name matches gives its kind.
KINDS = (
    ("exchange", "nccl|peer|PtoP"),
    ("attention",
     "attention|(key|query)_gradient|persistent_(for|back)ward|(?<![a-z_])forward_kernel"),
    ("GEMM", "gemm|nvjet|cutlass|xmma|cublas"),
    ("LAMB", "lamb|moments|apply_kernel|clip"),
    ("LayerNorm, softmax, embeddings",
     "norm|softmax|cross_entropy|embedding|residual|gelu|dropout|_row_"),
    ("copies from and to the host", "HostCopy"),
    ("other", ""),
)
HOST = 5  # of KINDS
HOST_COPIES = (1, 2)  # of CUpti_ActivityMemcpyKind
WIDTH, LEFT, RIGHT = 1200, 150, 1180
ROW, FIRST_ROW = 34, 96
TICKS = 5
STYLE = """<style>
text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
text{font-size:13px;fill:#3b4252}
.title{font-size:18px;font-weight:600;fill:#1b1f27}.paper{fill:#ffffff}
.k0{fill:#d6336c}.k1{fill:#2563eb}.k2{fill:#0f9d76}
.k3{fill:#8b5cf6}.k4{fill:#d9730d}.k5{fill:#1f9bb5}.k6{fill:#9aa3b2}
.phase{fill:#e3e7ee;stroke:#7b8494}.idle{fill:#c02626;fill-opacity:.3}.warn{fill:#c02626}
@media (prefers-color-scheme:dark){
text{fill:#c3cad6}.title{fill:#f1f4f9}.paper{fill:#14171d}
.phase{fill:#2a303b;stroke:#8a93a3}.idle{fill:#ff7b7b}.warn{fill:#ff7b7b}
.k0{fill:#ff8ab3}.k1{fill:#6ea8fe}.k2{fill:#45d1a5}
.k3{fill:#b79bff}.k4{fill:#f5a154}.k5{fill:#6fd3e6}.k6{fill:#a8b0bd}}
</style>"""


def stop(code, sentence):
    print(f"draw_timeline.py: {sentence}", file=sys.stderr)
    sys.exit(code)


def kind_of(name):
    return next(i for i, (_, pattern) in enumerate(KINDS)
                if re.search(pattern, name, re.IGNORECASE))


def rows_of(report, table, columns):
    """Rows of a table that a report lacks when nothing of its kind was recorded."""
    known = report.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return report.execute(f"SELECT {columns} FROM {table}").fetchall() if known else []


def read_work(report):
    """[(launched, start, end, stream, kind)] of kernels and copies, by start, in nanoseconds."""
    names = dict(rows_of(report, "StringIds", "id, value"))
    launched = dict(rows_of(report, "CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId, start"))
    kernels = rows_of(report, "CUPTI_ACTIVITY_KIND_KERNEL",
                      "start, end, streamId, correlationId, demangledName")
    copies = rows_of(report, "CUPTI_ACTIVITY_KIND_MEMCPY",
                     "start, end, streamId, correlationId, copyKind")
    work = [(launched.get(call, start), start, end, stream, kind_of(names.get(name, "")))
            for start, end, stream, call, name in kernels]
    work += [(launched.get(call, start), start, end, stream,
              kind_of("PtoP" if copy_kind == PEER_TO_PEER
                      else "HostCopy" if copy_kind in HOST_COPIES else "copy"))
             for start, end, stream, call, copy_kind in copies]
    return sorted(work, key=lambda one: one[1])


def read_ranges(report):
    names = dict(rows_of(report, "StringIds", "id, value"))
    events = rows_of(report, "NVTX_EVENTS", "text, textId, start, end")
    return [(text or names.get(text_id, ""), start, end)
            for text, text_id, start, end in events if end is not None]


def launched_in(work, start, end):
    return [one for one in work if start <= one[0] < end]


def union(spans):
    """Disjoint spans that cover the same, in order."""
    joined = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return joined


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
    def __init__(self, begin, end):
        self.begin, self.end = begin, end
        self.parts = []

    def x(self, ns):
        return LEFT + (RIGHT - LEFT) * (ns - self.begin) / (self.end - self.begin)

    def text(self, x, y, words, style=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{style}>{html.escape(words)}</text>')

    def bar(self, start, end, row, style, height=24):
        width = max(self.x(end) - self.x(start), 0.3)
        self.parts.append(f'<rect class="{style}" x="{self.x(start):.2f}" '
                          f'y="{FIRST_ROW + row * ROW}" width="{width:.2f}" height="{height}"/>')

    def label(self, row, words):
        self.text(10, FIRST_ROW + row * ROW + 17, words)

    def svg(self, rows):
        height = FIRST_ROW + rows * ROW + 24
        size = f'width="{WIDTH}" height="{height}"'
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height}">',
            STYLE, f'<rect class="paper" {size}/>', *self.parts, "</svg>\n"])


def draw_streams(picture, work, row):
    """A row for each stream, the busiest first; work of one kind that touches is one bar."""
    streams = {}
    for _, start, end, stream, kind in work:
        streams.setdefault(stream, []).append((start, end, kind))
    busy = {stream: union((start, end) for start, end, _ in spans)
            for stream, spans in streams.items()}
    order = sorted(streams, key=lambda stream: -length(busy[stream]))
    quarter_pixel = (picture.end - picture.begin) / (RIGHT - LEFT) / 4
    for i, stream in enumerate(order):
        picture.label(row + i, f"stream {stream}")
        for kind in range(len(KINDS)):
            spans = union((start, max(end, start + quarter_pixel))
                          for start, end, of_kind in streams[stream] if of_kind == kind)
            for start, end in spans:
                picture.bar(start, end, row + i, f"k{kind}")
    return row + len(order), draw_idle(picture, busy[order[0]], row)


def draw_idle(picture, busy, row):
    gaps = [(a[1], b[0]) for a, b in zip(busy, busy[1:]) if b[0] - a[1] > IDLE_NS]
    for start, end in gaps:
        picture.bar(start, end, row, "idle")
        if picture.x(end) - picture.x(start) > 60:
            picture.text(picture.x(start) + 4, FIRST_ROW + row * ROW + 17,
                         f"idle {(end - start) / 1e3:.0f} us")
    return length(gaps)


def draw(work, ranges, title):
    on_gpu = [one for one in work if one[4] != HOST]
    begin, end = on_gpu[0][1], max(one[2] for one in on_gpu)
    work = [one for one in work if one[2] > begin and one[1] < end]
    picture = Picture(begin, end)
    picture.text(10, 28, f"{title}: {ms(end - begin)}", ' class="title"')
    x = LEFT
    for kind, (name, _) in enumerate(KINDS):
        busy = length(union((s, e) for _, s, e, _, k in work if k == kind))
        if busy:
            words = f"{name} {ms(busy)}"
            picture.parts.append(
                f'<rect class="k{kind}" x="{x}" y="42" width="12" height="12"/>')
            picture.text(x + 17, 53, words)
            x += 36 + 7 * len(words)
    picture.label(0, "phases")
    for name in PHASES:
        inside = [one for n, s, e in ranges if n == name for one in launched_in(on_gpu, s, e)]
        if not inside:
            continue
        start, last = min(one[1] for one in inside), max(one[2] for one in inside)
        picture.bar(start, last, 0, "phase")
        words = f"{name} {ms(last - start)}"
        if picture.x(last) - picture.x(start) > 7 * len(words):
            picture.text(picture.x(start) + 4, FIRST_ROW + 17, words)
    row, idle = draw_streams(picture, work, 1)
    exchange = union((s, e) for _, s, e, _, k in work if k == 0)
    others = union((s, e) for _, s, e, _, k in work if k != 0)
    remarks = [f"idle for more than {IDLE_NS // 1000} us: {ms(idle)}, "
               f"{100 * idle / (end - begin):.1f} % of the step"]
    if exchange:
        hidden = covered_ns(exchange, others)
        remarks.append(f"exchange: {ms(length(exchange))}, of which other work covers {ms(hidden)}")
    picture.text(LEFT, 78, "; ".join(remarks), ' class="warn"')
    for tick in range(TICKS + 1):
        ns = begin + (end - begin) * tick / TICKS
        picture.text(picture.x(ns), FIRST_ROW + row * ROW + 12, ms(ns - begin),
                     ' text-anchor="middle"' if tick < TICKS else ' text-anchor="end"')
    return picture.svg(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", help="what nsys export wrote as sqlite")
    parser.add_argument("--output", required=True, help="the SVG")
    parser.add_argument("--step", type=int, default=0, help="which of the recorded steps, from 1")
    options = parser.parse_args()
    try:
        report = sqlite3.connect(f"file:{options.report}?mode=ro", uri=True)
        ranges, work = read_ranges(report), read_work(report)
    except sqlite3.Error as error:
        stop(4, f"{options.report}: {error}; it is to be what "
                "`nsys export --type sqlite --output FILE REPORT.nsys-rep` wrote")
    steps = sorted((start, end) for name, start, end in ranges if name == "step")
    if not steps or not work:
        stop(4, f"{options.report}: holds {len(steps)} ranges named step, {len(work)} kernels and "
                "copies; record it with launch/profile_nsys.sh")
    number = options.step or (len(steps) + 1) // 2
    if not 1 <= number <= len(steps):
        stop(2, f"--step {number}: want 1 to {len(steps)}, the steps of this report")
    start, end = steps[number - 1]
    inside = launched_in(work, start, end)
    if all(one[4] == HOST for one in inside):
        stop(4, f"{options.report}: step {number} launched no kernel; kernels of graphs have no "
                "launch of their own, so record it with --set cuda.graphs=off")
    in_step = [one for one in ranges if start <= one[1] < end]
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(draw(inside, in_step, f"Step {number} of {len(steps)} recorded"))
    print(f"written: {options.output}")


if __name__ == "__main__":
    main()
