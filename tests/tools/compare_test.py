"""bertha-tools compare shows of real and invented runs what the C++ command shows.

usage: compare_test.py BERTHA
"""

import fcntl
import json
import os
import pathlib
import pty
import shutil
import struct
import subprocess
import sys
import termios
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from run_case import (BERT_LARGE, ESCAPES, RunCase, main, program, run_records,  # noqa: E402
                      tool, write)
from bertha_tools import compare, run_folder  # noqa: E402

BERTHA = sys.argv[1]
TOOLS = pathlib.Path(compare.__file__).resolve().parents[1]


def on_terminal(columns, *words):
    """Lines that a command shows on a terminal with as many columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(TOOLS)}
    environment.pop("COLUMNS", None)
    with subprocess.Popen([sys.executable, "-B", "-m", "bertha_tools.main", *map(str, words)],
                          stdout=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        while chunk := read_some(leader):
            shown += chunk
    os.close(leader)
    return process.returncode, shown.decode().replace("\r", "")


def read_some(leader):
    try:
        return os.read(leader, 65536)
    except OSError:  # the other end is closed
        return b""


class Compare(RunCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        target = ("train.target_accuracy=0.0001", "optimizer.base_learning_rate=1e-2")
        cls.runs = [cls.train(BERTHA, *target),
                    cls.train(BERTHA, "train.seed=4", 'log.run_name=no "1" # x')]

    def assert_same(self, *runs):
        code, out, err = tool("compare", *runs)
        self.assertEqual((code, err), (0, ""))
        expected = program(BERTHA, "compare", *runs)
        self.assertEqual(expected[0], 0, expected)
        self.assertEqual([line.rstrip() for line in out.splitlines()], expected[1].splitlines())
        return out

    def test_runs_are_shown_as_by_the_cpp_command(self):
        out = self.assert_same(*self.runs)
        self.assertRegex(out, r"train\.seed +\d+ +4")
        self.assertRegex(out, r'log\.run_name .* "no \\"1\\" # x"')
        self.assertRegex(out, r"time to it +[0-9]+s +no target")
        self.assertNotIn("model.hidden", out)
        self.assert_same(self.runs[0])
        self.assert_same(*self.runs, self.runs[0])

    def test_a_run_without_steps_and_one_that_missed_its_target(self):
        bare = self.scratch / "bare"
        shutil.copytree(self.runs[0], bare)
        write(bare, run_records(BERT_LARGE))
        self.assertIn("never evaluated", self.assert_same(bare, self.runs[0]))
        missed = self.scratch / "missed"
        shutil.copytree(self.runs[0], missed)
        lines = [json.loads(line) for line in (missed / "metrics.jsonl").read_text().splitlines()]
        write(missed, [{**one, "target_accuracy": 0.99} if "target_accuracy" in one else one
                       for one in lines])
        self.assertIn("missed", self.assert_same(missed, bare))

    def test_the_settings_are_those_of_the_newest_start(self):
        resumed = self.scratch / "resumed"
        shutil.copytree(self.runs[0], resumed)
        (resumed / "env.resume1.json").write_text("{}")
        settings = (resumed / "resolved.yaml").read_text()
        (resumed / "resolved.resume1.yaml").write_text(settings.replace("layers: 2", "layers: 4"))
        self.assertRegex(self.assert_same(self.runs[0], resumed), r"model\.layers +2 +4")

    def test_reports_as_json_are_the_same(self):
        code, out, _ = tool("compare", *self.runs, "--json", "-")
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(out),
                         json.loads(program(BERTHA, "compare", *self.runs, "--json", "-")[1]))

    def test_accuracy_is_drawn(self):
        for ending in ("svg", "png"):
            path = self.scratch / f"chart.{ending}"
            code, out, _ = tool("compare", *self.runs, "--output", path)
            self.assertEqual(code, 0)
            self.assertIn(f"written: {path}", out)
            self.assertGreater(path.stat().st_size, 1000)
        xml.etree.ElementTree.parse(self.scratch / "chart.svg")
        self.assertIn(f">{self.runs[0].name} 0.", (self.scratch / "chart.svg").read_text())
        self.assertEqual(list(self.scratch.glob("*.tmp")), [])

    def test_rows_fit_a_terminal(self):
        code, text = on_terminal(60, "compare", *self.runs)
        self.assertEqual(code, 0)
        self.assertIn("parameters", text)
        longest = max(len(word) for word in text.split())
        for line in text.splitlines():
            self.assertTrue(len(line) <= 60 + 8 or longest > 50, line)  # escapes of a bold name
        self.assertLess(text.index("model"), text.index(str(self.runs[1])))
        wide = on_terminal(400, "compare", *self.runs)[1]
        self.assertEqual(sum(line.startswith("parameters ") for line in wide.splitlines()), 1)

    def test_odd_files_are_refused_in_one_sentence(self):
        self.assert_refused(tool("compare", "/nowhere"), 4, "/nowhere", "no such folder")
        found = tool("compare", self.runs[0], "-o", "chart.pdf")
        self.assert_refused(found, 2, "chart.pdf", ".svg")
        self.assert_refused(tool("compare", self.scratch), 4, "metrics.jsonl")
        odd = self.scratch / "odd"
        shutil.copytree(self.runs[0], odd)
        for written, line in (("model: {layers: 2}\n", 1), ("model:\n  layers\n", 2),
                              ("  layers: 2\n", 1), (ESCAPES, 1)):
            (odd / "resolved.yaml").write_text(written)
            found = tool("compare", odd)
            self.assert_refused(found, 2, "resolved.yaml", f"line {line} ")
            self.assert_cannot_steer(found[2])
        (odd / "resolved.yaml").unlink()
        self.assert_refused(tool("compare", odd), 2, "resolved.yaml", "cannot be read")
        self.assertEqual(program(BERTHA, "compare", odd)[0], 2)
        os.mkfifo(odd / "resolved.yaml")
        self.assert_refused(tool("compare", odd), 2, "resolved.yaml", "not a file")
        for path in ("/dev/full.svg", "/nowhere/a.svg"):
            found = tool("compare", self.runs[0], "-o", path)
            self.assertEqual(found[0], 4, found)
            self.assertIn(path, found[2])

    def test_settings_with_comments_are_read(self):
        path = self.scratch / "commented.yaml"
        path.write_text('# all\nmodel:\n  layers: 2            # default\n  name: "a # b"  # x\n\n'
                        'log:\n  run_dir: ""\n')
        self.assertEqual(run_folder.read_settings(path), {
            "model.layers": "2", "model.name": '"a # b"', "log.run_dir": '""'})


if __name__ == "__main__":
    main()
