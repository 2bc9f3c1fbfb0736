"""bertha-tools plot draws a real run as the C++ command does, as SVG and PNG, alone and with other
runs.

usage: plot_test.py BERTHA
"""

import os
import pathlib
import re
import resource
import signal
import sys
import unittest.mock
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from run_case import (BERT_LARGE, ESCAPES, SMALL_MODEL, RunCase, evaluations, main,  # noqa: E402
                      program, run_records, step, tool, write)

BERTHA = sys.argv[1]
STEPS = [step(1, 10.4), step(2, 9.5), step(300, 4.0)]


def labels(path):
    """The texts of an SVG, but for the numbers at the axes."""
    root = xml.etree.ElementTree.parse(path).getroot()
    found = root.iter("{http://www.w3.org/2000/svg}text")
    texts = ["".join(one.itertext()).strip() for one in found]
    return {text for text in texts if not re.fullmatch(r"[-−\d.e]+[kM]?", text)}


class Plot(RunCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = cls.train(BERTHA, "train.target_accuracy=0.0001", "train.nsp_weight=1")

    def plot(self, *words):
        code, out, err = tool("plot", *words)
        self.assertEqual((code, err), (0, ""))
        return out

    def test_a_run_gets_the_charts_of_the_cpp_command(self):
        for published in ("never", "always"):
            ours, theirs = self.scratch / published / "ours", self.scratch / published / "theirs"
            out = self.plot(self.folder, "--output", ours, "--published", published)
            code, expected = program(BERTHA, "log", "plot", self.folder, "--output", theirs,
                                     "--published", published)
            self.assertEqual(code, 0)
            self.assertEqual(out, expected.replace("theirs", "ours"))
            names = sorted(path.name for path in theirs.iterdir())
            self.assertEqual(sorted(path.name for path in ours.iterdir()), names)
            self.assertEqual("accuracy_by_samples.svg" in names, published == "always")
            for name in names:
                difference = labels(ours / name) ^ labels(theirs / name)
                self.assertEqual([one for one in difference if "published runs" not in one], [])

    def test_the_same_records_give_the_same_bytes(self):
        self.plot(self.folder)
        first = {path.name: path.read_bytes() for path in (self.folder / "plots").iterdir()}
        self.assertEqual(sorted(first), ["accuracy.svg", "learning_rate.svg", "loss.svg",
                                         "throughput.svg"])
        self.plot(self.folder)
        for name, content in first.items():
            self.assertEqual((self.folder / "plots" / name).read_bytes(), content, name)

    def test_pictures_are_svg_or_png(self):
        self.plot(self.folder, "--format", "png", "-o", self.scratch / "folder")
        self.plot(self.folder, "-o", self.scratch / "one.png")
        self.plot(self.folder, "-o", self.scratch / "one.svg")
        for path in (*(self.scratch / "folder").iterdir(), self.scratch / "one.png"):
            self.assertEqual(path.read_bytes()[:4], b"\x89PNG", path)
        self.assertLessEqual({"Loss", "Learning rate", "target 0.000"},
                             labels(self.scratch / "one.svg"))

    def test_several_runs_share_a_picture(self):
        other = write(self.scratch / "other", [*run_records(BERT_LARGE), *STEPS,
                                               *evaluations([(0.37, 3.0), (0.40, 2.5)])]).parent
        picture = self.scratch / "both.svg"
        self.plot(self.folder, other, "--output", picture)
        found = labels(picture)
        self.assertLessEqual({"other masked tokens 4.000", "other eval 0.400", "target 0.720",
                              "other learning rate 1.0e0"}, found)
        self.assertTrue(any(one.startswith(f"{self.folder.name} eval ") for one in found), found)
        self.assert_refused(tool("plot", self.folder, other), 2, "--output")

    def test_bert_large_is_drawn_over_published_runs(self):
        path = write(self.scratch / "large", [*run_records(BERT_LARGE), *STEPS,
                                              *evaluations([(0.3731, 3.0)])])
        self.plot(path)
        found = labels(path.parent / "plots" / "accuracy_by_samples.svg")
        self.assertLessEqual({"eval 0.3731", "Baidu v2.0, 8 A100, batch 448", "target 0.720"},
                             found)

    def test_bad_shapes_are_printed(self):
        path = write(self.scratch / "bad", [*run_records(SMALL_MODEL), step(40, 20.0)])
        self.assertIn(f"{path}: curve: divergence: ", self.plot(path))

    def test_odd_records_are_drawn_as_gaps(self):
        odd = [None, "text", [], {}, True, float("nan"), float("inf"), -1e308, 1e308, 10**400]
        steps = [step(i + 1, value, **dict.fromkeys(("loss", "learning_rate", "seqs_per_second"),
                                                    value)) for i, value in enumerate(odd)]
        evals = evaluations([(value, value, value) for value in odd])
        for name, records in (("odd", [*steps, *evals]), ("empty", []), ("steps", steps[:1]),
                              ("large", [step(2**57), step(2**63),
                                         *evaluations([(0.3, 3.0)], 2**62)])):
            path = write(self.scratch / name, [*run_records(SMALL_MODEL), *records])
            with open(path, "a") as file:
                file.write('{"kind": "st')
            code, out, _ = tool("plot", path, "--published", "always", "-o", self.scratch / "x.svg")
            self.assertEqual(code, 0, out)
            self.assertEqual("no data" in labels(self.scratch / "x.svg"), name != "large", name)

    def test_names_cannot_steer_the_terminal_or_break_a_picture(self):
        for name in (ESCAPES, "_hidden", "a & <b>", "$x^$"):
            folder = self.scratch / name
            write(folder, [*run_records(SMALL_MODEL), *STEPS])
            picture = self.scratch / f"{name}.svg"
            self.assert_cannot_steer(self.plot(folder, self.folder, "-o", picture))
            self.assertTrue(any(" masked tokens 4.000" in one and "run_" not in one
                                for one in labels(picture)), name)

    def test_what_cannot_be_read_or_written_is_refused(self):
        pipe = self.scratch / "pipe"
        os.mkfifo(pipe)
        for path in ("/nowhere", pipe, "/dev/null", self.scratch / "config.yaml"):
            found = tool("plot", path)
            self.assertEqual((found[0], found[1]), (4, ""), found)
            self.assertIn(str(path), found[2])
        for path in ("/proc/plots", "/dev/null/plots", "/dev/x.svg", pipe / "x.svg",
                     self.scratch / "config.yaml"):
            self.assert_refused(tool("plot", self.folder, "-o", path), 4, path)

    def test_a_link_is_replaced_and_not_written_through(self):
        folder, secret = self.scratch / "linked", self.scratch / "secret"
        folder.mkdir()
        secret.write_text("as it was")
        for name in ("loss.svg", "loss.svg.tmp"):
            (folder / name).symlink_to(secret)
        self.plot(self.folder, "-o", folder)
        self.assertEqual(secret.read_text(), "as it was")
        self.assertFalse((folder / "loss.svg").is_symlink())
        self.assertEqual(list(folder.glob("*.tmp")), [])

    def test_a_full_disk_leaves_no_half_of_a_file(self):
        picture = self.scratch / "full.png"
        picture.write_text("as it was")
        was = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, was)
        handled = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGXFSZ, handled)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, was[1]))
        found = tool("plot", self.folder, "-o", picture)
        resource.setrlimit(resource.RLIMIT_FSIZE, was)
        self.assert_refused(found, 4, picture, "cannot write")
        self.assertEqual(picture.read_text(), "as it was")
        self.assertEqual(list(self.scratch.glob("*.tmp")), [])


if __name__ == "__main__":
    with unittest.mock.patch.dict(os.environ):
        os.environ.pop("DISPLAY", None)
        main()
