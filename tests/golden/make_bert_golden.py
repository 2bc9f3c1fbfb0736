#!/usr/bin/env python3
"""Writes bert_tiny.json: loss, logits and every gradient of Hugging Face BertForPreTraining in
float64 on a padded batch of sequences with different lengths. Bertha's un-padded model must agree.

    python3 tests/golden/make_bert_golden.py tests/golden/bert_tiny.json
    python3 tests/golden/make_bert_golden.py tests/golden/bert_tiny.json --erf

The second reads what the first wrote and writes bert_tiny_erf.json beside it: loss, logits and some
gradients of the same weights and batch with the erf form of the GELU. Needs torch, transformers and numpy. Weights are float32 values, so that both sides start from the
same numbers; all arithmetic here is float64.
"""
import json
import platform
import sys

import numpy as np
import torch
import transformers
from transformers import BertConfig, BertForPreTraining

LENGTHS = [7, 3, 12, 5]
SHAPE = dict(vocab_size=37, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
             intermediate_size=24, max_position_embeddings=16, type_vocab_size=2)


def make_batch(rng):
    """Sequences of LENGTHS with random ids, segments, masked positions and labels."""
    sequences = []
    for length in LENGTHS:
        split = int(rng.integers(1, length))
        masked = sorted(rng.choice(np.arange(1, length), size=max(1, length // 4), replace=False))
        sequences.append({
            "word_ids": rng.integers(5, SHAPE["vocab_size"], size=length).tolist(),
            "segment_ids": [0] * split + [1] * (length - split),
            "masked_positions": [int(p) for p in masked],
            "masked_labels": rng.integers(5, SHAPE["vocab_size"], size=len(masked)).tolist(),
            "next_sentence_label": int(rng.integers(0, 2)),
        })
    return sequences


def padded_tensors(sequences):
    rows, longest = len(sequences), max(LENGTHS)
    ids = torch.zeros(rows, longest, dtype=torch.long)
    segments = torch.zeros(rows, longest, dtype=torch.long)
    mask = torch.zeros(rows, longest, dtype=torch.long)
    labels = torch.full((rows, longest), -100, dtype=torch.long)
    for row, s in enumerate(sequences):
        n = len(s["word_ids"])
        ids[row, :n] = torch.tensor(s["word_ids"])
        segments[row, :n] = torch.tensor(s["segment_ids"])
        mask[row, :n] = 1
        labels[row, s["masked_positions"]] = torch.tensor(s["masked_labels"])
    nsp = torch.tensor([s["next_sentence_label"] for s in sequences])
    return ids, segments, mask, labels, nsp


def write(path, golden):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")
    print(golden["made_by"], "loss", golden["loss"])


def versions():
    return {"python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__, "numpy": np.__version__}


def make_erf(path):
    """bert_tiny.json's weights and batch through the model with hidden_act "gelu"."""
    with open(path, encoding="utf-8") as file:
        tiny = json.load(file)
    config = BertConfig(**SHAPE, hidden_act="gelu", layer_norm_eps=1e-12,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForPreTraining(config).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            tensor = tiny["parameters"][name]
            parameter.copy_(torch.tensor(tensor["weight"], dtype=torch.float64)
                            .reshape(tensor["shape"]))
    ids, segments, mask, labels, nsp = padded_tensors(tiny["sequences"])
    out = model(input_ids=ids, token_type_ids=segments, attention_mask=mask, labels=labels,
                next_sentence_label=nsp)
    out.loss.backward()
    # Behind every GELU of the model: those of both layers and that of the head.
    kept = ("bert.embeddings.LayerNorm.weight", "bert.encoder.layer.0.intermediate.dense.bias",
            "bert.encoder.layer.1.output.dense.bias", "cls.predictions.transform.dense.bias")
    gradients = dict(model.named_parameters())
    write(path.replace(".json", "_erf.json"), {
        "made_by": versions(),
        "loss": out.loss.item(),
        "mlm_logits": out.prediction_logits[labels >= 0].tolist(),
        "nsp_logits": out.seq_relationship_logits.tolist(),
        "gradients": {name: gradients[name].grad.flatten().tolist() for name in kept},
    })


def main():
    if sys.argv[2:] == ["--erf"]:
        make_erf(sys.argv[1])
        return
    rng = np.random.default_rng(20240229)
    config = BertConfig(**SHAPE, hidden_act="gelu_new", layer_norm_eps=1e-12,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForPreTraining(config).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = rng.normal(0.0, 0.25, size=tuple(parameter.shape))
            if name.endswith("LayerNorm.weight"):
                values = 1.0 + values
            parameter.copy_(torch.tensor(values.astype(np.float32).astype(np.float64)))

    sequences = make_batch(rng)
    ids, segments, mask, labels, nsp = padded_tensors(sequences)
    out = model(input_ids=ids, token_type_ids=segments, attention_mask=mask, labels=labels,
                next_sentence_label=nsp)
    out.loss.backward()

    parameters = {}
    for name, parameter in model.named_parameters():
        parameters[name] = {"shape": list(parameter.shape),
                            "weight": [float(np.float32(v)) for v in parameter.detach().flatten()],
                            "gradient": parameter.grad.flatten().tolist()}
    picked = labels >= 0
    golden = {
        "made_by": versions(),
        "shape": SHAPE,
        "sequences": sequences,
        "loss": out.loss.item(),
        "mlm_logits": out.prediction_logits[picked].tolist(),
        "nsp_logits": out.seq_relationship_logits.tolist(),
        "parameters": parameters,
    }
    write(sys.argv[1], golden)


if __name__ == "__main__":
    main()
