#!/usr/bin/env python3
"""Collects on a machine with GPUs what a machine without them cannot show, in one command.

    python3 tests/comparisons/gpu_evidence.py --output evidence                  # everything
    python3 tests/comparisons/gpu_evidence.py --output evidence --stages resume,fp8
    python3 tests/comparisons/gpu_evidence.py --output try --backend cpu --steps 20   # the logic, anywhere

Stages, in order; each can be chosen alone and makes what it needs:

  build        configure and build the preset
  tests        ctest -L cuda; and with GPUs for ranks the end-to-end tests of failures: no GPU, weights
               that overflow, a killed rank
  kernels      bench kernels: every operation against the CPU backend, in each precision
  curves       the same training on the CPU and on the device in each precision, and by portable kernels
  torch        the same in PyTorch, from dumped batches and weights (needs torch and safetensors)
  resume       two identical runs and one that was stopped in the middle end in the same bytes
  to_cpu       the device's checkpoint continued on the CPU backend
  fp8          its curve beside fp32's, exact resume, all ranks, going on in bf16 and on the CPU
  too_large    a model that does not fit ends with exit code 6
  ranks        the same global batches on 1, 2, 4, 8 devices, as many as there are
  ranks_checkpoint  a checkpoint of all devices continued on 2 devices and on the CPU
  nodes        the devices as two machines, in both groups of ranks, and their checkpoints continued

With --backend cpu the "device" is the CPU backend in fp32 and "devices" are ranks (--devices).
Ends with a table (also OUTPUT/summary.json), code 1 when a stage failed; OUTPUT/logs has all output.
"""
import argparse
import filecmp
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from logged_command import environment_without, launcher, start_logged, visible_gpus

PEERS = pathlib.Path(__file__).resolve().parent
SOURCE = PEERS.parents[1]
# Seconds; a stage that takes longer has failed. --limit STAGE=SECONDS changes one.
LIMITS = {"build": 1800, "tests": 1800, "kernels": 1200, "curves": 900, "torch": 900,
          "resume": 600, "to_cpu": 600, "fp8": 900, "too_large": 300, "ranks": 1200, "ranks_checkpoint": 900, "nodes": 900}
LAUNCHERS = ("OMPI_", "PMI", "SLURM_", "WORLD_SIZE")


class Failed(Exception):
    """What went wrong, in a sentence."""


class OutOfTime(Failed):
    """The stage's limit has passed."""


