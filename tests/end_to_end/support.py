"""What the end-to-end tests share: runs of the program, a small text and data made from it.

usage of every test: NAME_test.py BERTHA MPIEXEC MALFORMED_SHARDS SCRATCH
"""

import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from small_data import make_text  # noqa: E402

BERTHA, MPIEXEC, MALFORMED_SHARDS, SCRATCH = sys.argv[1:5]
BACKEND = os.environ.get("BERTHA_TEST_BACKEND", "cpu")  # of the ranks that train
LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "launch"
# What started the tests may block signals; then an mpiexec below them would pass none on. It may ignore
# Ctrl-C, as a shell lets what it starts in the background; then no script below them could trap it.
signal.pthread_sigmask(signal.SIG_SETMASK, [])
signal.signal(signal.SIGINT, signal.default_int_handler)

# Every failure has to reach all ranks within this time.
MOST_FAILURE_SECONDS = 20.0
# Nothing here takes longer, sanitizers and a loaded machine included.
MOST_RUN_SECONDS = 240.0

# Tolerances, as in kernels/base/tests/tolerance.h: a loss of a small model carries 300 roundings of f32,
# a gradient 600; every update passes those of the steps before it on to the next loss.
ROUND_F32 = 2.0**-24
LOSS_F32 = 300 * ROUND_F32
GRADIENT_F32 = 600 * ROUND_F32

VOCAB_SIZE = 320
MAX_SEQ_TOKENS = 32
MAX_MASKED = 5

# For per_rank(): no file of the rank may get larger.
ON_A_SMALL_DISK = 'exec prlimit --fsize=50000 "$0" "$@"'


def environment(extra=None):
    """This environment without a launcher's traces."""
    launchers = ("OMPI_", "PMI", "SLURM_", "WORLD_SIZE")
    result = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
    if shutil.which("ssh") is None:  # or Open MPI refuses to start, on one machine too
        result["OMPI_MCA_plm_rsh_agent"] = ""
    result.update(
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMPI_MCA_hwloc_base_binding_policy="none",
        OMPI_MCA_mpi_yield_when_idle="1",
        OMPI_MCA_orte_execute_quiet="1",  # mpirun's -q, which that of Open MPI 5 does not know
        OMP_NUM_THREADS="1",
    )
    result.update(extra or {})
    return result


class Ended:
    """A process that has ended."""

    def __init__(self, code, out, err, seconds):
        self.code = code
        self.out = out
        self.err = err
        self.seconds = seconds

    def errors(self):
        """The messages for the user, on any stream."""
        lines = (self.out + "\n" + self.err).splitlines()
        return [line for line in lines if "error: " in line]

    def __str__(self):
        return f"exit code {self.code} after {self.seconds:.1f} s\n{self.out}\n{self.err}"


