"""bertha-tools plot draws a real run as SVG and PNG, alone and with other runs."""

import os
import re
import xml.etree.ElementTree

from tool_case import (BERT_LARGE, ESCAPES, SMALL_MODEL, ToolCase, evaluations, main, process, run_records,
                       step, tool, write)

STEPS = [step(1, 10.4), step(2, 9.5), step(300, 4.0)]
# Texts of the charts of a run, with # for a number.
CHARTS = {
    "accuracy": {"Masked-token accuracy", "accuracy (fraction)", "step", "train #", "eval #", "target #"},
    "learning_rate": {"Learning rate", "learning rate", "step", "learning rate #"},
    "loss": {"Loss", "loss (nats)", "step", "train #", "masked tokens #", "next sentence #",
             "eval, masked tokens #"},
    "throughput": {"Throughput, all ranks", "sequences per second", "step", "train #"}}
BESIDE_PUBLISHED = {"Masked-token accuracy compared with published runs", "accuracy (fraction)", "samples",
                    "eval #", "target #", "Baidu v2.0, 8 A100, batch 448"}


def labels(path):
    """The texts of an SVG, but for the numbers at the axes."""
    root = xml.etree.ElementTree.parse(path).getroot()
    found = root.iter("{http://www.w3.org/2000/svg}text")
    texts = ["".join(one.itertext()).strip() for one in found]
    return {text for text in texts if not re.fullmatch(r"[-−\d.e]+[kM]?", text)}


