#!/usr/bin/env python3
"""Loads a checkpoint with Hugging Face transformers and evaluates it as `bertha eval` does.

    python3 tests/comparisons/eval_in_transformers.py CHECKPOINT_DIR EVAL_SHARD.hdf5

Prints masked-token accuracy and loss and next-sentence accuracy, to compare with `bertha eval`.
Needs torch, transformers and h5py; the shard is of variable length.
"""
import sys

import h5py
import torch
from transformers import BertForPreTraining


def padded(rows, fill):
    longest = max(len(row) for row in rows)
    return torch.tensor([list(row) + [fill] * (longest - len(row)) for row in rows])


def main():
    checkpoint, shard = sys.argv[1:3]
    model, report = BertForPreTraining.from_pretrained(checkpoint, output_loading_info=True)
    print("loading:", {key: sorted(value) for key, value in report.items() if value})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.double().eval().to(device)

    correct = masked = nsp_correct = 0
    loss = 0.0
    with h5py.File(shard, "r") as file, torch.no_grad():
        count = len(file["next_sentence_labels"])
        for begin in range(0, count, 64):
            rows = slice(begin, min(begin + 64, count))
            ids = [[int(i) for i in row] for row in file["input_ids"][rows]]
            segments = [[int(i) for i in row] for row in file["segment_ids"][rows]]
            positions = [[int(i) for i in row] for row in file["masked_lm_positions"][rows]]
            labels = [[int(i) for i in row] for row in file["masked_lm_ids"][rows]]
            nsp = torch.tensor([int(i) for i in file["next_sentence_labels"][rows]])
            mask = padded([[1] * len(row) for row in ids], 0)
            out = model(input_ids=padded(ids, 0).to(device), attention_mask=mask.to(device),
                        token_type_ids=padded(segments, 0).to(device))
            row_of = torch.tensor([r for r, row in enumerate(positions) for _ in row])
            at = torch.tensor([p for row in positions for p in row])
            want = torch.tensor([i for row in labels for i in row]).to(device)
            logits = out.prediction_logits[row_of.to(device), at.to(device)]
            loss += torch.nn.functional.cross_entropy(logits, want, reduction="sum").item()
            correct += (logits.argmax(-1) == want).sum().item()
            masked += want.numel()
            nsp_correct += (out.seq_relationship_logits.argmax(-1).cpu() == nsp).sum().item()
    print(f"masked-token accuracy    {correct / masked:.4f}")
    print(f"masked-token loss        {loss / masked:.4f}")
    print(f"next-sentence accuracy   {nsp_correct / count:.4f}")


if __name__ == "__main__":
    main()
