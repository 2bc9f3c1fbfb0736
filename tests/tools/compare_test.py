"""bertha-tools compare shows what runs reached, and the settings that differ."""

import os
import shutil
import xml.etree.ElementTree

from tool_case import (BERT_LARGE, ESCAPES, SMALL_MODEL, ToolCase, evaluations, main, on_terminal,
                       run_records, step, tool, write)
from bertha_tools import compare

# name: (records, settings)
INVENTED = {
    "small": ([*run_records(SMALL_MODEL), *(step(i, seqs_per_second=20 + i) for i in (1, 2, 3)),
               *evaluations([(0.1, 6.5), (0.1231, 6.4321)], 64)],
              'model:\n  layers: 2   # default\n  hidden: 48\nlog:\n  run_name: "no \\"1\\" # x"\n'),
    "large": ([*run_records(BERT_LARGE), step(1, seqs_per_second=3000), step(2, seqs_per_second=3100),
               *evaluations([(0.40, 3.0), (0.7199, 1.3)])],
              'model:\n  layers: 24\n  hidden: 48\nlog:\n  run_name: ""\n'),
    "bare": (run_records(SMALL_MODEL, target_accuracy=0), "model:\n  layers: 2\n  hidden: 48\n")}
TABLE = """
              small           large        bare
model         tiny            bert-large   tiny
parameters    500,000         336,232,258  500,000
samples       96              64           0
sequences/s   22              3.05k        no step
target        0.1200          0.7200       none
time to it    5s              missed       no target
accuracy      0.1231          0.7199       never evaluated
eval loss     6.4321          1.3000       never evaluated
model.layers  2               24           2
log.run_name  "no \\"1\\" # x"  ""           not recorded
"""


class Compare(ToolCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runs = [cls.train("train.target_accuracy=0.0001", "optimizer.base_learning_rate=1e-2"),
                    cls.train("train.seed=4", 'log.run_name=no "1" # x')]

    def compare(self, *runs):
        code, out, err = tool("compare", *runs)
        self.assertEqual((code, err), (0, ""))
        return out

    def enter_invented_runs(self):
        self.enter(self.folder)
        for name, (records, settings) in INVENTED.items():
            write(self.folder / name, records).with_name("resolved.yaml").write_text(settings)

    def test_invented_runs_are_shown(self):
        self.enter_invented_runs()
        self.assertEqual([line.rstrip() for line in self.compare(*INVENTED).splitlines()],
                         TABLE.splitlines()[1:])

    def test_reports_have_the_same_figures(self):
        self.enter_invented_runs()
        report = self.report("compare", *INVENTED)
        names = ("run_dir", "model", "parameters", "samples", "seqs_per_second", "target_accuracy",
                 "seconds_to_target", "mlm_accuracy", "mlm_loss")
        self.assertEqual(report["runs"], [dict(zip(names, figures)) for figures in (
            ("small", "tiny", 500000, 96, 22.0, 0.12, 5.28, 0.1231, 6.4321),
            ("large", "bert-large", 336232258, 64, 3050.0, 0.72, None, 0.7199, 1.3),
            ("bare", "tiny", 500000, 0, None, 0.0, None, None, None))])
        self.assertEqual(report["differing_keys"], {
            "model.layers": ["2", "24", "2"], "log.run_name": ['"no \\"1\\" # x"', '""', "not recorded"]})

    def test_real_runs_are_shown(self):
        out = self.compare(*self.runs)
        self.assertRegex(out, r"train\.seed +\d+ +4")
        self.assertRegex(out, r'log\.run_name .* "no \\"1\\" # x"')
        self.assertRegex(out, r"time to it +[0-9]+s +no target")
        self.assertNotIn("model.hidden", out)
        self.assertNotIn("train.seed", self.compare(self.runs[0]))
        self.assertRegex(self.compare(*self.runs, self.runs[0]), r"train\.seed +(\d+) +4 +\1")

    def test_the_settings_are_those_of_the_newest_start(self):
        resumed = self.folder / "resumed"
        shutil.copytree(self.runs[0], resumed)
        (resumed / "env.resume1.json").write_text("{}")
        settings = (resumed / "resolved.yaml").read_text()
        (resumed / "resolved.resume1.yaml").write_text(settings.replace("layers: 2", "layers: 4"))
        self.assertRegex(self.compare(self.runs[0], resumed), r"model\.layers +2 +4")

    def test_accuracy_is_drawn(self):
        for ending in ("svg", "png"):
            path = self.folder / f"chart.{ending}"
            self.assertIn(f"written: {path}", self.tool("compare", *self.runs, "--output", path))
            self.assertGreater(path.stat().st_size, 1000)
        xml.etree.ElementTree.parse(self.folder / "chart.svg")
        self.assertIn(f">{self.runs[0].name} 0.", (self.folder / "chart.svg").read_text())
        self.assertEqual(list(self.folder.glob("*.tmp")), [])

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
        self.assertRegex(self.refusal(4, "compare", "/nowhere"), "/nowhere.*no such folder")
        self.assertRegex(self.refusal(2, "compare", self.runs[0], "-o", "chart.gif"), r"chart\.gif.*\.svg")
        self.assertIn("metrics.jsonl", self.refusal(4, "compare", self.folder))
        odd = self.folder / "odd"
        shutil.copytree(self.runs[0], odd)
        for written, line in (("model: {layers: 2}\n", 1), ("model:\n  layers\n", 2),
                              ("  layers: 2\n", 1), (ESCAPES, 1)):
            (odd / "resolved.yaml").write_text(written)
            said = self.refusal(2, "compare", odd)
            self.assertRegex(said, rf"resolved\.yaml.*line {line} ")
            self.assert_cannot_steer(said)
        (odd / "resolved.yaml").unlink()
        self.assertRegex(self.refusal(2, "compare", odd), r"resolved\.yaml.*cannot be read")
        os.mkfifo(odd / "resolved.yaml")
        self.assertRegex(self.refusal(2, "compare", odd), r"resolved\.yaml.*not a file")
        for path in ("/dev/full.svg", "/nowhere/a.svg"):
            self.assertIn(path, self.tool("compare", self.runs[0], "-o", path, code=4))

    def test_settings_with_comments_are_read(self):
        path = self.folder / "commented.yaml"
        path.write_text('# all\nmodel:\n  layers: 2   # default\n  name: "a # b"  # x\n\nlog:\n'
                        '  run_dir: ""\n')
        self.assertEqual(compare.read_settings(path), {
            "model.layers": "2", "model.name": '"a # b"', "log.run_dir": '""'})


if __name__ == "__main__":
    main()
