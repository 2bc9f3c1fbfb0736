#!/usr/bin/env python3
"""Rehearses a submission at full size on this machine's GPUs, on shards made from text: what init, an
evaluation and training cost, un-packed and packed, and whether the logs comply but for the target.

    python3 tests/comparisons/submission_rehearsal.py --output rehearsal
    python3 tests/comparisons/submission_rehearsal.py --output rehearsal --ranks 2 --eval-every-samples 9000 \\
        --text text/*.txt --vocab vocab.txt                            # two minutes on two H200s

The recipe is configs/mlperf_closed_8gpu_768.yaml: BERT-large, 512 tokens, bf16. On N ranks instead
of 8 each keeps its 96 sequences: the global batch is 96 N, the learning rate goes with its square
root and the steps of the schedule with its inverse. `--set` has the last word on every key.

The text (a sentence per line; WordNet's glosses if none is given) is cut into documents whose lengths
vary as Wikipedia's do, so that samples have 256 of 512 tokens on average and a quarter of them all 512.
The training is launch/run_and_time.sh from random weights; each run ends with its third evaluation.
By the rules an evaluation comes every 150,000 samples: four minutes of training per run on two
H200s. --eval-every-samples makes it shorter, and the check of its log warns of that.

Ends with a table (also OUTPUT/summary.json) and exit code 1 when a run or its log is not as it
should be. bertha-tools checks the logs where Python has mlperf-logging. Output of every command:
OUTPUT/logs. `--backend cpu` with a small model tries the logic anywhere.
"""
import argparse
import importlib.util
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from logged_command import environment_without, start_logged, visible_gpus

SOURCE = pathlib.Path(__file__).resolve().parents[2]
RULE_SETS = ("4.0.0", "5.0.0")
RECIPE_RANKS = 8
LAUNCHERS = ("OMPI_COMM_", "PMI", "SLURM_", "WORLD_SIZE")
# Words of a document: the log-normal whose samples have the mean and the share of full length of
# Wikipedia's (255.8 tokens and 23.4 %; here 258.6 and 23.9 %).
MEAN_DOCUMENT_WORDS, SPREAD_OF_DOCUMENT_WORDS = 350, 1.5
TEXT_PARTS = 16
# The text that is used; a byte of English is about a quarter of a token.
TRAIN_TEXT_BYTES, EVAL_TEXT_BYTES = 24_000_000, 3_000_000
EVAL_SEQS = 10_000
TARGET_MISSED, NOT_COMPLIANT = 3, 8  # exit codes of the program


class Failed(Exception):
    """What went wrong, in a sentence."""


def mllog(path):
    """The records of a benchmark log."""
    token = ":::MLLOG "
    return [json.loads(line.split(token, 1)[1]) for line in path.read_text().splitlines()
            if token in line]


def measured(path):
    """What one log says about time. Rates are in sequences per second."""
    begins, evaluations = {}, []
    trained_from, trained = None, []
    samples = last_samples = 0
    for record in mllog(path):
        key, seconds = record["key"], record["time_ms"] / 1000
        begins.setdefault(key, seconds)
        if key == "eval_start":
            last_samples, samples = samples, record["metadata"]["epoch_num"]
            if trained_from is not None:
                trained.append((samples - last_samples) / (seconds - trained_from))
            begins["this eval"] = seconds
        elif key == "eval_stop":
            trained_from = seconds
            evaluations.append(seconds - begins["this eval"])
        elif key == "global_batch_size":
            batch_seqs = record["value"]
    if len(evaluations) < 2 or "run_stop" not in begins:
        raise Failed(f"{path} has {len(evaluations)} evaluations and no measure of training")
    return {"global_batch_seqs": batch_seqs,
            "evaluations": len(evaluations),
            "samples": samples,
            "init_s": begins["run_start"] - begins["init_start"],
            "first_eval_s": evaluations[0],
            "eval_s": sum(evaluations[1:]) / len(evaluations[1:]),
            "train_seqs_per_s": sum(trained) / len(trained),
            "run_s": begins["run_stop"] - begins["run_start"],
            "run_seqs_per_s": samples / (begins["run_stop"] - begins["run_start"])}


