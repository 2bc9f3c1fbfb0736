"""bertha-tools timeline: what it draws of a small report, and what it refuses."""

import os
import sqlite3
import xml.etree.ElementTree

from tool_case import ToolCase, main
from bertha_tools import timeline

TABLES = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, correlationId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, streamId INTEGER, correlationId INTEGER,
                                         demangledName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, streamId INTEGER, correlationId INTEGER,
                                         copyKind INTEGER);
"""
STRINGS = {1: "step", 2: "nvjet_hsh_128x256", 3: "bertha::<unnamed>::forward_kernel", 4: "lamb_apply"}
US = 1000
MS = 1000 * US
# The host is a step ahead of the GPU: (launched, start, end, stream, name), in us of a step.
KERNELS = [(10, 1000, 1500, 7, 2),     # forward
           (20, 1500, 1900, 7, 3),     # backward
           (21, 1950, 2200, 7, 2),     # 50 us later
           (60, 2210, 2400, 7, 4)]     # optimizer, after a gap of 10 us
PHASES = (("forward", 5, 15), ("backward", 15, 50), ("optimizer", 50, 90))  # on the host
COPIES = [(30, 2100, 2300, 19, 10),    # between GPUs: 190 of 200 us below other work
          (6, 10, 20, 21, 1),          # of the batch, as soon as the host asks: before the step
          (70, 2300, 2310, 21, 2)]


class Timeline(ToolCase):
    def setUp(self):
        super().setUp()
        self.sqlite, self.svg = self.folder / "a step?#.sqlite", self.folder / "step.svg"

    def write(self, steps=3, kernels=KERNELS, copies=()):
        self.sqlite.unlink(missing_ok=True)
        database = sqlite3.connect(self.sqlite)
        database.executescript(TABLES)
        add = lambda table, *values: database.execute(
            f"INSERT INTO {table} VALUES ({','.join('?' * len(values))})", values)
        for one in STRINGS.items():
            add("StringIds", *one)
        call = 0
        for step in range(steps):
            at = lambda us: 10 * MS * step + us * US if isinstance(us, int) else us
            add("NVTX_EVENTS", at(0), at(100), None, 1)
            for name, begin, end in PHASES:
                add("NVTX_EVENTS", at(begin), at(end), name, None)
            add("NVTX_EVENTS", at(0), None, "a mark", None)
            for kind, rows in (("KERNEL", kernels), ("MEMCPY", copies)):
                for launched, start, end, stream, what in rows:
                    call += 1
                    add("CUPTI_ACTIVITY_KIND_RUNTIME", at(launched), at(launched), call)
                    add(f"CUPTI_ACTIVITY_KIND_{kind}", at(start), at(end), stream, call, what)
        database.commit()
        database.close()

    def draw(self, *words):
        self.tool("timeline", self.sqlite, "--output", self.svg, *words)
        root = xml.etree.ElementTree.parse(self.svg).getroot()
        texts = (element for element in root.iter() if element.tag.endswith("text"))
        return " | ".join("".join(element.itertext()).strip() for element in texts)

    def refused(self, code, *words):
        return self.tool("timeline", self.sqlite, "--output", self.svg, *words, code=code)

    def bars(self, label):
        """[(begin and end in us of the picture, row)] of one kind."""
        work, ranges = timeline.read_report(self.sqlite)
        figure = timeline.draw([one for one in work if one.start < 10 * MS], ranges, "")
        self.rows = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
        found = []
        for bars in figure.axes[0].collections:
            for path in bars.get_paths() if bars.get_label() == label else ():
                box = path.get_extents()
                found.append((round(1e3 * box.x0), round(1e3 * box.x1), round(box.y0 + 0.5)))
        return found

    def test_names_times_gaps_and_what_is_hidden(self):
        self.write(copies=COPIES)
        words = self.draw()
        self.assertIn("Step 2 of 3 recorded: 1.40 ms", words)
        for name in ("GEMM 0.75 ms", "attention 0.40 ms", "LAMB 0.19 ms", "communication 0.20 ms",
                     "forward 0.50 ms", "backward 0.80 ms", "optimizer 0.19 ms", "stream 7", "stream 19"):
            self.assertIn(name, words)
        self.assertIn("idle for more than 20 us: 0.05 ms, 3.6 % of the step", words)
        self.assertIn("communication: 0.20 ms, of which other work covers 0.19 ms", words)
        self.assertIn("copies from and to the host 0.01 ms", words)
        self.assertNotIn("a mark", words)

    def test_bars_stand_where_the_work_was(self):
        self.write(steps=1, copies=COPIES)
        self.assertEqual(self.bars("attention"), [(500, 900, 1)])
        self.assertEqual(self.bars("idle"), [(900, 950, 1)])
        self.assertEqual(self.bars("communication"), [(1100, 1300, 2)])  # a stream of its own
        self.assertEqual(self.bars("GEMM"), [(0, 500, 1), (950, 1200, 1)])
        self.assertEqual(self.rows, ["phases", "stream 7", "stream 19", "stream 21"])

    def test_touching_kernels_are_one_bar(self):
        self.write(steps=1, kernels=[(10 + i // 100, 1000 + i, 1001 + i, 7, 2) for i in range(900)])
        self.assertEqual(self.bars("GEMM"), [(0, 900, 1)])

    def test_rows_that_are_not_numbers_are_left_out(self):
        odd = [(10, None, 1500, 7, 2), (20, "soon", 1900, 7, 3), (21, 1950, 2200, None, 2),
               (22, 1950, 2200, 7, "x"), (23, 1950, 2100, 7, None)]
        self.write(kernels=KERNELS + odd)
        self.assertIn("GEMM 0.75 ms", self.draw())

    def test_pictures_of_other_kinds(self):
        self.write()
        for name, begin in (("step.png", b"\x89PNG"), ("step.pdf", b"%PDF"), ("step.svg", b"<?xm")):
            self.tool("timeline", self.sqlite, "--output", self.folder / name)
            self.tool("timeline", self.sqlite, "--output", self.folder / f"again_{name}")
            first = (self.folder / name).read_bytes()
            self.assertEqual(first[:4], begin)
            self.assertEqual((self.folder / f"again_{name}").read_bytes(), first, name)

    def test_what_is_no_such_report_is_refused(self):
        self.sqlite.write_text("no database, but some text that is longer than a header of one")
        self.assertIn("nsys export --type sqlite", self.refused(4))
        self.sqlite.unlink()
        self.assertIn("nsys export --type sqlite", self.refused(4))
        os.mkfifo(self.sqlite)  # is not waited for
        self.assertIn("nsys export --type sqlite", self.refused(4))
        self.write(steps=0)
        self.assertIn("contains 0 ranges named step", self.refused(4))
        self.write()
        self.assertIn("want 1 to 3", self.refused(2, "--step", "4"))
        # Launched outside of every step.
        self.write(kernels=[(2000, 3000, 3500, 7, 2)], copies=[(6, 10, 20, 21, 1)])
        self.assertIn("cuda.graphs=off", self.refused(4))
        self.svg = self.folder / "step.txt"
        self.assertIn("ends with .svg", self.refused(2))


if __name__ == "__main__":
    main()
