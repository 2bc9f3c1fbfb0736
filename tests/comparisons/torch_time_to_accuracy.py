#!/usr/bin/env python3
"""Trains BERT in PyTorch until a masked-token accuracy, and says after how many seconds.

    bertha data dump-batches --config my.yaml --steps 6400 --weights --output dump
    python3 tests/comparisons/torch_time_to_accuracy.py dump --output runs/torch [--seconds 300]

The same as `bertha train --config my.yaml`: its batches in their order (train.seed of dump-batches),
first weights, AdamW with clipping and schedule, evaluations on the first eval.max_samples of data.eval,
target. For recipes such as configs/medium_from_scratch.yaml: no trust ratio, no next-sentence loss, no
dropout. On a GPU the way PyTorch does it fastest: un-padded, FlashAttention for varying lengths,
torch.compile, bf16 with f32 masters, one flat AdamW. Tokens are padded to multiples of 128 and
compiled for any number; --shapes fixed pads all batches to the largest instead. The clock begins after
reading the evaluation set, compilation and warm-up, and includes evaluations and reading batches:
compare it with run_start to run_stop in the program's MLLOG. With --device cpu everything is f32 and
not compiled: compare_curves.py shows the same losses as Bertha's in fp32.

Writes OUTPUT/metrics.jsonl as in a run folder and OUTPUT/result.json, which is printed. Exit code 3
where batches or seconds end before the target. Needs torch, safetensors, h5py.
"""
import argparse
import json
import pathlib
import sys
import time

import torch
from safetensors.torch import load_file

from torch_batches import Padding, evaluation_batches, largest, prefetched
from torch_curve import read_settings, step_record
from torch_flat_bert import AdamW, Model, join

WANTED = {"train.loss_mean": "global", "model.padded_vocab_in_softmax": "false",
          "optimizer.name": "adamw", "optimizer.clip": "after", "train.nsp_weight": "0",
          "model.hidden_dropout": "0", "model.attention_dropout": "0", "optimizer.loss_scale": "off",
          "eval.start_samples": "0"}
WARM_UP_BATCHES = 4


