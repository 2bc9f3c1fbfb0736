#!/usr/bin/env python3
"""Compares the gradients of fp8 and bf16 with those of fp32, on the weights of a training run.

    bertha train --config my.yaml --output-dir run --set checkpoint.every_steps=1000
    python3 tests/comparisons/fp8_gradients.py build/release/bertha --config my.yaml \\
      --weights random run/ckpt/step_00001000 run/ckpt/step_00004000 --output gradients

For each weights ("random" = those that training would begin with) and precision the program makes two
steps on the same batches with a learning rate of 1e-30, which leaves the weights as they are, without
dropout, clipping and loss scale, and with optimizer.beta_1 0, so that the first moment in its
checkpoint is the second step's gradient: f32, in the file as in memory. What enters it is rounded
once to the type of the weights, which is bf16 on a GPU but for fp32. fp8's first step finds scales in
a pass in bf16 and then computes in fp8; the second computes with the scales of the first, as training
does.

Prints cosine with and norm beside the gradient of fp32 for each kind of parameter over all layers;
every number is in OUTPUT/gradients.json. Exit code 1 where a weight of an encoder GEMM or of the
decoder, which is the word table, is beyond its bound. A run that OUTPUT has already is not made again. Needs numpy.

Bounds, for L layers, as kFp8GradientCosine and kFp8GradientNorm of kernels/base/tests/tolerance.h have them
for two: fp8 rounds 8 L times to e4m3 (input and weight of four GEMMs), 2.65 % rms each, and 4 L times to
e5m2, 5.3 %. Independent errors add up as squares to e norms of the gradient. Twice that is allowed at
a right angle, a cosine of 1 / sqrt(1 + 4 e^2), and e along it, a norm of 1 / (1 + e) to 1 + e. The
decoder's three roundings more are within it. bf16: 300 L roundings (kModelGradientF32) of 2^-9 / sqrt(3) rms.
"""
import argparse
import json
import math
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys

import numpy

from checkpoint_tensors import read_weights_and_moments
from gpu_evidence import LAUNCHERS
from logged_command import environment_without, start_logged

STEPS = 2
SETTINGS = {
    "train.max_steps": STEPS, "train.target_accuracy": 0, "train.log_every_steps": 1,
    "train.accumulation_steps": 1, "model.hidden_dropout": 0, "model.attention_dropout": 0,
    "optimizer.base_learning_rate": 1e-30, "optimizer.warmup_steps": 0,
    "optimizer.start_warmup_step": 0, "optimizer.schedule_steps": 0, "optimizer.name": "adamw",
    "optimizer.beta_1": 0, "optimizer.max_gradient_norm": 0, "optimizer.loss_scale": "off",
    "eval.every_samples": 10**9, "eval.max_samples": 8, "checkpoint.every_steps": 0,
    "checkpoint.resume": "never", "log.tensorboard": "false", "mlperf.division": "open"}
GEMMS = ("qkv", "projection", "ff_in", "ff_out")
KINDS = ((r"attention\.self\.", "qkv"), (r"attention\.output\.dense", "projection"),
         (r"intermediate\.dense", "ff_in"), (r"\d\.output\.dense", "ff_out"),
         (r"^bert\.encoder.*LayerNorm", "layer norm"), (r"word_embeddings", "word table"),
         (r"^bert\.embeddings\.", "embeddings"),
         (r"", "heads"))
VARIANCE = {"fp8": 8 * 0.0265**2 + 4 * 0.053**2, "bf16": 300 * 2.0**-18 / 3}  # of one layer


