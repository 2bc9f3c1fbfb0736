"""What tests of bertha-tools share: its command line, folders that go away, small runs of the program, which
is the first argument of each test, and invented records of runs."""

import contextlib
import fcntl
import io
import json
import logging
import os
import pathlib
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "harness" / "tools"
sys.path[:0] = [str(TOOLS), str(ROOT / "tests" / "support")]
from bertha_tools import main as tools, metrics  # noqa: E402
from small_data import make_small_data, must  # noqa: E402

BERTHA = sys.argv[1]
COMMAND = (sys.executable, "-B", "-m", "bertha_tools.main")
ENVIRONMENT = {**{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")},
               "PYTHONPATH": str(TOOLS), "TERM": "xterm"}
STEP_FIGURES = ("loss", "mlm_loss", "mlm_accuracy", "learning_rate", "gradient_norm", "loss_scale", "step_ms",
                "data_wait_ms", "forward_ms", "backward_ms", "communication_ms", "optimizer_ms",
                "seqs_per_second", "tokens_per_second", "flops_per_second", "token_imbalance")
BERT_LARGE = {"model": "bert-large", "parameters": 336_232_258, "vocab_size": 30522, "global_batch_seqs": 448,
              "target_accuracy": 0.72, "start_weights": "ckpt/start", "constant_answer": 0.052}
SMALL_MODEL = {"model": "tiny", "parameters": 500_000, "vocab_size": 4096, "global_batch_seqs": 32,
               "target_accuracy": 0.12, "constant_answer": 0.0394}
ESCAPES = "\x1b[31mred\x07\x9b1m$x_1$"


def tool(*words):
    """(exit code, standard output, standard error) of bertha-tools."""
    out, err = io.StringIO(), io.StringIO()
    logging.disable(logging.NOTSET)  # official_mlperf.py disables it
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = tools.main([str(word) for word in words])
        except SystemExit as ended:  # of argparse
            code = ended.code
    logging.disable(logging.CRITICAL)
    return code, out.getvalue(), err.getvalue()


def process(*words, columns=80, most_bytes=None, **how):
    """The same as a process that has ended. most_bytes: of a file, in place of a full disk."""
    limit = () if most_bytes is None else ("prlimit", f"--fsize={most_bytes}")
    return subprocess.run([*limit, *COMMAND, *map(str, words)], capture_output=True, text=True, check=False,
                          timeout=120, env={**ENVIRONMENT, "COLUMNS": str(columns)}, **how)


def on_terminal(columns, *words, seen=lambda shown: None):
    """(exit code, all that is shown) on a terminal; `seen` is called with all so far."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    shown = b""
    with subprocess.Popen([*COMMAND, *map(str, words)], stdout=follower, env=ENVIRONMENT) as running:
        os.close(follower)
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := os.read(leader, 65536):
                shown += chunk
                seen(shown.decode(errors="replace"))
    os.close(leader)
    return running.returncode, shown.decode(errors="replace").replace("\r", "")


def run_records(model, **more):
    """The first records of a run."""
    facts = {**model, **more}
    constant = facts.pop("constant_answer")
    return [{"kind": "run", "time_ms": 1_000, "name": "invented", "device": "cpu", "world_size": 2,
             "max_steps": 1000, "first_step": 0, **facts},
            {"kind": "data", "time_ms": 2_000, "constant_answer_accuracy": constant}]


def step(number, mlm_loss=4.0, **more):
    return {"kind": "step", "time_ms": 3_000 + number, "step": number, "samples": 32 * number,
            **dict.fromkeys(STEP_FIGURES, 1.0), "mlm_loss": mlm_loss, "nsp_loss": 0.7,
            "skipped_steps": number, **more}


def evaluation(number, accuracy, mlm_loss, nsp_accuracy=0.97, every=150_000):
    return {"kind": "eval", "time_ms": 4_000 + number, "step": 335 * number, "samples": every * number,
            "mlm_accuracy": accuracy, "mlm_loss": mlm_loss, "nsp_accuracy": nsp_accuracy, "seconds": 2.0,
            "seqs_per_second_since_last": 100.0}


def evaluations(figures, every=150_000):
    return [evaluation(i + 1, *one, every=every) for i, one in enumerate(figures)]


def write(folder, records):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def metrics_of(records):
    """As the tools read them."""
    found = metrics.Metrics(pathlib.Path("metrics.jsonl"))
    for one in records:
        found.take(json.loads(json.dumps(one)))
    return found


class ToolCase(unittest.TestCase):
    """Each class has the folder `scratch` and each test in it its own `folder`."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))

    def enter(self, folder):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)

    @classmethod
    def config(cls):
        """The configuration of a small model."""
        path = cls.scratch / "config.yaml"
        return path if path.exists() else make_small_data(BERTHA, cls.scratch)

    @classmethod
    def train(cls, *settings):
        """The folder of a new run."""
        folder = cls.scratch / f"run_{len(list(cls.scratch.glob('run_*')))}"
        words = [word for setting in settings for word in ("--set", setting)]
        must(BERTHA, "train", "--config", cls.config(), "--output-dir", folder, *words)
        return folder

    def tool(self, *words, code=0):
        """All that bertha-tools prints."""
        found = tool(*words)
        self.assertEqual(found[0], code, found)
        return found[1] + found[2]

    def report(self, *words, code=0):
        report = json.loads(self.tool(*words, "--json", "-", code=code))
        self.assertEqual((report["command"], report["exit_code"]), (words[0], code))
        return report

    def refusal(self, code, *words):
        """The one sentence of a command that is refused."""
        found = tool(*words)
        self.assertEqual((found[0], found[1], found[2].count("\n")), (code, "", 1), found)
        return found[2]

    def assert_cannot_steer(self, shown):
        self.assertEqual([letter for letter in shown if letter in "\x1b\x07\x7f\x9b"], [])


def main():
    unittest.main(module="__main__", argv=sys.argv[:1], verbosity=2, warnings="ignore")
