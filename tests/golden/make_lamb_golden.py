#!/usr/bin/env python3
"""Writes lamb_golden.json: five updates of two ranks in float64, standard library only.

A transcription of the published updates (LAMB and AdamW with bias correction, decoupled decay, eps
outside the root, clip before or after the reduction, dynamic loss scale, linear warm-up and
polynomial decay), independent of the C++ code. Run: python3 tests/golden/make_lamb_golden.py
Made with CPython 3.11.7.
"""
import json
import math
import pathlib
import random

RANKS = 2
TENSORS = [
    {"name": "first.weight", "shape": [5, 3], "decay": True, "norm_parts": 1},
    {"name": "first.bias", "shape": [7], "decay": False, "norm_parts": 1},
    {"name": "qkv.weight", "shape": [6, 2], "decay": True, "norm_parts": 3},
    {"name": "qkv.bias", "shape": [6], "decay": True, "norm_parts": 3},
    {"name": "norm.gain", "shape": [13], "decay": False, "norm_parts": 1},
]
CONFIG = {"base_learning_rate": 0.05, "warmup_steps": 3, "start_warmup_step": -1,
          "schedule_steps": 9, "decay_degree": 1.5, "beta_1": 0.8, "beta_2": 0.95,
          "epsilon": 1e-4, "weight_decay": 0.03, "max_gradient_norm": 1.5,
          "initial_loss_scale": 64.0, "loss_scale_growth_interval_steps": 2}
STEPS = 5
OVERFLOW_STEP = 2  # 0-based


def elements(tensor):
    return math.prod(tensor["shape"])


def norm(values):
    return math.sqrt(sum(x * x for x in values))


def learning_rate(t):
    """t: successful updates before this one."""
    offset = 1 if CONFIG["start_warmup_step"] == 0 else 0
    k = t + 1 - offset
    start, warmup = CONFIG["start_warmup_step"], CONFIG["warmup_steps"]
    if k - start < warmup:
        return CONFIG["base_learning_rate"] * (k - start) / (warmup + 1e-6)
    left = 1 - min(1.0, k / CONFIG["schedule_steps"])
    return CONFIG["base_learning_rate"] * left ** CONFIG["decay_degree"]


def reduce_gradients(means, clip):
    """The mean over ranks; each rank's mean gradient is limited first with clip 'before'."""
    limit = CONFIG["max_gradient_norm"]
    if clip == "before":
        means = [[x * min(1.0, limit / (norm(g) + 1e-6)) for x in g] for g in means]
    return [sum(column) / len(means) for column in zip(*means)]


def part_ranges():
    """(begin, end, decay) of every piece with norms of its own."""
    begin = 0
    for tensor in TENSORS:
        size = elements(tensor) // tensor["norm_parts"]
        for _ in range(tensor["norm_parts"]):
            yield begin, begin + size, tensor["decay"]
            begin += size


def update(state, gradient, optimizer):
    b1, b2 = CONFIG["beta_1"], CONFIG["beta_2"]
    rate = learning_rate(state["t"])
    state["t"] += 1
    t, w = state["t"], state["w"]
    state["m"] = [b1 * m + (1 - b1) * g for m, g in zip(state["m"], gradient)]
    state["v"] = [b2 * v + (1 - b2) * g * g for v, g in zip(state["v"], gradient)]
    for begin, end, decay in part_ranges():
        direction = []
        for i in range(begin, end):
            m_hat = state["m"][i] / (1 - b1 ** t)
            v_hat = state["v"][i] / (1 - b2 ** t)
            u = m_hat / (math.sqrt(v_hat) + CONFIG["epsilon"])
            direction.append(u + (CONFIG["weight_decay"] * w[i] if decay else 0.0))
        ratio = 1.0
        if optimizer == "lamb" and decay and norm(w[begin:end]) > 0 and norm(direction) > 0:
            ratio = norm(w[begin:end]) / norm(direction)
        for i, u in zip(range(begin, end), direction):
            w[i] -= rate * ratio * u
    return rate


def run(weights, gradients, clip, optimizer="lamb"):
    n = len(weights)
    state = {"w": list(weights), "m": [0.0] * n, "v": [0.0] * n, "t": 0}
    scale, clean, skipped, records = CONFIG["initial_loss_scale"], 0, 0, []
    for step in range(STEPS):
        record = {}
        if step == OVERFLOW_STEP:
            scale, clean, skipped = max(1.0, scale * 0.5), 0, skipped + 1
        else:
            g = reduce_gradients(gradients[step], clip)
            record["gradient_norm"] = norm(g)
            if clip == "after":
                factor = min(1.0, CONFIG["max_gradient_norm"] / (norm(g) + 1e-6))
                g = [x * factor for x in g]
            record["learning_rate"] = update(state, g, optimizer)
            clean += 1
            if clean == CONFIG["loss_scale_growth_interval_steps"]:
                scale, clean = scale * 2, 0
        record.update(loss_scale=scale, successful_steps=state["t"], skipped_steps=skipped,
                      weights=[float(f"{x:.10g}") for x in state["w"]])
        records.append(record)
    return records


def main():
    source = random.Random(20)
    total = sum(elements(tensor) for tensor in TENSORS)

    def draw(deviation):  # exact in f32, short in text
        return [round(source.gauss(0, deviation) * 256) / 256 for _ in range(total)]

    weights = draw(0.5)
    # The second update stays below the limit; the ranks' norms differ.
    gradients = [[draw(d * (0.05 if step == 1 else 1.0)) for d in (0.2, 0.9)]
                 for step in range(STEPS)]
    golden = {"ranks": RANKS, "tensors": TENSORS, "config": CONFIG, "overflow_step": OVERFLOW_STEP,
              "weights": weights, "gradients": gradients,
              "after": run(weights, gradients, "after"),
              "before": run(weights, gradients, "before"),
              "adamw": run(weights, gradients, "after", "adamw")}
    path = pathlib.Path(__file__).with_name("lamb_golden.json")
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


main()
