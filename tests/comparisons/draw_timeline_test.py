"""launch/draw_timeline.py: what it draws of a small report, and what it refuses.

usage: draw_timeline_test.py
"""

import pathlib
import re
import sqlite3
import unittest

from script_case import ScriptCase
import xml.etree.ElementTree

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "launch" / "draw_timeline.py"
TABLES = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, correlationId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, streamId INTEGER,
                                         correlationId INTEGER, demangledName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, streamId INTEGER,
                                         correlationId INTEGER, copyKind INTEGER);
"""
STRINGS = {1: "step", 2: "nvjet_hsh_128x256", 3: "bertha::<unnamed>::forward_kernel", 4: "lamb_apply"}
US = 1000
MS = 1000 * US
LEFT, RIGHT, ROW = 150, 1180, 34  # of the picture
# The host is a step ahead of the GPU: (launched, start, end, stream, name), in us of a step.
KERNELS = [(10, 1000, 1500, 7, 2),     # forward
           (20, 1500, 1900, 7, 3),     # backward
           (21, 1950, 2200, 7, 2),     # 50 us later
           (60, 2210, 2400, 7, 4)]     # optimizer, after a gap of 10 us
PHASES = (("forward", 5, 15), ("backward", 15, 50), ("optimizer", 50, 90))  # on the host
COPIES = [(30, 2100, 2300, 19, 10),    # between GPUs: 190 of 200 us below other work
          (6, 10, 20, 21, 1),          # of the batch, as soon as the host asks: before the step
          (70, 2300, 2310, 21, 2)]


class DrawTimeline(ScriptCase):
    def setUp(self):
        super().setUp()
        self.report, self.svg = self.folder / "step.sqlite", self.folder / "step.svg"

    def write(self, steps=3, kernels=KERNELS, copies=()):
        database = sqlite3.connect(self.report)
        database.executescript(TABLES)
        add = lambda table, *values: database.execute(
            f"INSERT INTO {table} VALUES ({','.join('?' * len(values))})", values)
        for one in STRINGS.items():
            add("StringIds", *one)
        call = 0
        for step in range(steps):
            at = lambda us: 10 * MS * step + us * US
            add("NVTX_EVENTS", at(0), at(100), None, 1)
            for name, begin, end in PHASES:
                add("NVTX_EVENTS", at(begin), at(end), name, None)
            add("NVTX_EVENTS", at(0), None, "a mark", None)
            for kind, rows in (("KERNEL", kernels), ("MEMCPY", copies)):
                for launched, start, end, stream, what in rows:
                    call += 1
                    add("CUPTI_ACTIVITY_KIND_RUNTIME", at(launched), at(launched + 2), call)
                    add(f"CUPTI_ACTIVITY_KIND_{kind}", at(start), at(end), stream, call, what)
        database.commit()
        database.close()

    def draw(self, *words, code=0):
        done = self.run_script(SCRIPT, self.report, "--output", self.svg, *words)
        self.assertEqual(done.returncode, code, done)
        if code != 0:
            self.assertNotIn("Traceback", done.stderr)
            return done.stderr
        self.root = xml.etree.ElementTree.parse(self.svg).getroot()
        texts = (element for element in self.root.iter() if element.tag.endswith("text"))
        return " | ".join(element.text for element in texts)

    def bars(self, style):
        return [(float(e.get("x")), float(e.get("width")), float(e.get("y")))
                for e in self.root.iter()
                if e.get("class") == style and float(e.get("height", 0)) == 24]

    def test_names_times_gaps_and_what_is_hidden(self):
        self.write(copies=COPIES)
        words = self.draw()
        self.assertIn("Step 2 of 3 recorded: 1.40 ms", words)
        for name in ("GEMM 0.75 ms", "attention 0.40 ms", "LAMB 0.19 ms", "exchange 0.20 ms",
                     "forward 0.50 ms", "backward 0.80 ms", "optimizer 0.19 ms",
                     "stream 7", "stream 19"):
            self.assertIn(name, words)
        self.assertIn("idle for more than 20 us: 0.05 ms, 3.6 % of the step", words)
        self.assertIn("exchange: 0.20 ms, of which other work covers 0.19 ms", words)
        self.assertIn("copies from and to the host 0.01 ms", words)
        self.assertNotIn("a mark", words)

    def test_bars_stand_where_the_work_was(self):
        self.write(copies=COPIES)
        self.draw("--step", "3")
        at = lambda us: LEFT + (RIGHT - LEFT) * (us - 1000) / 1400
        (attention,), (idle,), (exchange,) = map(self.bars, ("k1", "idle", "k0"))
        for bar, (start, end) in ((attention, (1500, 1900)), (idle, (1900, 1950)),
                                  (exchange, (2100, 2300))):
            self.assertAlmostEqual(bar[0], at(start), 1)
            self.assertAlmostEqual(bar[1], at(end) - at(start), 1)
        self.assertEqual(len(self.bars("k2")), 2)
        self.assertEqual(exchange[2], attention[2] + ROW)  # a stream of its own

    def test_touching_kernels_are_one_bar(self):
        many = [(10 + i // 100, 1000 + i, 1001 + i, 7, 2) for i in range(900)]
        self.write(kernels=many)
        self.draw()
        self.assertLess(len(re.findall("<rect", self.svg.read_text())), 30)

    def test_what_is_no_such_report_is_refused(self):
        self.report.write_text("no database, but some text that is longer than a header of one")
        self.assertIn("nsys export --type sqlite", self.draw(code=4))
        self.report.unlink()
        self.write(steps=0)
        self.assertIn("holds 0 ranges named step", self.draw(code=4))
        self.report.unlink()
        self.write()
        self.assertIn("want 1 to 3", self.draw("--step", "4", code=2))
        self.report.unlink()
        # Launched outside of every step.
        self.write(kernels=[(2000, 3000, 3500, 7, 2)], copies=[(6, 10, 20, 21, 1)])
        self.assertIn("cuda.graphs=off", self.draw(code=4))


if __name__ == "__main__":
    unittest.main()
