#!/usr/bin/env python3
"""Compares what `bertha encode` writes with the same model in Hugging Face transformers.

    bertha encode --checkpoint MODEL_DIR --text lines.txt --output out.safetensors
    python3 tests/comparisons/encode_in_transformers.py MODEL_DIR lines.txt out.safetensors

    python3 tests/comparisons/encode_in_transformers.py MODEL_DIR lines.txt --bertha build/release/bertha \\
        --backend cuda --precision fp32,bf16,fp16

The second form runs `bertha encode` itself, in each precision. Prints the largest difference of
hidden states, pooled states and logits to transformers in float64, beside the largest value and
beside that of transformers in the same precision. Exit code 1 where ours is more than 1e-3 in fp32,
or in 16 bits more than twice theirs. Token ids have to be the tokenizer's. Needs torch,
transformers and safetensors.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertForPreTraining, BertModel

MOST_IN_FP32 = 1e-3
MOST_OF_THEIRS = 2.0
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Lines:
    """The lines of the text, as `bertha encode` has cut them; the tokenizer has to agree."""

    def __init__(self, folder, text, ours):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        lines = open(text, encoding="utf-8").read().splitlines()
        starts = ours["cu_seqlens"].tolist()
        assert len(starts) == len(lines) + 1, (len(starts), len(lines))
        masked = ours["masked_rows"].long()
        self.spans = list(zip(starts, starts[1:]))
        self.ids, self.segments, self.masked = [], [], []
        for (begin, end), line in zip(self.spans, lines):
            ids = ours["token_ids"][begin:end].long()
            encoded = tokenizer(*line.split("\t"))
            assert encoded["input_ids"] == ids.tolist(), f"other tokens in: {line}"
            self.ids.append(ids)
            self.segments.append(torch.tensor(encoded["token_type_ids"]))
            self.masked.append((masked >= begin) & (masked < end))


def our_outputs(ours, lines):
    """A dictionary per line, in float64."""
    found = []
    for row, (begin, end) in enumerate(lines.spans):
        line = {"hidden": ours["hidden"][begin:end]}
        for name in ("pooled", "nsp_logits"):
            if name in ours:
                line[name] = ours[name][row : row + 1]
        if "mlm_logits" in ours:
            line["mlm_logits"] = ours["mlm_logits"][lines.masked[row]]
        found.append({name: values.double() for name, values in line.items()})
    return found


def their_outputs(folder, lines, ours, dtype, device="cpu"):
    """The same from transformers."""
    heads = "mlm_logits" in ours
    kind = BertForPreTraining if heads else BertModel
    model = kind.from_pretrained(folder, dtype=dtype).eval().to(device)
    masked_rows = ours["masked_rows"].long()
    found = []
    for row, (begin, _) in enumerate(lines.spans):
        with torch.no_grad():
            out = model(input_ids=lines.ids[row][None].to(device),
                        token_type_ids=lines.segments[row][None].to(device),
                        output_hidden_states=True)
            line = {"hidden": out.hidden_states[-1][0]}
            if heads:
                line["pooled"] = model.bert.pooler(out.hidden_states[-1])
                line["nsp_logits"] = out.seq_relationship_logits
                places = masked_rows[lines.masked[row]] - begin
                line["mlm_logits"] = out.prediction_logits[0][places.to(device)]
            else:
                line["pooled"] = out.pooler_output
        found.append({name: values.double().cpu() for name, values in line.items()})
    return found


def largest_differences(found, wanted):
    """(largest difference, largest value) by name, over all lines."""
    worst = {}
    for line, want in zip(found, wanted):
        for name, values in line.items():
            if name not in want or values.numel() == 0:
                continue
            difference = (values - want[name]).abs().max().item()
            if difference != difference:  # not a number
                difference = float("inf")
            old = worst.get(name, (0.0, 0.0))
            worst[name] = (max(old[0], difference), max(old[1], want[name].abs().max().item()))
    assert "hidden" in worst
    return worst


def compare(folder, text, ours, precision, device):
    """Prints the table of one output; False where ours is too far away."""
    lines = Lines(folder, text, ours)
    exact = their_outputs(folder, lines, ours, torch.float64)
    theirs = largest_differences(
        their_outputs(folder, lines, ours, DTYPES[precision], device), exact)
    passed = True
    for name, (difference, size) in largest_differences(our_outputs(ours, lines), exact).items():
        most = MOST_IN_FP32 if precision == "fp32" else MOST_OF_THEIRS * theirs[name][0]
        passed &= difference <= most
        print(f"{precision} {name:11s} largest difference to float64 {difference:.2e}, of "
              f"transformers on {device} {theirs[name][0]:.2e}, allowed {most:.2e}; "
              f"largest value {size:.2f}" + ("" if difference <= most else "  TOO FAR"))
    return passed


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="Hugging Face folder, with vocab.txt")
    parser.add_argument("text", help="a line at a time")
    parser.add_argument("output", nargs="?", help="what bertha encode wrote, in fp32")
    parser.add_argument("--bertha", help="the program, to be run in each precision instead")
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="fp32", help="of --bertha: some of fp32,bf16,fp16")
    arguments = parser.parse_args()
    if (arguments.output is None) == (arguments.bertha is None):
        parser.error("want the output of bertha encode, or --bertha")
    return arguments


def main():
    arguments = parse()
    folder, text = arguments.model, arguments.text
    if arguments.output:
        return int(not compare(folder, text, load_file(arguments.output), "fp32", "cpu"))
    passed = True
    for precision in arguments.precision.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "out.safetensors")
            subprocess.run([arguments.bertha, "encode", "--checkpoint", folder, "--text", text,
                            "--output", path, "--backend", arguments.backend, "--precision",
                            precision], check=True)
            passed &= compare(folder, text, load_file(path), precision, arguments.backend)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
