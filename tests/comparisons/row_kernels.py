#!/usr/bin/env python3
"""Compares what `bertha_bench_rows` found on a GPU with PyTorch, torch.compile and cuDNN there, and with
Liger and QuACK if they are installed.

    build/release/bertha_bench_rows --dtype fp16 --json rows.json
    cmake --build build/release --target bertha_kernels_c
    python3 tests/comparisons/row_kernels.py rows.json --save peers.json --svg plots \
      --library build/release/kernels/rows/libbertha_kernels.so
    python3 tests/comparisons/row_kernels.py rows.json --peers peers.json      # judge again, anywhere

Prints one Markdown table for each operation, with the bars that it should clear, and exits 1 when a
result of Bertha's was wrong or when a bar is missed (--report: only when a result was wrong).
Measuring needs torch and takes about half a minute and --compile-seconds for torch.compile, for as
many cases as they suffice for; with a filled cache (TORCHINDUCTOR_CACHE_DIR) that is all.
Judging needs the standard library only, drawing matplotlib.

With --library Bertha's kernels run in PyTorch's process too, on the same tensors, in turns with
PyTorch's ("beside", with a copy of as many bytes there), and PyTorch's bars are judged by these
times: where memory is the limit, where in it a tensor lies is worth several percent, and two programs
lie in different places. Without it they are judged by those of `bertha_bench_rows`.

Bars
  every width       not slower than PyTorch, eager or compiled, nor than Liger and QuACK; 2 % is what two
                    runs differ by
  softmax and LayerNorm from 256 columns on: 85 % of the copy's bandwidth forward, 80 % backward
  LayerNorm forward to 128 columns: 2 times PyTorch
  PReLU             85 % of the copy, 1.5 times PyTorch; at ragged planes (7 x 7) not slower
  BatchNorm + ReLU  1.3 times PyTorch's three kernels
Shares of the copy are those of `bertha_bench_rows`: of a plain copy of as many bytes, in its run. Where a
multiple of PyTorch lies above the copy, the table says so: no kernel reaches it.
"""
import argparse
import json
import pathlib
import sys

EQUAL = 1.02
# As row_peers.py names them, and the titles of their columns.
PROGRAMS = {"bertha": "beside us", "copy": "copy us", "eager": "eager us", "compiled": "compiled us",
            "cudnn": "cuDNN us", "liger": "Liger us", "quack": "QuACK us"}
TITLES = {"softmax_fwd": "Softmax forward", "softmax_bwd": "Softmax backward",
          "layer_norm_fwd": "LayerNorm forward", "layer_norm_bwd": "LayerNorm backward",
          "prelu_fwd": "PReLU forward", "prelu_bwd": "PReLU backward",
          "batch_norm_relu_fwd": "BatchNorm + (Add +) ReLU forward",
          "batch_norm_relu_bwd": "BatchNorm + (Add +) ReLU backward"}


def width(shape):
    """Columns of "49152x1024, log"."""
    return int(shape.split(", ")[0].rpartition("x")[2])


class Row:
    """One operation at one shape: Bertha's figures beside the others'."""

    def __init__(self, entry, peers):
        self.operation, self.shape = entry["operation"], entry["shape"]
        self.bytes, self.us = entry["bytes"], entry["median_us"]
        self.copy_us = self.bytes / entry["roof_per_second"] * 1e6
        found = {program: peers.get((program, self.operation, self.shape), {})
                 for program in PROGRAMS}
        self.peers = {program: result.get("median_us") for program, result in found.items()}
        self.verified = entry["verified"] and "wrong" not in found["bertha"]

    @property
    def share(self):
        return self.copy_us / self.us

    def gbps(self, us):
        return self.bytes / us / 1e3

    def pytorch_us(self):
        return min((us for us in (self.peers["eager"], self.peers["compiled"]) if us),
                   default=None)

    def judge(self):
        """What the bars say: a list of (bar, met)."""
        found = []
        eager, pytorch = self.peers["eager"], self.pytorch_us()
        beside = self.peers["bertha"]
        us, copy_us = (beside, self.peers["copy"]) if beside else (self.us, self.copy_us)

        def times(factor):
            if not eager:
                return
            name = f"{factor} x PyTorch"
            if copy_us and eager / factor < copy_us:
                name += " (above the copy)"
            found.append((name, us * factor <= eager))

        def of_copy(share):
            found.append((f"{share} % of copy", 100 * self.share >= share))

        if pytorch:
            found.append(("PyTorch", us <= EQUAL * pytorch))
        for name, peer in (("Liger", self.peers["liger"]), ("QuACK", self.peers["quack"])):
            if peer:
                found.append((name, us <= EQUAL * peer))
        forward = self.operation.endswith("_fwd")
        if self.operation.startswith(("softmax", "layer_norm")):
            if width(self.shape) >= 256:
                of_copy(85 if forward else 80)
            elif self.operation == "layer_norm_fwd" and width(self.shape) <= 128:
                times(2)
        elif self.operation.startswith("prelu"):
            of_copy(85)
            if "x7x7" not in self.shape:
                times(1.5)
        else:
            times(1.3)
        return found


