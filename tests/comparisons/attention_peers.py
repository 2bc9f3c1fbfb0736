#!/usr/bin/env python3
"""Puts what `bertha bench kernels` found of attention on a GPU beside PyTorch's attention there.

    bertha bench kernels --op attention --lengths lengths.txt --json attention.json --dump dump
    python3 tests/comparisons/attention_peers.py attention.json --save peers.json
    python3 tests/comparisons/attention_peers.py attention.json --peers peers.json    # again, anywhere
    python3 tests/comparisons/attention_peers.py --check dump/*.safetensors

The first form times varlen FlashAttention-2 and cuDNN's attention on the same lengths
(attention_torch.py) and prints one Markdown table; it needs torch and a GPU. --check computes the
dumps again in float64 (attention_check.py); it needs torch and safetensors. Exit code 1 when a
result was wrong. Printing alone is standard library only.
"""
import argparse
import json
import pathlib
import re
import sys

SHAPE = re.compile(r"(?P<mix>.+), T=\d+ A=(?P<heads>\d+) D=(?P<size>\d+)"
                   r"(, dropout (?P<dropout>[\d.e-]+))?$")


def attention_of(report):
    """The rows of attention, with mix, dropout and direction; adds heads and head_size."""
    rows = []
    for row in report["operations"]:
        if not row["operation"].startswith("attention_"):
            continue
        shape = SHAPE.match(row["shape"])
        report["heads"], report["head_size"] = int(shape["heads"]), int(shape["size"])
        rows.append(row | {"mix": shape["mix"], "dropout": float(shape["dropout"] or 0),
                           "direction": {"attention_fwd": "forward",
                                         "attention_bwd": "backward"}[row["operation"]]})
    if not rows:
        sys.exit("attention_peers.py: the report has no attention; want bench kernels --op attention")
    report["rows"] = rows
    return report


def table(report, peers):
    """Markdown lines: a row per mix, dropout and direction, a column per program, in us."""
    own, programs, cells = [], [], {}
    for row in report["rows"]:
        if row["kernels"] not in own:
            own.append(row["kernels"])
        cells[row["mix"], row["dropout"], row["direction"], row["kernels"]] = row
    for row in peers["results"]:
        if row["program"] not in programs:
            programs.append(row["program"])
        cells[row["mix"], row["dropout"], row["direction"], row["program"]] = row
    heads = ["mix", "tokens", "dropout", "direction", *(f"Bertha, {name} (us)" for name in own),
             *(f"{name} (us)" for name in programs), "fastest of Bertha's (TFLOP/s)",
             "of peak (%)", "PyTorch's fastest / Bertha's"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    tokens = {mix["name"]: sum(mix["lengths"]) for mix in report["mixes"]}
    seen = []
    for row in report["rows"]:
        case = row["mix"], row["dropout"], row["direction"]
        if case in seen:
            continue
        seen.append(case)
        mine = [cells.get((*case, name)) for name in own]
        theirs = [cells.get((*case, name)) for name in programs]
        best = min((r for r in mine if r), key=lambda r: r["median_us"])
        rival = min((r["median_us"] for r in theirs if r), default=None)
        text = [case[0], str(tokens[case[0]]), f"{case[1]:.2f}", case[2]]
        for r in mine + theirs:
            wrong = " WRONG" if r and not r.get("verified", True) else ""
            text.append(f"{r['median_us']:.1f}{wrong}" if r else "-")
        text += [f"{best['per_second'] / 1e12:.1f}", f"{100 * best['share_of_roof']:.1f}",
                 f"{rival / best['median_us']:.2f}" if rival else "-"]
        lines.append("| " + " | ".join(text) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", nargs="?", type=pathlib.Path, metavar="ATTENTION.JSON")
    parser.add_argument("--peers", type=pathlib.Path, help="figures that --save wrote")
    parser.add_argument("--save", type=pathlib.Path, help="file for PyTorch's figures")
    parser.add_argument("--check", nargs="+", default=[], metavar="DUMP")
    options = parser.parse_args()
    if not options.report and not options.check:
        parser.error("name the JSON of bench kernels, or --check dumps")
    good = True
    if options.report:
        report = attention_of(json.loads(options.report.read_text()))
        if options.peers:
            peers = json.loads(options.peers.read_text())
        else:
            from attention_torch import measure
            peers = measure(report)
        if options.save:
            options.save.write_text(json.dumps(peers, indent=1) + "\n")
        print(f"{report['model']}, {report['precision']}, {report['heads']} heads of "
              f"{report['head_size']}, {report['device']}, {report['date']}; PyTorch "
              f"{peers['torch']}, cuDNN {peers['cudnn']}; matrix peak "
              f"{report['peak_flops_per_second'] / 1e12:.1f} TFLOP/s\n")
        print("\n".join(table(report, peers)))
        for note in report["notes"] + peers["notes"]:
            print(f"\n{note}")
        good = report["verified"]
    if options.check:
        from attention_check import check_all
        good = check_all(options.check) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