class Training:
    def __init__(self, arguments):
        dump = pathlib.Path(arguments.dump)
        self.settings = read_settings(dump / "config.yaml")
        for key, wanted in WANTED.items():
            if self.settings[key] != wanted:
                sys.exit(f"torch_time_to_accuracy.py: {key} is {self.settings[key]}, want {wanted}")
        self.device = torch.device(arguments.device)
        self.on_gpu = self.device.type == "cuda"
        self.files = sorted(dump.glob("batch_*.safetensors"))
        self.target = arguments.target or float(self.settings["train.target_accuracy"])
        self.seconds, self.output = arguments.seconds, pathlib.Path(arguments.output)
        self.log_every = self.number("train.log_every_steps")
        rows = evaluation_batches(pathlib.Path(self.settings["data.eval"]),
                                  self.number("eval.max_samples"), self.number("eval.batch_seqs"))
        longest = self.number("data.max_seq_tokens")
        padding = {"sequences": max(self.number(key)
                                    for key in ("train.global_batch_seqs", "eval.batch_seqs")),
                   "longest": longest}
        if arguments.shapes == "fixed":
            padding.update(largest(self.files, rows))
        self.padding = Padding(**padding)
        config = json.loads((dump / "config.json").read_text(encoding="utf-8"))
        self.optimizer = AdamW(join(load_file(dump / "model.safetensors")), self.settings, self.device,
                               torch.bfloat16 if self.on_gpu else torch.float32, self.on_gpu)
        model = Model(config, longest)
        self.sums = torch.compile(model.sums) if self.on_gpu else model.sums
        self.evaluation = [self.upload(self.padding.apply(batch)) for batch in rows]
        self.batch_sequences = self.number("train.global_batch_seqs")
        self.eval_every = -(-self.number("eval.every_samples") // self.batch_sequences)
        if not self.files or not self.eval_every:
            sys.exit(f"torch_time_to_accuracy.py: {dump}: no batches, or eval.every_samples is 0")

    def number(self, key):
        return int(float(self.settings[key]))

    def upload(self, batch):
        """To the device. Sizes that vary are compiled once, for all."""
        for name, tensor in batch["tensors"].items():
            batch["tensors"][name] = tensor.to(self.device, non_blocking=True)
            if self.on_gpu and self.padding.tokens == 0 and name != "starts":
                torch._dynamo.maybe_mark_dynamic(batch["tensors"][name], 0)
        return batch

    def batches(self, files):
        return map(self.upload, prefetched(files, self.padding, self.on_gpu))

    def step(self, batch, rate=None):
        loss, _ = self.sums(self.optimizer.leaves, batch["tensors"], True)
        loss = loss / batch["count"]
        loss.backward()
        return loss.detach(), *self.optimizer.step(rate)

    @torch.no_grad()
    def evaluate(self):
        """Accuracy and loss of the evaluation set."""
        sums = [self.sums(self.optimizer.leaves, batch["tensors"], False) for batch in self.evaluation]
        count = sum(batch["count"] for batch in self.evaluation)
        loss, correct = (sum(entry[i].double() for entry in sums).item() for i in (0, 1))
        return correct / count, loss / count

    def warm_up(self):
        """Compiles what training needs, and leaves the weights as they are."""
        for batch in self.batches(self.files[:WARM_UP_BATCHES]):
            self.step(batch, rate=0.0)
        self.evaluate()
        self.optimizer.start_over()
        if self.on_gpu:
            torch.cuda.synchronize()

    def run(self, log):
        """Until the target, or the end of seconds or batches; returns what is printed."""
        begin, evaluations, of_evaluations = time.monotonic(), [], 0.0
        logged, tokens = (begin, 0, 0), 0
        step = 0

        def write(record):
            log.write(json.dumps(record) + "\n")
            log.flush()

        for step, batch in enumerate(self.batches(self.files), 1):
            loss, norm, rate = self.step(batch)
            tokens += batch["tokens"]
            samples = step * self.batch_sequences
            if step % self.log_every == 0:
                value = loss.item()
                now = time.monotonic()
                seconds = now - logged[0] - (of_evaluations - logged[2])
                steps = step - logged[1]
                write(step_record(step, samples, seconds / steps, loss=value, mlm_loss=value,
                                  learning_rate=rate, gradient_norm=norm.item(),
                                  seqs_per_second=steps * self.batch_sequences / seconds,
                                  tokens_per_second=tokens / seconds))
                logged, tokens = (now, step, of_evaluations), 0
            if step % self.eval_every == 0:
                if self.on_gpu:
                    torch.cuda.synchronize()  # what an evaluation costs, apart from the steps before
                start = time.monotonic()
                accuracy, loss_there = self.evaluate()
                now = time.monotonic()
                of_evaluations += now - start
                evaluations.append({"samples": samples, "seconds": round(now - begin, 3),
                                    "accuracy": accuracy})
                write({"kind": "eval", "time_ms": int(time.time() * 1e3), "step": step,
                       "samples": samples, "mlm_accuracy": accuracy, "mlm_loss": loss_there,
                       "nsp_accuracy": None, "seconds": now - start,
                       "seqs_per_second_since_last": None})
                print(f"{now - begin:7.1f} s  {samples:9} samples  accuracy {accuracy:.4f}", flush=True)
                if accuracy >= self.target > 0:
                    break
            if self.seconds and time.monotonic() - begin > self.seconds:
                break
        seconds = time.monotonic() - begin
        accuracy = evaluations[-1]["accuracy"] if evaluations else 0.0
        return {"reached": accuracy >= self.target > 0, "target": self.target, "accuracy": accuracy,
                "seconds": round(seconds, 3), "seconds_of_evaluations": round(of_evaluations, 3),
                "samples": step * self.batch_sequences, "steps": step,
                "seqs_per_second": step * self.batch_sequences / (seconds - of_evaluations),
                "evaluations": evaluations}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("dump", help="folder that `bertha data dump-batches --weights` wrote")
    parser.add_argument("--output", required=True, help="folder for metrics.jsonl and result.json")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shapes", choices=("dynamic", "fixed"), default="dynamic")
    parser.add_argument("--seconds", type=float, default=0, help="of training at most")
    parser.add_argument("--target", type=float, help="accuracy (default: train.target_accuracy)")
    arguments = parser.parse_args()
    begin = time.monotonic()
    training = Training(arguments)
    read = time.monotonic()
    training.warm_up()
    warm = time.monotonic()
    print(f"read in {read - begin:.1f} s, compiled and warm in {warm - read:.1f} s", flush=True)
    training.output.mkdir(parents=True, exist_ok=True)
    with open(training.output / "metrics.jsonl", "w", encoding="utf-8") as log:
        result = training.run(log)
    name = torch.cuda.get_device_name() if training.on_gpu else "cpu"
    result = {"program": f"PyTorch {torch.__version__}", "device": name, "shapes": arguments.shapes,
              "seconds_of_compilation": round(warm - read, 3), **result}
    text = json.dumps(result, indent=1)
    (training.output / "result.json").write_text(text + "\n", encoding="utf-8")
    print(text)
    sys.exit(0 if result["reached"] else 3)


if __name__ == "__main__":
    main()