def table(rows):
    lines = [f"| shape | us | GB/s | % of copy | {' | '.join(PROGRAMS.values())} | bars missed |",
             "|---" * (5 + len(PROGRAMS)) + "|"]
    for row in rows:
        cells = [f"{us:.1f}" if us else "" for us in row.peers.values()]
        missed = ", ".join(bar for bar, met in row.judge() if not met)
        if not row.verified:
            missed = "WRONG RESULT" + (", " if missed else "") + missed
        lines.append(f"| {row.shape} | {row.us:.1f} | {row.gbps(row.us):.0f} | "
                     f"{100 * row.share:.0f} | {' | '.join(cells)} | {missed or '-'} |")
    return "\n".join(lines)


def summary(rows):
    """How many rows clear each bar, bar by bar."""
    counts = {}
    for row in rows:
        for bar, met in row.judge():
            of = counts.setdefault((TITLES[row.operation], bar), [0, 0])
            of[0] += met
            of[1] += 1
    return "\n".join(f"{title}, {bar}: {met} of {of}" for (title, bar), (met, of) in counts.items())


def draw(folder, rows, device):
    """GB/s of useful bytes by the width, a picture for softmax and one for LayerNorm."""
    from pictures import new_figure, write_figure
    folder.mkdir(parents=True, exist_ok=True)
    for stem, name in (("softmax", "Softmax"), ("layer_norm", "LayerNorm")):
        parts = [sorted((row for row in rows if row.operation == stem + way and "log" not in row.shape),
                        key=lambda row: width(row.shape)) for way in ("_fwd", "_bwd")]
        if not all(parts):
            continue
        figure = new_figure(11, 4.8)
        figure.suptitle(f"{name}, {parts[0][0].shape.split('x')[0]} rows, {device.split(', ')[0]}")
        for axes, part, way in zip(figure.subplots(1, 2, sharey=True), parts, ("forward", "backward")):
            for label, style, us_of in (("copy", "k--", lambda row: row.copy_us),
                                        ("PyTorch", "C1o-", lambda row: row.peers["eager"]),
                                        ("Liger", "C2^-", lambda row: row.peers["liger"]),
                                        ("QuACK", "C3s-", lambda row: row.peers["quack"]),
                                        ("Bertha", "C0o-", lambda row: row.us)):
                there = [row for row in part if us_of(row)]
                if not there:
                    continue
                axes.plot([width(row.shape) for row in there], [row.gbps(us_of(row)) for row in there], style,
                          label=label, gid=f"{label} {way}")
            axes.set(title=way, xlabel="columns", ylabel="useful bytes (GB/s)", xscale="log", ylim=(0, None))
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.legend()
        write_figure(figure, folder / f"{stem}.svg")
        print(f"written: {folder / stem}.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bertha", type=pathlib.Path, help="JSON of `bertha_bench_rows`, fp16")
    parser.add_argument("--peers", type=pathlib.Path, help="measured before, instead of measuring")
    parser.add_argument("--library", type=pathlib.Path,
                        help="libbertha_kernels: Bertha in PyTorch's process too")
    parser.add_argument("--save", type=pathlib.Path, help="file for what was measured")
    parser.add_argument("--svg", type=pathlib.Path, help="folder for the two plots")
    parser.add_argument("--compile-seconds", type=float, default=60, help="default 60")
    parser.add_argument("--report", action="store_true", help="a missed bar is no failure")
    arguments = parser.parse_args()
    if arguments.library and arguments.peers:
        parser.error("--library is for measuring, --peers has what was measured")
    found = json.loads(arguments.bertha.read_text(encoding="utf-8"))
    if arguments.peers:
        peers = json.loads(arguments.peers.read_text(encoding="utf-8"))
    else:
        if found["precision"] != "f16":
            sys.exit(f"row_kernels.py: {arguments.bertha}: precision is {found['precision']}, want "
                     "f16, in which the peers are measured")
        try:
            import row_peers
        except ModuleNotFoundError as error:
            sys.exit(f"row_kernels.py: {error}; measure where torch is, or give --peers")

        def save(measured):
            if arguments.save:
                arguments.save.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")

        cases = [(e["operation"], e["shape"], e["bytes"]) for e in found["operations"]]
        peers = row_peers.measure(cases, arguments.library, arguments.compile_seconds, save)
    results = {(r["program"], r["operation"], r["shape"]): r for r in peers["results"]}
    rows = [Row(entry, results) for entry in found["operations"]]
    print(f"{found['device']}, {found['precision']}, {found['date']}; PyTorch {peers['torch']}, "
          f"cuDNN {peers['cudnn']}")
    beside = sum(row.peers["bertha"] is not None for row in rows)
    print(f"PyTorch's bars: {beside} of {len(rows)} cases are judged by Bertha's times in PyTorch's "
          "process, on the same tensors; the others by those of `bertha_bench_rows`.")
    for operation, title in TITLES.items():
        chosen = [row for row in rows if row.operation == operation]
        if chosen:
            print(f"\n### {title}\n\n{table(chosen)}")
    print(f"\n### Bars met\n\n{summary(rows)}")
    if arguments.svg:
        draw(arguments.svg, rows, found["device"])
    wrong = any(not row.verified for row in rows)
    missed = any(not met for row in rows for _, met in row.judge())
    sys.exit(1 if wrong or (missed and not arguments.report) else 0)


if __name__ == "__main__":
    main()
