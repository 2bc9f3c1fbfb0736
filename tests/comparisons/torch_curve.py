#!/usr/bin/env python3
"""Trains BERT in PyTorch on what `bertha data dump-batches --weights` wrote, and logs each step.

    bertha data dump-batches --config my.yaml --steps 300 --weights --output dump
    python3 tests/comparisons/torch_curve.py dump --output runs/torch [--device cuda] [--dtype fp32]
    python3 tests/comparisons/compare_curves.py runs/bertha runs/torch

Independent of Bertha's code: padded sequences with a mask, gradients by autograd, LAMB written from
its paper, with the parameters of the published codes (published_parameters.py). Reads config.yaml,
config.json, model.safetensors and the batches; writes OUTPUT/metrics.jsonl with the records of a run
folder. Needs torch and safetensors.

fp32 and fp64 compute everything in that type. With bf16 weights, activations and gradients are
bf16, master weights and moments fp32, as in Bertha.
"""
import argparse
import json
import math
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from published_parameters import published_parameters


def read_settings(path):
    """The sections of config.yaml as {"train.seed": "1"}: two levels, as Bertha writes it."""
    settings, section = {}, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.split(" #")[0].rstrip()
        if not text or text.startswith("#"):
            continue
        key, _, value = text.strip().partition(":")
        if not line.startswith(" "):
            section = key
        else:
            settings[f"{section}.{key}"] = value.strip().strip("\"'")
    return settings


def refuse_what_differs(settings):
    """This program implements one choice of each of these."""
    for key, wanted in {"train.loss_mean": "global",
                        "model.padded_vocab_in_softmax": "false",
                        "optimizer.name": "lamb"}.items():
        if settings[key] != wanted:
            sys.exit(f"torch_curve.py: {key} is {settings[key]}, want {wanted}")
    if settings["optimizer.clip"] != "after" and float(settings["optimizer.max_gradient_norm"]) > 0:
        sys.exit("torch_curve.py: optimizer.clip is before, want after")
    if float(settings["train.nsp_weight"]) != 1:
        sys.exit(f"torch_curve.py: train.nsp_weight is {settings['train.nsp_weight']}, want 1")
    for key in ("model.hidden_dropout", "model.attention_dropout"):
        if float(settings[key]) != 0:
            sys.exit(f"torch_curve.py: {key} is {settings[key]}, want 0: random bits differ")


class Batch:
    """One global batch, padded: ids and segments [B, S], mask [B, S] true at tokens."""

    def __init__(self, path, device):
        arrays = {name: values.long() for name, values in load_file(path).items()}
        starts = arrays["cu_seqlens"]
        lengths = starts[1:] - starts[:-1]
        sequence = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        column = torch.arange(int(starts[-1])) - starts[sequence]
        if not torch.equal(column, arrays["position_ids"]):
            sys.exit(f"torch_curve.py: {path}: position_ids do not count from 0 in each sequence")
        shape = (len(lengths), int(lengths.max()))
        self.ids = torch.zeros(shape, dtype=torch.long)
        self.segments = torch.zeros(shape, dtype=torch.long)
        self.mask = torch.zeros(shape, dtype=torch.bool)
        self.ids[sequence, column] = arrays["input_ids"]
        self.segments[sequence, column] = arrays["token_type_ids"]
        self.mask[sequence, column] = True
        masked = arrays["masked_positions"]
        self.masked_seq, self.masked_column = sequence[masked], column[masked]
        self.labels = arrays["masked_labels"]
        self.next_sentence = arrays["next_sentence_labels"]
        for name, values in vars(self).items():
            setattr(self, name, values.to(device))