def gradients_of(arguments, weights, precision):
    """Makes the steps, unless they are there, and reads the last one's gradient."""
    name = "random" if weights == "random" else "_".join(pathlib.Path(weights).parts[-3:])
    run = pathlib.Path(arguments.output) / f"{name}_{precision}"
    checkpoint = run / "ckpt" / f"step_{STEPS:08d}"
    if not (checkpoint / "DONE").exists():
        settings = {"train.backend": arguments.backend, **SETTINGS, "train.precision": precision,
                    "checkpoint.init": "" if weights == "random" else weights}
        words = [arguments.bertha, "train", "--output-dir", run, "--seed", arguments.seed]
        for config in arguments.config:
            words += ["--config", config]
        for word in arguments.set + [f"{key}={value}" for key, value in settings.items()]:
            words += ["--set", word]
        run.parent.mkdir(parents=True, exist_ok=True)
        log = run.with_suffix(".log")
        process = start_logged(words, log, None, environment_without(LAUNCHERS))
        try:
            code = process.wait(arguments.limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = f"none after {arguments.limit:g} s"
        if code != 0:
            sys.exit(f"fp8_gradients.py: exit code {code}, see {log}")
    state = json.loads((checkpoint / "state.json").read_text())
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [record for record in records if record["kind"] == "step"][-1]
    values, gradients = read_weights_and_moments(checkpoint)
    norm = math.sqrt(sum(dots(g, g) for g in gradients.values()))
    for wrong, what in (
            (state["optimizer"]["successful_steps"] != STEPS, "an update was skipped"),
            (bool(state.get("fp8_scale_exponents")) != (precision == "fp8"), "wrong GEMMs"),
            (abs(norm / last["gradient_norm"] - 1) > 1e-5, "moments are not the logged gradient")):
        if wrong:
            sys.exit(f"fp8_gradients.py: {run}: {what}")
    return values, gradients


def dots(a, b):
    return float(numpy.vdot(a.astype("<f8"), b.astype("<f8")))


def compare(gradients, reference):
    """{kind: {layer: {cosine, ratio}}}; query, key and value are compared together and alone."""
    sums = {}
    for name, got in gradients.items():
        kind = next(kind for pattern, kind in KINDS if re.search(pattern, name))
        layer = re.search(r"layer\.(\d+)\.", name)
        kinds = [kind + (" bias" if kind in GEMMS and name.endswith("bias") else "")]
        if kinds == ["qkv"]:
            kinds.append("qkv: " + name.split(".")[-2])
        want = reference[name]
        for kind in kinds:
            total = sums.setdefault(kind, {}).setdefault(layer[1] if layer else name, [0, 0, 0])
            for i, (a, b) in enumerate(((got, want), (got, got), (want, want))):
                total[i] += dots(a, b)
    return {kind: {layer: {"cosine": ab / math.sqrt(aa * bb) if aa > 0 else 0.0,
                           "norm_ratio": math.sqrt(aa / bb)}
                   for layer, (ab, aa, bb) in layers.items() if bb > 0}  # some have no gradient
            for kind, layers in sums.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bertha", help="the program")
    parser.add_argument("--config", action="append", default=[], help="as of bertha train")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="likewise")
    parser.add_argument("--weights", nargs="+", default=["random"], help="checkpoints, or random")
    parser.add_argument("--output", required=True, help="folder for runs and gradients.json")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=1000, help="of the batches and random weights")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a run")
    arguments = parser.parse_args()
    rows, failed = [], False
    print(f"{'weights':28} {'type':5} {'kind':16} {'cosine: lowest':>14} {'median':>8} "
          f"{'norm: lowest':>13} {'highest':>8}  bounds")
    for weights in arguments.weights:
        values, reference = gradients_of(arguments, weights, "fp32")
        for precision in ("bf16", "fp8") if arguments.backend == "cuda" else ("fp8",):
            same, gradients = gradients_of(arguments, weights, precision)
            if any(numpy.abs(same[name] - values[name]).max() > 1e-20 for name in values):
                sys.exit(f"fp8_gradients.py: {weights}: {precision} has other weights than fp32")
            found = compare(gradients, reference)
            error = math.sqrt(len(found["qkv"]) * VARIANCE[precision])
            cosine, norm = 1 / math.sqrt(1 + 4 * error**2), 1 + error
            for kind, layers in found.items():
                cosines = [entry["cosine"] for entry in layers.values()]
                ratios = [entry["norm_ratio"] for entry in layers.values()]
                if not cosines:
                    continue
                bounds, bad = "", False
                if kind in (*GEMMS, "word table"):
                    bounds = f"{cosine:.4f}, {1 / norm:.3f} to {norm:.3f}"
                    bad = not (min(cosines) >= cosine and 1 / norm <= min(ratios)
                               and max(ratios) <= norm)
                failed |= bad
                print(f"{weights[-28:]:28} {precision:5} {kind:16} {min(cosines):14.5f} "
                      f"{statistics.median(cosines):8.5f} {min(ratios):13.4f} {max(ratios):8.4f}  "
                      f"{bounds}{'  FAILED' if bad else ''}", flush=True)
            rows.append({"weights": weights, "precision": precision, "lowest_cosine": cosine,
                         "highest_norm_ratio": norm, "kinds": found})
    path = pathlib.Path(arguments.output) / "gradients.json"
    path.write_text(json.dumps({"failed": failed, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"written: {path}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