def end_session(process):
    """Ends a command and all that it started: the launch scripts give mpirun a group of its own."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == process.pid:
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, IndexError, ValueError):
            continue  # no process, or one that has ended
    process.wait()


class Rehearsal:
    def __init__(self, arguments):
        self.arguments = arguments
        self.output = pathlib.Path(arguments.output).resolve()
        self.logs = self.output / "logs"
        self.program = self.find_program()
        self.settings = [word for pair in arguments.set for word in ("--set", pair)]
        self.number = 0
        self.max_seq_tokens = 0
        self.tokens_per_seq = {}  # by layout

    def find_program(self):
        chosen = pathlib.Path(self.arguments.bertha or SOURCE / "build/release/bertha")
        if not chosen.exists():
            sys.exit(f"submission_rehearsal.py: no program {chosen}; build it, or name one with "
                     "--bertha")
        return chosen.resolve()

    # --- commands ---

    def command(self, name, words, codes=(0,), extra=None):
        """Runs to the end and returns what it printed; Failed with another exit code."""
        self.number += 1
        log = self.logs / f"{self.number:02d}_{name}.log"
        environment = environment_without(LAUNCHERS, BERTHA=str(self.program), **(extra or {}))
        process = start_logged(words, log, SOURCE, environment)
        try:
            found = process.wait(timeout=self.arguments.limit)
        except BaseException:
            end_session(process)
            raise
        text = log.read_text(errors="replace").split("\n\n", 1)[1]
        if found not in codes:
            tail = "\n".join(text.splitlines()[-8:])
            raise Failed(f"{name} ended with code {found}, want {codes}, see {log}:\n{tail}")
        return text

    def bertha(self, name, *words, codes=(0,)):
        return self.command(name, [self.program, *words], codes)

    # --- configuration ---

    def recipe(self):
        """Values of the recipe with --set, by key."""
        text = self.bertha("recipe", "config", "show", "--plain", "--config", self.arguments.config,
                           *self.settings)
        values, section = {}, ""
        for line in text.splitlines():
            if match := re.fullmatch(r"(\w+):", line):
                section = match[1]
            elif match := re.fullmatch(r"  (\w+): (.*)", line):
                values[f"{section}.{match[1]}"] = match[2].strip('"')
        return values

    def scaled(self, recipe):
        """What another number of ranks changes; --set wins."""
        share = self.arguments.ranks / RECIPE_RANKS
        batch = round(int(recipe["train.global_batch_seqs"]) * share)
        steps = int(recipe["optimizer.schedule_steps"]) or int(recipe["train.max_steps"])
        values = {
            "train.global_batch_seqs": batch,
            "optimizer.base_learning_rate":
                float(recipe["optimizer.base_learning_rate"]) * math.sqrt(share),
            "optimizer.schedule_steps": round(steps / share)}
        given = {pair.split("=", 1)[0] for pair in self.arguments.set}
        return {key: value for key, value in values.items() if key not in given}

    def write_config(self, layout, data, values):
        interval = int(values["eval.every_samples"])
        batch = int(values["train.global_batch_seqs"])
        steps = math.ceil(self.arguments.evaluations * interval / batch)
        values = {**values, "train.max_steps": steps, "data.train": data / layout,
                  "data.eval": data / "eval", "data.vocab": data / "vocab.txt",
                  "train.backend": self.arguments.backend, "checkpoint.at_end": "false",
                  "log.tensorboard": "false"}
        sections = {}
        for key, value in values.items():
            section, name = key.split(".")
            sections.setdefault(section, []).append(f"  {name}: {value}\n")
        path = self.output / f"{layout}.yaml"
        path.write_text(f"include: {pathlib.Path(self.arguments.config).resolve()}\n" + "".join(
            f"{section}:\n{''.join(lines)}" for section, lines in sections.items()))
        return path

    # --- data ---

    def sentences(self):
        paths = self.arguments.text
        if not paths:
            wordnet = self.output / "wordnet.txt"
            self.command("wordnet", ["bash", "-c", "./launch/wordnet_text.sh > \"$0\"", wordnet])
            paths = [wordnet]
        left = TRAIN_TEXT_BYTES + EVAL_TEXT_BYTES
        for path in paths:
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    left -= len(line)
                    if left < 0:
                        return
                    if line := line.strip():
                        yield line

    def write_text(self, folder):
        """TEXT_PARTS parts to train on and one to evaluate on; returns the bytes of the last."""
        (folder / "train").mkdir(parents=True)
        draw = random.Random(7)
        # Of a log-normal with this mean.
        middle = math.log(MEAN_DOCUMENT_WORDS) - SPREAD_OF_DOCUMENT_WORDS**2 / 2
        parts = [open(folder / "train" / f"part-{i:02d}.txt", "w", encoding="utf-8")
                 for i in range(TEXT_PARTS)]
        held_out = open(folder / "eval.txt", "w", encoding="utf-8")
        every = 1 + TRAIN_TEXT_BYTES // EVAL_TEXT_BYTES
        document, words, wanted, count = [], 0, draw.lognormvariate(middle, SPREAD_OF_DOCUMENT_WORDS), 0
        for sentence in self.sentences():
            document.append(sentence)
            words += sentence.count(" ") + 1
            if words < wanted:
                continue
            file = held_out if count % every == every - 1 else parts[count % TEXT_PARTS]
            file.write("\n".join(document) + "\n\n")
            document, words, count = [], 0, count + 1
            wanted = draw.lognormvariate(middle, SPREAD_OF_DOCUMENT_WORDS)
        for file in (*parts, held_out):
            file.close()
        if count < TEXT_PARTS * every:
            raise Failed(f"the text makes {count} documents, want {TEXT_PARTS * every} or more; "
                         "give more with --text")
        return (folder / "eval.txt").stat().st_size

    def make_data(self, recipe):
        folder = self.output / "data"
        eval_bytes = self.write_text(folder / "text")
        vocab = folder / "vocab.txt"
        if self.arguments.vocab:
            shutil.copyfile(self.arguments.vocab, vocab)
        else:
            self.bertha("vocab", "data", "vocab", "--size", recipe["model.vocab_size"], "--output",
                        vocab, "--text", folder / "text" / "train")
        shape = ["--vocab", vocab, "--max-seq-tokens", recipe["data.max_seq_tokens"],
                 "--max-masked-per-seq", recipe["data.max_masked_per_seq"]]
        self.bertha("prepare_train", "data", "prepare", *shape, "--duplication", 1, "--output",
                    folder / "unpacked", "--text", folder / "text" / "train")
        # Each duplication of a sample's worth of bytes is a sample; a third more than are needed.
        eval_seqs = min(int(recipe["eval.max_samples"]) or EVAL_SEQS, EVAL_SEQS)
        duplication = math.ceil(eval_seqs * 4.5 * int(recipe["data.max_seq_tokens"]) / 2 * 1.33
                                / eval_bytes)
        self.bertha("prepare_eval", "data", "prepare", *shape, "--duplication", duplication,
                    "--eval-samples", eval_seqs, "--output", folder / "eval", "--text",
                    folder / "text" / "eval.txt")
        # An epoch of shards takes more than one window; as many as there are parts of text.
        self.bertha("pack", "data", "pack", folder / "unpacked", "--output", folder / "packed")
        for layout in ("unpacked", "packed"):
            text = self.bertha(f"stats_{layout}", "data", "stats", folder / layout,
                               "--max-seq-tokens", recipe["data.max_seq_tokens"])
            self.tokens_per_seq[layout] = float(re.search(r"([\d.]+) per sample", text)[1])
        return folder

    # --- runs ---

    def run(self, layout, config):
        folder = self.output / f"runs_{layout}"
        text = self.command(f"train_{layout}", [
            SOURCE / "launch" / "run_and_time.sh", "--ranks", self.arguments.ranks, config,
            *self.settings], codes=(TARGET_MISSED,),
            extra={"NEXP": "1", "LOGDIR": str(folder), "SEED": "1"})
        log = folder / "run_0" / "mllog" / "result_0.txt"
        row = measured(log)
        row["tokens_per_seq"] = self.tokens_per_seq[layout]
        row["peak_memory"] = re.findall(r"peak memory of a rank's device: (.*)", text)[-1:]
        row["verdicts"] = self.verdicts(layout, log)
        if row["evaluations"] != self.arguments.evaluations:
            raise Failed(f"{log} has {row['evaluations']} evaluations, want "
                         f"{self.arguments.evaluations}")
        if not row["init_s"] < self.arguments.most_init_seconds:
            raise Failed(f"{layout}: init took {row['init_s']:.1f} s, want less than "
                         f"{self.arguments.most_init_seconds}")
        return row

    def verdicts(self, layout, log):
        """The target may be missed and the evaluations may come too often; nothing else."""
        if importlib.util.find_spec("mlperf_logging") is None:
            return ["not checked: this Python has no mlperf-logging"]
        said = []
        for rule_set in RULE_SETS:
            text = self.command(f"check_{layout}", [
                sys.executable, "-B", "-m", "bertha_tools.main", "check", log, "--ruleset", rule_set],
                codes=(NOT_COMPLIANT,), extra={"PYTHONPATH": str(SOURCE / "harness" / "tools")})
            lines = text.splitlines()
            errors = [line.split("error: ", 1)[1] for line in lines if ": error: " in line]
            warnings = [line.split("warning: ", 1)[1] for line in lines if ": warning: " in line]
            others = [e for e in errors if not e.startswith("Failed checks for eval_accuracy")]
            shorter = self.arguments.eval_every_samples > 0
            others += [w for w in warnings if not (shorter and " the rule is every " in w)]
            if len(errors) != 1 or others:
                raise Failed(f"{log} has other faults than its target: {errors + warnings}")
            said += [f"rule set {rule_set}: {line}" for line in errors + warnings]
        return said

    def rehearse(self):
        recipe = self.recipe()
        values = self.scaled(recipe)
        batch = int(values.get("train.global_batch_seqs", recipe["train.global_batch_seqs"]))
        interval = self.arguments.eval_every_samples
        if interval == 0:  # the benchmark's rule
            interval = int(0.05 * (230.23 * batch + 3_000_000) / 25_000) * 25_000
        begin = time.monotonic()
        data = self.make_data(recipe)
        print(f"data made in {time.monotonic() - begin:.1f} s, {self.tokens_per_seq['unpacked']:.1f} "
              "tokens per sequence", flush=True)
        rows = {}
        for layout in ("unpacked", "packed"):
            config = self.write_config(layout, data, {
                **values, "train.global_batch_seqs": batch, "eval.every_samples": interval})
            rows[layout] = self.run(layout, config)
            print_row(layout, rows[layout])
        return {"ranks": self.arguments.ranks, "backend": self.arguments.backend, "runs": rows}


def print_row(layout, row):
    memory = row["peak_memory"][0] if row["peak_memory"] else "?"
    print(f"{layout}: init {row['init_s']:.1f} s; evaluation {row['eval_s']:.2f} s (first "
          f"{row['first_eval_s']:.2f}); training {row['train_seqs_per_s']:.0f} sequences/s between "
          f"evaluations, {row['run_seqs_per_s']:.0f} over the run of {row['run_s']:.1f} s; peak "
          f"memory {memory}", flush=True)


def print_table(result):
    print(f"\n{result['ranks']} rank(s), {result['backend']}")
    print(f"{'':9} {'batch':>6} {'tokens':>7} {'init':>6} {'eval':>6} {'training':>9} {'run':>9}")
    print(f"{'':9} {'seqs':>6} {'per seq':>7} {'s':>6} {'s':>6} {'seqs/s':>9} {'seqs/s':>9}")
    for layout, row in result["runs"].items():
        print(f"{layout:9} {row['global_batch_seqs']:6} {row['tokens_per_seq']:7.1f} "
              f"{row['init_s']:6.1f} {row['eval_s']:6.2f} {row['train_seqs_per_s']:9.1f} "
              f"{row['run_seqs_per_s']:9.1f}")
    for layout, row in result["runs"].items():
        for verdict in row["verdicts"]:
            print(f"{layout}: {verdict}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, help="new folder for everything")
    parser.add_argument("--ranks", type=int, default=0, help="default: one per GPU")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--config", default=str(SOURCE / "configs/mlperf_closed_8gpu_768.yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="a key of the configuration; repeatable")
    parser.add_argument("--text", nargs="+", help="files, a sentence per line (default: WordNet)")
    parser.add_argument("--vocab", help="vocab.txt (default: made from the text)")
    parser.add_argument("--evaluations", type=int, default=3, help="of each run (default 3)")
    parser.add_argument("--eval-every-samples", type=int, default=0, metavar="N",
                        help="default: the benchmark's rule")
    parser.add_argument("--most-init-seconds", type=float, default=60, help="default 60")
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS",
                        help="of each command (default 3600)")
    parser.add_argument("--bertha", help="the program (default: the one in build/)")
    arguments = parser.parse_args()
    if arguments.ranks == 0:
        arguments.ranks = len(visible_gpus()) if arguments.backend == "cuda" else 1
    if arguments.ranks == 0:
        parser.error("no GPU is visible; --backend cpu with --set model.layers=2 and the like tries "
                     "the logic without one")
    if arguments.evaluations < 2:
        parser.error("--evaluations: want at least 2, training is measured between them")
    return arguments


def main():
    rehearsal = Rehearsal(parse())
    # As Ctrl-C: a command under way is ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("submission_rehearsal.py: stopped by SIGTERM"))
    if rehearsal.output.exists() and any(rehearsal.output.iterdir()):
        sys.exit(f"submission_rehearsal.py: {rehearsal.output} is not empty; name a new folder")
    rehearsal.logs.mkdir(parents=True)
    try:
        result = rehearsal.rehearse()
    except (Failed, subprocess.TimeoutExpired) as failure:
        sys.exit(f"submission_rehearsal.py: {failure}")
    (rehearsal.output / "summary.json").write_text(json.dumps(result, indent=2) + "\n")
    print_table(result)


if __name__ == "__main__":
    main()