@functools.cache
def count_gpus():
    done = subprocess.run(["bash", "-c", '. "$0" && gpus_here', LAUNCH / "common.sh"],
                          stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


@functools.cache
def open_mpi_version():
    said = subprocess.run([MPIEXEC, "--version"], check=True, capture_output=True, text=True).stdout
    return int(re.search(r"\) (\d+)\.", said)[1])  # "mpiexec (OpenRTE) 4.1.4" before 5


def possible_ranks(ranks):
    """So many ranks, or as many as GPUs are there where ranks have one each."""
    return ranks if BACKEND == "cpu" or ranks == 0 else min(ranks, max(count_gpus(), 1))


def command(arguments, ranks, launcher=()):
    """Words that start the program: alone, on ranks, or with ranks as a list on pretended nodes of so
    many ranks each."""
    words = [BERTHA] + [str(a) for a in arguments]
    if ranks == 0:
        return words
    if isinstance(ranks, list):
        return per_rank([f"export NCCL_HOSTID=pretended{node}"
                         for node, there in enumerate(ranks) for _ in range(there)],
                        [*launcher, *words])
    return [MPIEXEC, "--oversubscribe", "-n", str(possible_ranks(ranks)), *launcher, *words]


def per_rank(scripts, words):
    """Words that start as many ranks as there are scripts, each of which runs in a shell before it
    becomes the program. Open MPI 5.0.7 crashes on what mpirun has for this, contexts `a : b`."""
    cases = " ".join(f"{rank}) {script} ;;" for rank, script in enumerate(scripts))
    return [MPIEXEC, "--oversubscribe", "-n", str(len(scripts)), "sh", "-c",
            f'case $OMPI_COMM_WORLD_RANK in {cases} esac; exec "$0" "$@"', *words]


def bertha(*arguments, ranks=0, extra=None, cwd=None, preexec_fn=None):
    """Runs the program to its end; ranks=0 starts it without a launcher."""
    return run(command(arguments, ranks), extra, cwd, preexec_fn)


def must(*arguments, **how):
    """The program as bertha() runs it, which has to succeed."""
    done = bertha(*arguments, **how)
    if done.code != 0:
        raise AssertionError(f"{arguments}: {done}")
    return done


def flip(path, where=0.5):
    """Flips a bit of the byte at this share of a file."""
    data = bytearray(path.read_bytes())
    data[int(where * (len(data) - 1))] ^= 1
    path.write_bytes(data)


def run(words, extra=None, cwd=None, preexec_fn=None):
    """Runs a whole command line to its end."""
    begin = time.monotonic()
    done = subprocess.run(
        words,
        env=environment(extra),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=MOST_RUN_SECONDS,
        preexec_fn=preexec_fn,
        check=False,
    )
    seconds = time.monotonic() - begin
    return Ended(done.returncode, done.stdout.decode("utf-8", "replace"),
                 done.stderr.decode("utf-8", "replace"), seconds)


def with_tools(folder):
    """An environment whose PATH has the bertha-tools of this checkout, run by the Python of the test."""
    folder.mkdir()
    words = [f"PYTHONPATH={LAUNCH.parent}/harness/tools", sys.executable, "-B", "-m", "bertha_tools.main"]
    program = folder / "bertha-tools"
    program.write_text(f'#!/bin/sh\nexec env {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


class Running:
    """A process in its own group, under way; to be used with `with`, which ends it in any case."""

    def __init__(self, *arguments, ranks=0, script=None, extra=None, cwd=None, preexec_fn=None):
        """Runs the program, or a `script` of launch/ that starts it."""
        words = command(arguments, ranks)
        if script is not None:
            words = [str(word) for word in (LAUNCH / script, *arguments)]
            extra = {**(extra or {}), "BERTHA": BERTHA}
        self.begin = time.monotonic()
        self.files = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]
        self.process = subprocess.Popen(
            words,
            env=environment(extra),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=self.files[0],
            stderr=self.files[1],
            start_new_session=True,
            preexec_fn=preexec_fn,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for file in self.files:
            file.close()

    def rank_processes(self):
        """Process ids of the program itself, below the launcher or alone."""
        wanted = os.path.realpath(BERTHA)
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if os.path.realpath(entry / "exe") != wanted:
                    continue
                # Ranks may be in a group of their own, but stay in the session or below mpiexec.
                if self.process.pid in ancestors(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:
                continue
        return sorted(found)

    def wait_for(self, condition, what, seconds=MOST_RUN_SECONDS):
        limit = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"ended before {what}: {self.wait()}")
            if time.monotonic() > limit:
                raise AssertionError(f"no {what} within {seconds} s")
            time.sleep(0.02)

    def wait_for_end(self, seconds):
        """Until the launcher and all ranks are gone."""
        limit = time.monotonic() + seconds
        while self.process.poll() is None or self.rank_processes():
            if time.monotonic() > limit:
                raise AssertionError(f"still there after {seconds} s")
            time.sleep(0.02)

    def wait(self):
        self.process.wait(timeout=MOST_RUN_SECONDS)
        texts = []
        for file in self.files:
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
        return Ended(self.process.returncode, *texts, time.monotonic() - self.begin)


def monitoring(folder):
    """The environment in which Open MPI counts messages into files of the folder."""
    settings = {"osc": "^monitoring", "pml_monitoring_enable": 2, "pml_monitoring_enable_output": 3,
                "pml_monitoring_filename": folder / "messages"}
    return {f"OMPI_MCA_{name}": str(value) for name, value in settings.items()}


class Messages:
    """What a rank has sent to another one."""

    def __init__(self, kind, to, size, count):
        self.is_own = kind == "E"  # else inside MPI's own collectives
        self.to = int(to)
        self.bytes = int(size.split()[0])
        self.count = int(count.split()[0])


def messages(folder, rank):
    """All Messages of a rank that ran with monitoring(folder)."""
    found = []
    for line in (folder / f"messages.{rank}.prof").read_text().splitlines():
        kind, *fields = line.split("\t")
        if kind in ("E", "I"):
            found.append(Messages(kind, *fields[1:4]))
    return found


def parent(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def ancestors(pid):
    """The process itself and all above it."""
    chain = set()
    while pid > 1 and pid not in chain:
        chain.add(pid)
        try:
            pid = parent(pid)
        except OSError:
            break
    return chain


def rank_of(process):
    """The rank that a process is, as mpirun told it."""
    words = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next(int(w.split(b"=")[1]) for w in words if w.startswith(b"OMPI_COMM_WORLD_RANK="))


class Data:
    """Vocabulary, training shards and evaluation set of one test program, made by the program."""

    def __init__(self, folder, eval_samples=37):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.text = self.folder / "text.txt"
        self.text.write_text(make_text(1, 120))
        self.eval_text = self.folder / "eval.txt"
        self.eval_text.write_text(make_text(2, 30))
        self.vocab = self.folder / "vocab.txt"
        self.train = self.folder / "train"
        self.eval = self.folder / "eval"
        must("data", "vocab", "--text", self.text, "--size", VOCAB_SIZE, "--output", self.vocab)
        self.prepare(self.text, self.train, "--duplication", 2, "--shards", 3)
        self.prepare(self.eval_text, self.eval, "--duplication", 1,
                     "--eval-samples", eval_samples)

    def prepare(self, text, output, *more):
        must("data", "prepare", "--text", text, "--vocab", self.vocab, "--output", output,
             "--max-seq-tokens", MAX_SEQ_TOKENS, "--max-masked-per-seq", MAX_MASKED, *more)

    def config(self, **changes):
        """A small run on this data as a list of `--set` words; `a__b=c` stands for a.b=c."""
        values = {
            "model__name": "tiny",
            "model__layers": 2,
            "model__hidden": 32,
            "model__heads": 2,
            "model__feed_forward": 64,
            "model__vocab_size": VOCAB_SIZE,
            "model__max_positions": MAX_SEQ_TOKENS,
            "model__hidden_dropout": 0,
            "model__attention_dropout": 0,
            "data__train": self.train,
            "data__eval": self.eval,
            "data__vocab": self.vocab,
            "data__max_seq_tokens": MAX_SEQ_TOKENS,
            "data__max_masked_per_seq": MAX_MASKED,
            "data__window_shards": 2,
            "train__seed": 3,
            "train__global_batch_seqs": 12,
            "train__max_steps": 12,
            "train__target_accuracy": 0,
            "train__log_every_steps": 1,
            "train__backend": BACKEND,
            "train__precision": "auto" if BACKEND == "cpu" else "fp32",  # as tolerances here
            "train__threads_per_rank": 1,
            "optimizer__base_learning_rate": 0.01,
            "optimizer__schedule_steps": 20,
            "eval__every_samples": 72,
            "eval__batch_seqs": 8,
        }
        values.update(changes)
        words = []
        for key, value in values.items():
            if isinstance(value, bool):
                value = "true" if value else "false"
            words += ["--set", f"{key.replace('__', '.', 1)}={value}"]
        return words


class EndToEnd(unittest.TestCase):
    """Each class has a scratch folder that goes away with it, and data if it asks for them."""

    needs_data = True

    @classmethod
    def setUpClass(cls):
        os.makedirs(SCRATCH, exist_ok=True)
        cls.scratch = pathlib.Path(tempfile.mkdtemp(dir=SCRATCH, prefix=cls.__name__ + "_"))
        cls.addClassCleanup(shutil.rmtree, cls.scratch, ignore_errors=True)
        cls.count = 0
        cls.data = Data(cls.scratch / "data") if cls.needs_data else None
        # What starting and ending ranks costs on this machine now is not a failure's.
        cls.start_seconds = bertha("bench", "--help", ranks=2).seconds

    @classmethod
    def new_folder(cls, name="run"):
        cls.count += 1
        return cls.scratch / f"{name}_{cls.count}"

    @classmethod
    def train_once(cls):
        """The folder of a run of two steps, and its checkpoint."""
        folder = cls.new_folder("run")
        cls().train(folder, train__max_steps=2)
        return folder, folder / "ckpt" / checkpoints(folder)[-1]

    def train(self, folder, ranks=0, code=0, extra=None, preexec_fn=None, **changes):
        """Trains into a folder; the exit code must be `code`."""
        done = bertha("train", *self.data.config(log__run_dir=folder, **changes), ranks=ranks,
                      extra=extra, preexec_fn=preexec_fn)
        self.assertEqual(done.code, code, done)
        return done

    def assert_failure(self, done, code, *texts):
        """It ended in time with this code and one message, which holds all texts."""
        self.assertEqual(done.code, code, done)
        self.assertLess(done.seconds, MOST_FAILURE_SECONDS + self.start_seconds, done)
        self.assertEqual(len(done.errors()), 1, done)
        whole = done.out + done.err  # a message about several things has several lines
        for text in texts:
            self.assertIn(str(text), whole, done)
        for word in ("Sanitizer", "terminate called", "HDF5-DIAG", "BERTHA_CHECK"):
            self.assertNotIn(word, whole, done)
        return done

    def assert_same_steps(self, one, other, last):
        """Steps 1 to `last` of two runs are the same but for the roundings that each update adds."""
        ours, theirs = steps(one), steps(other)
        self.assertEqual(sorted(ours), list(range(1, last + 1)))
        self.assertEqual(sorted(theirs), sorted(ours))
        for step, a in ours.items():
            b = theirs[step]
            for name, unit in (("mlm_loss", LOSS_F32), ("nsp_loss", LOSS_F32), ("loss", LOSS_F32),
                               ("gradient_norm", GRADIENT_F32)):
                self.assertLessEqual(abs(a[name] - b[name]), step * unit * max(1.0, abs(a[name])),
                                     f"{name} of step {step}: {a[name]} and {b[name]}")
            for name in ("samples", "learning_rate", "skipped_steps"):
                self.assertEqual(a[name], b[name], f"{name} of step {step}")

    def assert_log_ended(self, folder, *texts):
        """Of a run that failed after run_start: all logs end, and an event says why."""
        log = mllog(folder / "mllog" / "result_0.txt")
        keys = [record["key"] for record in log]
        for key in ("init_stop", "run_start", "run_stop"):
            self.assertEqual(keys.count(key), 1, key)
        self.assertEqual((keys[-1], log[-1]["metadata"]["status"]), ("run_stop", "aborted"))
        self.assertEqual([r["status"] for r in records(folder, "stop")], ["aborted"])
        last_event = records(folder, "event")[-1]["text"]
        for text in texts:
            self.assertIn(str(text), last_event)


def records(folder, kind):
    """The records of one kind in metrics.jsonl, in order."""
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def steps_so_far(folder):
    """The steps that a run under way has written: no file yet, and half a last line, are allowed."""
    file = pathlib.Path(folder) / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    whole = (json.loads(line) for line in lines if line.endswith("\n"))
    return {record["step"] for record in whole if record["kind"] == "step"}


def mllog(path):
    """The records of an MLLOG file; every line has to be one."""
    found = []
    for line in path.read_text().splitlines():
        if not line.startswith(":::MLLOG "):
            raise AssertionError(f"no record: {line}")
        found.append(json.loads(line[len(":::MLLOG "):]))
    return found


def steps(folder):
    """The last record of each step."""
    return {record["step"]: record for record in records(folder, "step")}


def checkpoints(folder):
    """Names of the checkpoints that are complete."""
    place = pathlib.Path(folder) / "ckpt"
    return sorted(p.name for p in place.glob("step_*")
                  if not p.suffix and (p / "DONE").exists())


def tree(folder):
    """All files below a folder with their bytes."""
    folder = pathlib.Path(folder)
    return {str(p.relative_to(folder)): p.read_bytes()
            for p in sorted(folder.rglob("*")) if p.is_file()}


def main():
    unittest.main(module="__main__", argv=sys.argv[:1], verbosity=2)
