#!/usr/bin/env python3
"""Sends models of Hugging Face transformers through `bertha checkpoint` and back.

    python3 tests/comparisons/round_trip.py build/release/bertha SCRATCH_DIR VOCAB

For both forms of the GELU: BertForPreTraining with random weights, saved by transformers, converted
and exported by Bertha, loaded again. Every weight and every logit must be the same, bit for bit, and
`bertha fill` must print the probabilities that transformers has for every entry of the vocabulary.
Needs torch, transformers, safetensors.
"""
import pathlib
import shutil
import subprocess
import sys

import torch
from transformers import AutoTokenizer, BertConfig, BertForPreTraining, BertModel

TEXTS = ["a small [MASK] of lines\tthe second [MASK] of it", "[MASK]"]


def run(*words):
    print("  $", *words)
    subprocess.run([str(word) for word in words], check=True)


def logits(folder):
    model, report = BertForPreTraining.from_pretrained(folder, output_loading_info=True)
    missing = {key: value for key, value in report.items() if value}
    assert not missing, missing
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(0, model.config.vocab_size, (3, 40), generator=generator)
    with torch.no_grad():
        out = model.eval()(input_ids=ids, token_type_ids=(ids % 2))
    return model, out.prediction_logits, out.seq_relationship_logits


def compare_fill(bertha, folder, model):
    """The most that a printed probability, which has four digits, is away from that of transformers."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    worst = 0.0
    for text in TEXTS:
        words = [bertha, "fill", "--checkpoint", folder, "--top", len(tokenizer), text]
        printed = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)
        rows = [line.split() for line in printed.stdout.splitlines()[1:]]
        encoded = tokenizer(*text.split("\t"), return_tensors="pt")
        with torch.no_grad():
            logits = model(**encoded).prediction_logits[0]
        masks = logits[encoded["input_ids"][0] == tokenizer.mask_token_id].softmax(-1)
        assert len(rows) == len(tokenizer) and len(rows[0]) == 2 * len(masks), (len(rows), rows[0])
        for column, mask in enumerate(masks):
            ids = tokenizer.convert_tokens_to_ids([row[2 * column] for row in rows])
            assert len(set(ids)) == len(tokenizer)
            shown = torch.tensor([float(row[2 * column + 1]) for row in rows])
            worst = max(worst, (shown - mask[ids]).abs().max().item())
    return worst


def main():
    bertha, scratch, vocab = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    entries = len(open(vocab, encoding="utf-8").read().splitlines())
    for activation in ("gelu", "gelu_new"):
        torch.manual_seed(1)
        # Weights far from their small first values, so that a wrong one shows.
        config = BertConfig(vocab_size=entries, hidden_size=128, num_hidden_layers=3,
                            num_attention_heads=4, intermediate_size=512,
                            max_position_embeddings=64, hidden_act=activation,
                            initializer_range=0.1)
        theirs = scratch / f"theirs_{activation}"
        model = BertForPreTraining(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
            # Few words share the probability, so that four digits tell models apart.
            model.cls.predictions.transform.LayerNorm.weight.mul_(5)
        model.save_pretrained(theirs)
        shutil.copy(vocab, theirs / "vocab.txt")
        ours = scratch / f"ours_{activation}"
        back = scratch / f"back_{activation}"
        run(bertha, "checkpoint", "convert", theirs, "--output", ours)
        run(bertha, "checkpoint", "verify", ours)
        run(bertha, "checkpoint", "export", ours, "--output", back)
        before, after = logits(theirs), logits(back)
        for name, parameter in before[0].state_dict().items():
            assert torch.equal(parameter, after[0].state_dict()[name]), name
        assert torch.equal(before[1], after[1]) and torch.equal(before[2], after[2])
        print(f"  {activation}: {len(before[0].state_dict())} tensors and all logits are the same")
        bare = scratch / f"bare_{activation}"
        run(bertha, "checkpoint", "export", ours, "--output", bare, "--encoder-only")
        _, report = BertModel.from_pretrained(bare, output_loading_info=True)
        assert not any(report.values()), report
        worst = compare_fill(bertha, back, after[0])
        print(f"  {activation}: bertha fill is away from transformers by {worst:.1e} at most")
        assert worst < 6e-5, worst


if __name__ == "__main__":
    main()