class Evidence:
    def __init__(self, arguments):
        self.arguments = arguments
        self.on_gpu = arguments.backend == "cuda"
        self.build_folder = SOURCE / "build/release"
        self.program = pathlib.Path(arguments.bertha or self.build_folder / "bertha").resolve()
        self.output = pathlib.Path(arguments.output).resolve()
        self.logs = self.output / "logs"
        self.steps = arguments.steps
        self.middle = self.steps // 2
        self.devices = arguments.devices or (len(visible_gpus()) if self.on_gpu else 2)
        self.deadline = 0.0
        self.number = 0
        self.done = {}  # runs and data of this call, by name

    def precisions(self):
        return ("fp32", "bf16", "fp16") if self.on_gpu else ("fp32",)

    # --- commands ---

    def command(self, name, words, code=0, extra=None):
        """Runs to the end within the stage's time; returns what it printed. Failed otherwise, or when
        the exit code is not `code`."""
        self.number += 1
        log = self.logs / f"{self.number:03d}_{name}.log"
        environment = environment_without(
            LAUNCHERS, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
            OMPI_MCA_hwloc_base_binding_policy="none", **(extra or {}))
        process = start_logged(words, log, SOURCE, environment)
        try:
            found = process.wait(timeout=max(1.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise OutOfTime(f"{name} ran out of the stage's time, see {log}") from None
        if found != code:
            raise Failed(f"{name} ended with code {found}, want {code}, see {log}")
        return log.read_text(errors="replace")

    def bertha(self, name, words, ranks=0, **more):
        return self.command(name, launcher(ranks, [self.program, *words]), **more)

    # --- what stages share ---

    def data(self):
        """Vocabulary, shards and config.yaml; made once."""
        if "data" in self.done:
            return self.done["data"]
        folder = self.output / "data"
        folder.mkdir()
        texts = [pathlib.Path(text).resolve() for text in self.arguments.text or []]
        if not texts:
            texts = [folder / "wordnet.txt"]
            printed = self.command("wordnet", ["bash", "-c", "./launch/wordnet_text.sh > \"$0\"",
                                               texts[0]])
            if not texts[0].stat().st_size:
                raise Failed(f"no text: {printed}")
        self.command("split", ["./launch/split_text.sh", folder / "text", *texts])
        for size in (4096, 2048, 1024, 512, 320):  # little text has few wordpieces
            try:
                self.bertha("vocab", ["data", "vocab", "--size", size, "--output",
                                      folder / "vocab.txt", "--text", folder / "text" / "train"])
                break
            except OutOfTime:
                raise
            except Failed:
                continue
        else:
            raise Failed("the text has too few wordpieces for a vocabulary of 320")
        for part, text in (("train", folder / "text" / "train"),
                           ("eval", folder / "text" / "eval.txt")):
            self.bertha(f"prepare_{part}", [
                "data", "prepare", "--vocab", folder / "vocab.txt", "--max-seq-tokens", 64,
                "--max-masked-per-seq", 10, "--duplication", 1, "--output", folder / part,
                "--text", text])
        entries = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
        (folder / "config.yaml").write_text(f"""\
include: {SOURCE}/configs/models/tiny.yaml
model: {{vocab_size: {entries}, max_positions: 64, hidden_dropout: 0, attention_dropout: 0}}
data: {{train: {folder}/train, eval: {folder}/eval, vocab: {folder}/vocab.txt,
       max_seq_tokens: 64, max_masked_per_seq: 10}}
train: {{global_batch_seqs: 32, max_steps: {self.steps}, target_accuracy: 0, log_every_steps: 1,
        stop_after_skips: 3}}
optimizer: {{base_learning_rate: 8e-3, warmup_steps: {max(1, self.steps // 6)},
            schedule_steps: {self.steps}}}
eval: {{max_samples: 64, every_samples: 1000000, batch_seqs: 16}}
log: {{tensorboard: false}}
""", encoding="utf-8")
        self.done["data"] = folder
        return folder

    def config(self):
        return ["--config", self.data() / "config.yaml"]

    def device(self, precision):
        """Options of a run on the device."""
        options = ["--set", f"train.backend={self.arguments.backend}",
                   "--set", f"train.precision={precision}"]
        if precision == "fp16":  # a scale at which no update is skipped, so that curves line up
            options += ["--set", "optimizer.loss_scale=dynamic",
                        "--set", "optimizer.initial_loss_scale=1024"]
        return options

    @staticmethod
    def cpu():
        return ["--set", "train.backend=cpu", "--set", "train.precision=fp32"]

    def train(self, name, options, ranks=0):
        """A run folder; the same name is trained once."""
        if name not in self.done:
            folder = self.output / "runs" / name
            self.bertha(name, ["train", *self.config(), *options, "--output-dir", folder], ranks)
            self.done[name] = folder
        return self.done[name]

    def compare(self, name, *words):
        """The worst share of a bound; Failed when one is beyond it."""
        text = self.command(name, [sys.executable, "-B", PEERS / "compare_curves.py", *words])
        shares = [float(share) for share in re.findall(r" ([0-9.]+) % ", text)]
        print(text, end="", flush=True)
        return f"nearest its bound: {max(shares):.1f} %" if shares else "compared"

    @staticmethod
    def same_bytes(folders, step):
        """All files of a checkpoint but those that hold the time it took."""
        first, *others = (folder / "ckpt" / f"step_{step:08d}" for folder in folders)
        names = sorted(p.name for p in first.iterdir() if p.name not in ("state.json", "DONE"))
        if len([name for name in names if name.endswith(".safetensors")]) < 2:
            raise Failed(f"{first} lacks weights or optimizer: {names}")
        for other in others:
            found = sorted(p.name for p in other.iterdir() if p.name not in ("state.json", "DONE"))
            if found != names:
                raise Failed(f"{other} has {found}, want {names}")
            for name in names:
                if not filecmp.cmp(first / name, other / name, shallow=False):
                    raise Failed(f"{other / name} differs from {first / name}")
        return f"{len(names)} files of step {step} the same in {len(folders)} runs"

    # --- stages: return what they saw, or raise Failed ---

    def build(self):
        self.command("configure", ["cmake", "--preset", "release"])
        self.command("build", ["cmake", "--build", self.build_folder, "--parallel", os.cpu_count()])
        return str(self.build_folder)

    def tests(self):
        on_gpus = {"BERTHA_TEST_BACKEND": "cuda"}
        chosen = [(["-L", "cuda"], {}),
                  (["-R", "^e2e_(bad_command|numeric_failure|lost_rank)_test$"], on_gpus)]
        said = []
        for words, extra in chosen if self.on_gpu else [(["-R", "^(op_bench|compare_curves)_test$"], {})]:
            text = self.command("ctest", ["ctest", "--test-dir", self.build_folder, *words,
                                          "--output-on-failure", "--no-tests=error"], extra=extra)
            said += re.findall(r"^\d+% tests passed.*$", text, re.M)[-1:]
        return "; ".join(said)

    def kernels(self):
        shapes = ([["--repeats", 20]] if self.on_gpu else
                  [[*self.config(), "--tokens", 512, "--repeats", 2]])
        count = 0
        for precision in self.precisions():
            for shape in shapes:
                file = self.output / f"kernels_{precision}.json"
                self.bertha(f"kernels_{precision}", [
                    "bench", "kernels", *shape, "--dtype", precision, "--json", file,
                    "--set", f"train.backend={self.arguments.backend}"])
                count += len(json.loads(file.read_text())["operations"])
        return f"{count} operations agree with the CPU backend"

    def curves(self):
        words = [self.train("cpu_fp32", self.cpu())]
        portable = [("portable", "bf16")] if self.on_gpu else []
        for name, precision in [(p, p) for p in self.precisions()] + portable:
            kernels = ["--set", "cuda.kernels=portable"] if name == "portable" else []
            run = self.train(f"device_{name}", [*self.device(precision), *kernels])
            words.append(f"{run}:{precision}")
        return self.compare("curves", *words)

    def torch(self):
        dump = self.output / "dump"
        self.bertha("dump_batches", ["data", "dump-batches", *self.config(), "--steps", self.steps,
                                     "--weights", "--output", dump])
        run = self.output / "runs" / "torch_fp32"
        more = [] if self.on_gpu else ["--device", "cpu"]
        self.command("torch_curve", [self.arguments.torch_python, "-B", PEERS / "torch_curve.py",
                                     dump, "--output", run, *more])
        cpu = self.train("cpu_fp32", self.cpu())
        device = self.train("device_fp32", self.device("fp32"))
        return self.compare("torch", run, cpu, device)

    def resume(self):
        """With dropout, in the device's own precision."""
        options = ["--set", f"train.backend={self.arguments.backend}",
                   "--set", "model.hidden_dropout=0.1", "--set", "model.attention_dropout=0.1",
                   "--set", "checkpoint.keep=9"]
        runs = [self.train(name, options) for name in ("whole", "whole_again")]
        stopped = self.output / "runs" / "stopped"
        for last in (self.middle, self.steps):
            self.bertha(f"stopped_{last}", ["train", *self.config(), *options, "--set",
                                            f"train.max_steps={last}", "--output-dir", stopped])
        runs.append(stopped)
        said = self.same_bytes(runs, self.steps)
        self.compare("resume", runs[0], f"{runs[1]}:same", f"{runs[2]}:same")
        return said

    def half_way(self, name, options, ranks=0):
        """A whole run, and its checkpoint of the middle."""
        run = self.train(name, [*options, "--set", f"checkpoint.every_steps={self.middle}",
                                "--set", "checkpoint.keep=9"], ranks)
        return run, run / "ckpt" / f"step_{self.middle:08d}"

    def go_on(self, name, checkpoint, options, ranks=0):
        return self.train(name, [*options, "--set", f"checkpoint.resume={checkpoint}"], ranks)

    def to_cpu(self):
        precision = self.precisions()[1 % len(self.precisions())]
        run, checkpoint = self.half_way("half_way", self.device(precision))
        continued = self.go_on("half_way_on_cpu", checkpoint, self.cpu())
        return self.compare("to_cpu", run, f"{continued}:{precision}",
                            "--from-step", self.middle + 1)

    def fp8(self):
        run, middle = self.half_way("fp8", self.device("fp8"))
        stopped = self.output / "runs" / "fp8_stopped"
        for last in (self.middle, self.steps):
            self.bertha(f"fp8_stopped_{last}", [
                "train", *self.config(), *self.device("fp8"), "--set", f"train.max_steps={last}",
                "--output-dir", stopped])
        said = self.same_bytes([run, stopped], self.steps)
        ranks = self.rank_counts()[-1]
        spread = self.train(f"ranks{ranks}_fp8", self.device("fp8"), ranks)
        cpu = self.train("cpu_fp32", self.cpu())
        near = self.compare("fp8_curves", cpu, f"{run}:fp8", f"{spread}:fp8")
        io = self.precisions()[1 % len(self.precisions())]
        plain = self.go_on("fp8_in_io", middle, self.device(io))
        on_cpu = self.go_on("fp8_on_cpu", middle, ["--set", "train.backend=cpu",
                                                   "--set", "train.precision=fp8"])
        self.compare("fp8_continued", run, f"{plain}:fp8", f"{on_cpu}:fp8",
                     "--from-step", self.middle + 1)
        return f"{said}, {ranks} rank(s), {near}"

    def too_large(self):
        text = self.bertha("too_large", [
            "train", *self.config(), "--set", f"train.backend={self.arguments.backend}",
            "--set", "model.layers=48", "--set", "model.hidden=32768", "--set", "model.heads=512",
            "--set", "model.feed_forward=131072", "--output-dir", self.output / "runs" / "large"],
            code=6)
        errors = [line for line in text.splitlines() if "error: " in line]
        if len(errors) != 1:
            raise Failed(f"{len(errors)} messages, want one: {errors}")
        return errors[0]

    def rank_counts(self):
        return [count for count in (1, 2, 4, 8) if count <= self.devices]

    def ranks(self):
        said = []
        for precision in ("fp32", "bf16", "fp8") if self.on_gpu else ("fp32", "fp8"):
            runs = [self.train(f"ranks{count}_{precision}", self.device(precision), count)
                    for count in self.rank_counts()]
            said.append(precision + " " + self.compare(
                f"ranks_{precision}", runs[0], *(f"{run}:{precision}" for run in runs[1:])))
        return f"{self.rank_counts()}: " + "; ".join(said)

    def ranks_checkpoint(self):
        most = self.rank_counts()[-1]
        run, checkpoint = self.half_way("half_way_of_all", self.device("fp32"), most)
        on_two = self.go_on("all_on_two", checkpoint, self.device("fp32"), 2)
        on_cpu = self.go_on("all_on_cpu", checkpoint, self.cpu())
        return f"of {most}: " + self.compare("ranks_checkpoint", run, on_two, on_cpu,
                                             "--from-step", self.middle + 1)

    def nodes(self):
        """Between the two, NCCL sends through sockets: slow, and the way that several machines take."""
        halves, runs, resumed = [self.devices // 2] * 2, [], []
        whole = self.train("one_machine", self.device("fp32"), sum(halves))
        for group, other in (("node", "world"), ("world", "node")):
            options = [*self.device("fp32"), "--set", f"optimizer.shard_group={group}"]
            run, middle = self.half_way(f"two_nodes_{group}", options, halves)
            options[-1] = f"optimizer.shard_group={other}"
            runs.append(f"{run}:fp32")
            resumed += [f"{self.go_on(f'{group}_by_{other}', middle, options, halves)}:fp32",
                        f"{self.go_on(f'{group}_on_one', middle, self.device('fp32'))}:fp32"]
        return (f"nodes of {halves} ranks: {self.compare('nodes', whole, *runs)}; resumed: " +
                self.compare("resumed", whole, *resumed, "--from-step", self.middle + 1))

    # --- all of it ---

    def why_not(self, stage):
        """Why a stage is not for this machine."""
        if stage in ("ranks", "ranks_checkpoint", "nodes") and self.devices < 2:
            return "needs two devices"
        if stage == "build" and self.arguments.bertha:
            return "--bertha names the program"
        return ""

    def run(self, stages, limits):
        rows = []
        for stage in stages:
            print(f"== {stage}", flush=True)
            begin = time.monotonic()
            self.deadline = begin + limits[stage]
            said = self.why_not(stage)
            result = "not run" if said else "passed"
            if not said:
                try:
                    said = getattr(self, stage)()
                except Failed as failure:
                    result, said = "FAILED", str(failure)
                except Exception as error:  # a stage's own mistake does not hide the others
                    result, said = "FAILED", f"{type(error).__name__}: {error}"
            print(f"{result}: {said}", flush=True)
            rows.append({"stage": stage, "result": result,
                         "seconds": round(time.monotonic() - begin, 1), "said": said})
        return rows


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0],
                                     epilog="Stages: " + ", ".join(LIMITS))
    parser.add_argument("--output", required=True, help="new folder for everything")
    parser.add_argument("--stages", help="only these, separated by commas")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--devices", type=int, default=0, help="GPUs, or ranks (default: visible)")
    parser.add_argument("--steps", type=int, default=300, help="of each run (default 300)")
    parser.add_argument("--text", nargs="+", help="files to train on (default: WordNet's glosses)")
    parser.add_argument("--bertha", help="program to use instead of building one")
    parser.add_argument("--torch-python", default=sys.executable, help="has torch, safetensors")
    parser.add_argument("--limit", action="append", default=[], metavar="STAGE=SECONDS")
    arguments = parser.parse_args()
    stages = arguments.stages.split(",") if arguments.stages else list(LIMITS)
    limits = dict(LIMITS)
    for word in arguments.limit:
        stage, _, seconds = word.partition("=")
        if stage not in LIMITS or not seconds.isdigit():
            parser.error(f"--limit {word}: want STAGE=SECONDS")
        limits[stage] = int(seconds)
    for stage in stages:
        if stage not in LIMITS:
            parser.error(f"no stage is named {stage}; want some of {', '.join(LIMITS)}")
    if arguments.steps < 4:
        parser.error("--steps: want at least 4")
    return arguments, stages, limits


def main():
    arguments, stages, limits = parse()
    evidence = Evidence(arguments)
    if evidence.output.exists() and any(evidence.output.iterdir()):
        sys.exit(f"gpu_evidence.py: {evidence.output} is not empty; name a new folder")
    if evidence.on_gpu and evidence.devices == 0:
        sys.exit("gpu_evidence.py: no GPU is visible; --backend cpu tries the logic without one")
    if shutil.which("mpirun") is None:
        sys.exit("gpu_evidence.py: mpirun is missing; run launch/install_deps.sh")
    evidence.logs.mkdir(parents=True)
    (evidence.output / "runs").mkdir()
    rows = evidence.run(stages, limits)
    (evidence.output / "summary.json").write_text(json.dumps(
        {"backend": arguments.backend, "devices": evidence.devices, "steps": arguments.steps,
         "stages": rows}, indent=2) + "\n", encoding="utf-8")
    print(f"\n{'stage':17} {'result':8} {'seconds':>8}  what was seen")
    for row in rows:
        print(f"{row['stage']:17} {row['result']:8} {row['seconds']:8.1f}  {row['said']}")
    failed = [row["stage"] for row in rows if row["result"] == "FAILED"]
    print(f"{len(rows) - len(failed)} of {len(rows)} stages without a failure; {evidence.output}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