class Plot(ToolCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_dir = cls.train("train.target_accuracy=0.0001", "train.nsp_weight=1")

    def plot(self, *words):
        code, out, err = tool("plot", *words)
        self.assertEqual((code, err), (0, ""))
        return out

    def test_a_run_gets_its_charts(self):
        for published in ("never", "always"):
            folder = self.folder / published
            out = self.plot(self.run_dir, "--output", folder, "--published", published)
            self.assertEqual(out, f"written: {folder}/*.svg\n")
            charts = CHARTS if published == "never" else {**CHARTS, "accuracy_by_samples": BESIDE_PUBLISHED}
            self.assertEqual({path.name for path in folder.iterdir()}, {f"{name}.svg" for name in charts})
            for name, texts in charts.items():
                found = {re.sub(r" \d[\d.e-]*k?$", " #", text) if "batch" not in text else text
                         for text in labels(folder / f"{name}.svg")}
                self.assertEqual(found, texts, name)

    def test_the_same_records_give_the_same_bytes(self):
        self.plot(self.run_dir)
        first = {path.name: path.read_bytes() for path in (self.run_dir / "plots").iterdir()}
        self.assertEqual(len(first), 4)
        self.plot(self.run_dir)
        for name, content in first.items():
            self.assertEqual((self.run_dir / "plots" / name).read_bytes(), content, name)

    def test_pictures_are_svg_or_png(self):
        self.plot(self.run_dir, "--format", "png", "-o", self.folder / "folder")
        self.plot(self.run_dir, "-o", self.folder / "one.png")
        self.plot(self.run_dir, "-o", self.folder / "one.svg")
        for path in (*(self.folder / "folder").iterdir(), self.folder / "one.png"):
            self.assertEqual(path.read_bytes()[:4], b"\x89PNG", path)
        self.assertLessEqual({"Loss", "Learning rate", "target 0.000"}, labels(self.folder / "one.svg"))

    def test_several_runs_share_a_picture(self):
        other = self.scratch / "other"  # in the folder of the other run
        write(other, [*run_records(BERT_LARGE), *STEPS, *evaluations([(0.37, 3.0), (0.40, 2.5)])])
        picture = self.folder / "both.svg"
        self.plot(self.run_dir, other, "--output", picture)
        found = labels(picture)
        self.assertLessEqual({"other masked tokens 4.000", "other eval 0.400", "target 0.720",
                              "other learning rate 1.0e0"}, found)
        self.assertTrue(any(one.startswith(f"{self.run_dir.name} eval ") for one in found), found)
        self.assertIn("--output", self.refusal(2, "plot", self.run_dir, other))

    def test_bert_large_is_drawn_over_published_runs(self):
        path = write(self.folder, [*run_records(BERT_LARGE), *STEPS, *evaluations([(0.3731, 3.0)])])
        self.plot(path)
        found = labels(path.parent / "plots" / "accuracy_by_samples.svg")
        self.assertLessEqual({"eval 0.3731", "Baidu v2.0, 8 A100, batch 448", "target 0.720"}, found)

    def test_bad_shapes_are_printed(self):
        path = write(self.folder / "bad", [*run_records(SMALL_MODEL), step(40, 20.0)])
        self.assertIn(f"{path}: curve: divergence: ", self.plot(path))

    def test_odd_records_are_drawn_as_gaps(self):
        odd = [None, "text", [], {}, True, float("nan"), float("inf"), -1e308, 1e308, 10**400]
        steps = [step(i + 1, value, **dict.fromkeys(("loss", "learning_rate", "seqs_per_second"),
                                                    value)) for i, value in enumerate(odd)]
        evals = evaluations([(value, value, value) for value in odd])
        for name, records in (("odd", [*steps, *evals]), ("empty", []), ("steps", steps[:1]),
                              ("large", [step(2**57), step(2**63),
                                         *evaluations([(0.3, 3.0)], 2**62)])):
            path = write(self.folder / name, [*run_records(SMALL_MODEL), *records])
            with open(path, "a") as file:
                file.write('{"kind": "st')
            code, out, _ = tool("plot", path, "--published", "always", "-o", self.folder / "x.svg")
            self.assertEqual(code, 0, out)
            self.assertEqual("no data" in labels(self.folder / "x.svg"), name != "large", name)

    def test_names_cannot_steer_the_terminal_or_break_a_picture(self):
        for name in (ESCAPES, "_hidden", "a & <b>", "$x^$"):
            folder = self.folder / name
            write(folder, [*run_records(SMALL_MODEL), *STEPS])
            picture = self.folder / f"{name}.svg"
            self.assert_cannot_steer(self.plot(folder, self.run_dir, "-o", picture))
            self.assertTrue(any(" masked tokens 4.000" in one and "run_" not in one
                                for one in labels(picture)), name)

    def test_what_cannot_be_read_or_written_is_refused(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        other = self.folder / "other.yaml"
        other.write_text("model:\n")
        for path in ("/nowhere", pipe, "/dev/null", other):
            code, out, err = tool("plot", path)
            self.assertEqual((code, out), (4, ""), err)
            self.assertIn(str(path), err)
        endless = self.folder / "endless.jsonl"
        endless.write_text("")
        os.truncate(endless, 1 << 40)
        self.assertIn("a line of more than 1048576 bytes", self.refusal(4, "plot", endless))
        for path in ("/proc/plots", "/dev/null/plots", "/dev/x.svg", pipe / "x.svg", other):
            self.assertIn(str(path), self.refusal(4, "plot", self.run_dir, "-o", path))

    def test_a_link_is_replaced_and_not_written_through(self):
        folder, secret = self.folder / "linked", self.folder / "secret"
        folder.mkdir()
        secret.write_text("as it was")
        for name in ("loss.svg", "loss.svg.tmp"):
            (folder / name).symlink_to(secret)
        self.plot(self.run_dir, "-o", folder)
        self.assertEqual(secret.read_text(), "as it was")
        self.assertFalse((folder / "loss.svg").is_symlink())
        self.assertEqual(list(folder.glob("*.tmp")), [])

    def test_a_full_disk_leaves_no_half_of_a_file(self):
        picture = self.folder / "full.png"
        picture.write_text("as it was")
        done = process("plot", self.run_dir, "-o", picture, most_bytes=2_000)
        self.assertEqual((done.returncode, done.stdout), (4, ""), done)
        self.assertRegex(done.stderr, f"^bertha-tools: error: {picture}: cannot write [^\n]+\n$")
        self.assertEqual(picture.read_text(), "as it was")
        self.assertEqual(list(self.folder.glob("*.tmp")), [])


if __name__ == "__main__":
    os.environ.pop("DISPLAY", None)  # none is needed
    main()