class Model:
    """BertForPreTraining as formulas over a dictionary of weights with Hugging Face's names."""

    def __init__(self, config):
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.epsilon = config["layer_norm_eps"]
        self.gelu = "none" if config["hidden_act"] == "gelu" else "tanh"  # PyTorch's words

    @staticmethod
    def dense(w, name, x):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(self, w, name, x):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], self.epsilon)

    def attention(self, w, name, x, mask):
        rows, length, hidden = x.shape

        def heads(part):
            y = self.dense(w, f"{name}.self.{part}", x)
            return y.view(rows, length, self.heads, hidden // self.heads).transpose(1, 2)

        scores = heads("query") @ heads("key").transpose(-1, -2)
        scores = scores / math.sqrt(hidden // self.heads)
        scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
        context = scores.softmax(-1) @ heads("value")
        return context.transpose(1, 2).reshape(rows, length, hidden)

    def encode(self, w, batch):
        word = w["bert.embeddings.word_embeddings.weight"]
        x = (word[batch.ids]
             + w["bert.embeddings.position_embeddings.weight"][: batch.ids.shape[1]]
             + w["bert.embeddings.token_type_embeddings.weight"][batch.segments])
        x = self.norm(w, "bert.embeddings.LayerNorm", x)
        for layer in range(self.layers):
            name = f"bert.encoder.layer.{layer}"
            context = self.attention(w, name + ".attention", x, batch.mask)
            y = self.dense(w, name + ".attention.output.dense", context)
            x = self.norm(w, name + ".attention.output.LayerNorm", x + y)
            y = F.gelu(self.dense(w, name + ".intermediate.dense", x), approximate=self.gelu)
            y = self.dense(w, name + ".output.dense", y)
            x = self.norm(w, name + ".output.LayerNorm", x + y)
        return x

    def losses(self, w, batch):
        """Mean losses of masked tokens and of next sentences, and the share of right tokens."""
        x = self.encode(w, batch)
        pooled = torch.tanh(self.dense(w, "bert.pooler.dense", x[:, 0]))
        nsp_logits = self.dense(w, "cls.seq_relationship", pooled)
        picked = x[batch.masked_seq, batch.masked_column]
        name = "cls.predictions.transform"
        picked = F.gelu(self.dense(w, name + ".dense", picked), approximate=self.gelu)
        picked = self.norm(w, name + ".LayerNorm", picked)
        logits = F.linear(picked, w["bert.embeddings.word_embeddings.weight"],
                          w["cls.predictions.bias"])
        wide = torch.promote_types(logits.dtype, torch.float32)
        mlm = F.cross_entropy(logits.to(wide), batch.labels)
        nsp = F.cross_entropy(nsp_logits.to(wide), batch.next_sentence)
        accuracy = (logits.argmax(-1) == batch.labels).double().mean()
        return mlm, nsp, accuracy


class Schedule:
    """The learning rate; the decay counts from step 0, not from the end of the warm-up."""

    def __init__(self, settings):
        def number(key):
            return float(settings["optimizer." + key])

        self.base, self.degree = number("base_learning_rate"), number("decay_degree")
        self.warmup, self.start = number("warmup_steps"), number("start_warmup_step")
        self.total = number("schedule_steps") or float(settings["train.max_steps"])

    def rate(self, updates):
        """Of the update that follows so many."""
        start = self.start if self.warmup > 0 else 0
        k = updates + (0 if start == 0 else 1)
        if k - start < self.warmup:
            return max(0.0, self.base * (k - start) / (self.warmup + 1e-6))
        return self.base * (1 - min(1.0, k / self.total)) ** self.degree


class Lamb:
    """You et al. 2020, algorithm 2, with bias correction and a limit on the global norm. Parameters
    that have no weight decay take the step without the trust ratio."""

    def __init__(self, weights, settings):
        def number(key):
            return float(settings["optimizer." + key])

        self.weights = weights
        self.m = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.v = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.step_number = 0
        self.schedule = Schedule(settings)
        self.beta_1, self.beta_2 = number("beta_1"), number("beta_2")
        self.epsilon, self.decay = number("epsilon"), number("weight_decay")
        self.limit = number("max_gradient_norm")
        self.parameters = published_parameters(settings["optimizer.decay_rule"], weights).values()

    @torch.no_grad()
    def step(self, gradients):
        """Updates the weights; returns the gradients' norm and the learning rate."""
        norm = math.sqrt(sum(g.double().square().sum().item() for g in gradients.values()))
        clip = min(1.0, self.limit / (norm + 1e-6)) if self.limit > 0 else 1.0
        rate = self.schedule.rate(self.step_number)
        self.step_number += 1
        correction_1 = 1 - self.beta_1 ** self.step_number
        correction_2 = 1 - self.beta_2 ** self.step_number
        for names, decays in self.parameters:
            updates = {}
            for name in names:
                g, m, v = gradients[name] * clip, self.m[name], self.v[name]
                m.mul_(self.beta_1).add_(g, alpha=1 - self.beta_1)
                v.mul_(self.beta_2).addcmul_(g, g, value=1 - self.beta_2)
                u = (m / correction_1) / ((v / correction_2).sqrt() + self.epsilon)
                updates[name] = u + self.decay * self.weights[name] if decays else u
            ratio = 1.0
            if decays:
                of_weights = sum(self.weights[n].double().square().sum().item() for n in names)
                of_updates = sum(u.double().square().sum().item() for u in updates.values())
                if of_weights > 0 and of_updates > 0:
                    ratio = math.sqrt(of_weights / of_updates)
            for name in names:
                self.weights[name] -= rate * ratio * updates[name]
        return norm, rate


def step_record(step, samples, seconds, **known):
    """A step as Bertha logs it; what is not known is null."""
    names = ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "learning_rate", "gradient_norm",
             "loss_scale", "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms",
             "optimizer_ms", "seqs_per_second", "tokens_per_second", "flops_per_second",
             "token_imbalance")
    return {"kind": "step", "time_ms": int(time.time() * 1e3), "step": step, "samples": samples,
            **dict.fromkeys(names), "loss_scale": 1, "step_ms": seconds * 1e3, **known}


def train(arguments):
    dump, output = pathlib.Path(arguments.dump), pathlib.Path(arguments.output)
    settings = read_settings(dump / "config.yaml")
    refuse_what_differs(settings)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model = Model(json.loads((dump / "config.json").read_text(encoding="utf-8")))
    compute = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}[arguments.dtype]
    master = torch.float64 if compute == torch.float64 else torch.float32
    weights = {name: w.to(arguments.device, master)
               for name, w in load_file(dump / "model.safetensors").items()}
    lamb = Lamb(weights, settings)
    files = sorted(dump.glob("batch_*.safetensors"))[: arguments.steps]
    if not files:
        sys.exit(f"torch_curve.py: {dump}: no batch_*.safetensors")
    output.mkdir(parents=True, exist_ok=True)
    samples = 0
    with open(output / "metrics.jsonl", "w", encoding="utf-8") as log:
        for step, path in enumerate(files, 1):
            begin = time.monotonic()
            batch = Batch(path, arguments.device)
            leaves = {n: w.to(compute, copy=True).requires_grad_() for n, w in weights.items()}
            mlm, nsp, accuracy = model.losses(leaves, batch)
            (mlm + nsp).backward()
            norm, rate = lamb.step({n: leaf.grad.to(master) for n, leaf in leaves.items()})
            samples += len(batch.next_sentence)
            seconds = time.monotonic() - begin
            record = step_record(step, samples, seconds, loss=(mlm + nsp).item(), mlm_loss=mlm.item(),
                                 nsp_loss=nsp.item(), mlm_accuracy=accuracy.item(),
                                 learning_rate=rate, gradient_norm=norm,
                                 seqs_per_second=len(batch.next_sentence) / seconds,
                                 tokens_per_second=batch.mask.sum().item() / seconds)
            log.write(json.dumps(record) + "\n")
            if step % 50 == 0 or step == len(files):
                print(f"step {step}  loss {record['loss']:.4f}  {seconds * 1e3:.0f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("dump", help="folder that `bertha data dump-batches --weights` wrote")
    parser.add_argument("--output", required=True, help="folder for metrics.jsonl")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("fp32", "fp64", "bf16"), default="fp32")
    parser.add_argument("--steps", type=int, default=None, help="at most so many")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
