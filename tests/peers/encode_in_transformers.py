#!/usr/bin/env python3
"""Compares what `bertha encode` wrote with the same model in Hugging Face transformers.

    bertha encode --checkpoint MODEL_DIR --text lines.txt --output out.safetensors
    python3 tests/peers/encode_in_transformers.py MODEL_DIR lines.txt out.safetensors

Prints the largest difference of hidden states, pooled states and logits, each beside the largest
value, in float32 and against float64; exit code 1 where float64 says more than 1e-3. Token ids have
to be the tokenizer's. Needs torch, transformers and safetensors.
"""
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertForPreTraining, BertModel

MOST = 1e-3


def outputs(model, heads, ids, segments):
    with torch.no_grad():
        out = model(input_ids=ids[None], token_type_ids=segments[None], output_hidden_states=True)
        found = {"hidden": (out.hidden_states[-1] if heads else out.last_hidden_state)[0]}
        if heads:
            found["pooled"] = model.bert.pooler(out.hidden_states[-1])
            found["nsp_logits"] = out.seq_relationship_logits
            found["mlm_logits"] = out.prediction_logits[0]
        else:
            found["pooled"] = out.pooler_output
    return found


def largest_differences(folder, text, ours, dtype):
    heads = "mlm_logits" in ours
    kind = BertForPreTraining if heads else BertModel
    model = kind.from_pretrained(folder, dtype=dtype).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lines = open(text, encoding="utf-8").read().splitlines()
    starts = ours["cu_seqlens"].tolist()
    assert len(starts) == len(lines) + 1, (len(starts), len(lines))
    worst = {}
    for row, line in enumerate(lines):
        begin, end = starts[row], starts[row + 1]
        ids = ours["token_ids"][begin:end].long()
        encoded = tokenizer(*line.split("\t"))
        assert encoded["input_ids"] == ids.tolist(), f"line {row + 1}: other tokens"
        theirs = outputs(model, heads, ids, torch.tensor(encoded["token_type_ids"]))
        masked = ours["masked_rows"].long()
        inside = (masked >= begin) & (masked < end)
        mine = {"hidden": ours["hidden"][begin:end]}
        for name in ("pooled", "nsp_logits"):
            if name in ours and name in theirs:
                mine[name] = ours[name][row : row + 1]
        if heads:
            mine["mlm_logits"] = ours["mlm_logits"][inside]
            theirs["mlm_logits"] = theirs["mlm_logits"][masked[inside] - begin]
        for name, values in mine.items():
            if values.numel() == 0:
                continue
            difference = (values.double() - theirs[name].double()).abs().max().item()
            size = theirs[name].abs().max().item()
            old = worst.get(name, (0.0, 0.0))
            worst[name] = (max(old[0], difference), max(old[1], size))
    return worst


def main():
    folder, text, output = sys.argv[1:4]
    ours = load_file(output)
    code = 0
    for dtype in (torch.float32, torch.float64):
        for name, (difference, size) in largest_differences(folder, text, ours, dtype).items():
            print(f"{str(dtype):14s} {name:11s} largest difference {difference:.2e}, "
                  f"largest value {size:.2f}")
            code |= dtype == torch.float64 and not difference < MOST
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
