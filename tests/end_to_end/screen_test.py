"""What commands show, on a terminal and elsewhere: the lines of a run, tables, and reports as JSON."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

from support import BERTHA, LAUNCH, EndToEnd, bertha, command, environment, main, records

COLUMNS = (80, 160)


def step_lines(done):
    lines = [line[9:] for line in done.err.splitlines() if re.match(r"\d\d:\d\d:\d\d step ", line)]
    assert lines, done
    return lines


def shown_on(leader):
    """What a process shows on a terminal, until it ends."""
    shown = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(leader)
    return shown.decode()


class Screen(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folders, cls.runs = {}, {}
        for columns in COLUMNS:
            cls.folders[columns] = cls.new_folder()
            cls.runs[columns] = cls().train(
                cls.folders[columns], ranks=2, extra={"COLUMNS": str(columns)}, train__max_steps=40,
                train__log_every_steps=4, train__target_accuracy=0.9, code=3)
        cls.folder = cls.folders[160]

    def report(self, *words, code=0):
        """The report on standard output, and the same in a file beside the text."""
        done = bertha(*words, "--json", "-")
        self.assertEqual(done.code, code, done)
        found = json.loads(done.out)
        path = self.new_folder("report")
        beside = bertha(*words, "--json", path)
        self.assertEqual(json.loads(path.read_text()), found)
        self.assertTrue(beside.out)
        words = [word for word in words if str(word) in found["command"].split()]
        self.assertEqual(found["command"], " ".join(words))
        self.assertEqual(found["exit_code"], code)
        return found

    def test_lines_fit_the_terminal_and_stand_below_each_other(self):
        for columns in COLUMNS:
            lines = step_lines(self.runs[columns])
            self.assertLessEqual(max(map(len, lines)) + 9, columns, lines)
            for word in ("acc", "seq", "end"):
                self.assertEqual(len({line.find(word) for line in lines}), 1, lines)
        self.assertIn("mlm loss ", step_lines(self.runs[160])[0])
        self.assertIn("tok", step_lines(self.runs[160])[0])

    def test_a_run_of_masked_tokens_only_shows_no_figures_of_next_sentences(self):
        folder = self.new_folder()
        changes = {"train__nsp_weight": 0, "train__max_steps": 4, "mlperf__division": "open"}
        done = self.train(folder, extra={"COLUMNS": "80"}, **changes)
        self.assertIn("mlm loss ", done.err)
        (events,) = (folder / "tb").glob("events.out.tfevents.*")
        checkpoint = folder / "ckpt" / "step_00000004"
        arguments = ("eval", "--checkpoint", checkpoint, *self.data.config(**changes))
        printed = bertha(*arguments).out
        self.assertIn("masked-token accuracy", printed)
        for shown in (done.out + done.err, events.read_bytes().decode(errors="replace"), printed):
            self.assertNotRegex(shown, "nsp [0-9al]|nsp_loss|nsp_acc|next.sentence")
        for record in records(folder, "step"):
            self.assertIsNone(record["nsp_loss"])
            self.assertEqual(record["loss"], record["mlm_loss"])
        self.assertEqual({record["nsp_accuracy"] for record in records(folder, "eval")}, {None})
        self.assertIsNone(json.loads(bertha(*arguments, "--json", "-").out)["nsp_accuracy"])

    def test_records_are_means_over_their_interval(self):
        every = self.new_folder()
        self.train(every, ranks=2, train__max_steps=8, train__target_accuracy=0)
        several = self.new_folder()
        self.train(several, ranks=2, train__max_steps=8, train__log_every_steps=4,
                   train__target_accuracy=0)
        found = {r["step"]: r["mlm_loss"] for r in records(several, "step")}
        single = {r["step"]: r["mlm_loss"] for r in records(every, "step")}
        self.assertEqual(sorted(found), [1, 4, 8])
        self.assertEqual(found[1], single[1])
        # Steps have about as many masked tokens: the mean of their means is near.
        mean = sum(single[step] for step in (5, 6, 7, 8)) / 4
        self.assertLess(abs(found[8] - mean), 0.1 * abs(single[5] - single[8]) + 0.02)
        self.assertNotEqual(found[8], single[8])

    def test_an_evaluation_between_two_records_loses_no_step(self):
        # The evaluation of step 6 lies inside the records of steps 4 and 8.
        several, without = self.new_folder(), self.new_folder()
        for folder, samples in ((several, 72), (without, 10**9)):
            self.train(folder, ranks=2, train__max_steps=8, train__log_every_steps=4,
                       eval__every_samples=samples)
        self.assertEqual([r["step"] for r in records(several, "eval")], [6, 8])
        # Sums of up to four steps in f64, in another order: three additions and a division each.
        for mean, other in zip(records(several, "step"), records(without, "step"), strict=True):
            self.assertAlmostEqual(mean["mlm_loss"], other["mlm_loss"],
                                   delta=8 * 2**-53 * other["mlm_loss"])

    def test_ranks_are_in_the_records(self):
        for record in records(self.folder, "step"):
            self.assertIn(record["slowest_rank"], (0, 1))
            self.assertGreater(record["slowest_rank_compute_ms"], 0)
            self.assertGreaterEqual(record["slowest_rank_compute_ms"],
                                    record["other_ranks_compute_ms"])

    def shown(self, words, code=0, columns=80, **extra):
        """What a command shows, standard error among it, on a terminal so wide."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(words, env=environment({"TERM": "xterm", "NO_COLOR": "", **extra}),
                                   stdout=follower, stderr=follower, stdin=subprocess.DEVNULL)
        os.close(follower)
        text = shown_on(leader)
        self.assertEqual(process.wait(), code, text)
        return text

    def on_terminal(self, *words, code=0, columns=80):
        """Lines that a command shows there, without what redraws them."""
        text = self.shown(command([*words], 0), code, columns)
        return text.replace("\r\x1b[K", "").replace("\r", "").splitlines()

    def short_run(self):
        return ["train", *self.data.config(log__run_dir=self.new_folder(), train__max_steps=2)]

    def test_colors_and_redrawn_lines_can_be_turned_off(self):
        for extra, colors, redraws in (({}, True, True), ({"NO_COLOR": "1"}, False, True),
                                       ({"TERM": "dumb"}, False, False)):
            text = self.shown(command(self.short_run(), 0), **extra)
            self.assertEqual(bool(re.search("\x1b\\[[0-9;]+m", text)), colors, text)
            self.assertEqual("\r\x1b[K" in text, redraws, text)
            self.assertEqual("\x1b" in text, colors or redraws, text)

    def test_ranks_of_a_script_know_the_width_of_its_terminal(self):
        config = self.new_folder("config").with_suffix(".yaml")
        config.write_text("train: {seed: 3}\n")
        for terminal, extra, least, most in ((120, {}, 100, 120), (120, {"COLUMNS": "90"}, 80, 90)):
            words = [LAUNCH / "run_local.sh", "--ranks", "2", config, *self.short_run()[1:]]
            text = self.shown([str(word) for word in words], columns=terminal, BERTHA=BERTHA, **extra)
            lines = [line for line in text.replace("\r", "").splitlines() if " step " in line]
            self.assertTrue(least < max(map(len, lines)) <= most, text)  # 160 in a file

    def test_long_lines_and_wide_tables_fit_a_terminal(self):
        differences = ("config", "diff", *self.folders.values())
        reports = {differences: 0,
                   ("plan", *self.data.config(), "--gpu-memory", "80GB"): 0,
                   ("config", "check", "--set", "train.max_step=3", "--set", "model.heads=7",
                    "--set", "train.target_accuracy=2", "--set", "train.accumulation_steps=3"): 2}
        for words, code in reports.items():
            for line in self.on_terminal(*words, code=code):
                longest = max(map(len, line.split() or [""]))
                self.assertTrue(len(line) <= 80 or longest > 40, line)  # but paths stay whole
        self.assertIn("log.run_dir", self.on_terminal(*differences))  # its values below each other
        wide = self.on_terminal(*differences, columns=1000)
        self.assertEqual(sum(line.startswith("log.run_dir  ") for line in wide), 1)

    def test_reports_as_json_have_one_shape(self):
        stats = self.report("data", "stats", self.data.train)
        verify = self.report("data", "verify", self.data.train)
        self.assertEqual(stats["samples"], verify["samples"])
        self.assertTrue(verify["sound"])
        keys = self.report("config", "show", "--set", "train.seed=7")["keys"]
        self.assertEqual(keys["train.seed"], {"value": 7, "origin": "--set train.seed=7"})
        self.assertEqual(keys["model.gelu"], {"value": "tanh", "origin": "default"})
        shown = self.report("checkpoint", "show", self.folder)
        self.assertEqual(shown["state"]["step"], 40)
        self.assertEqual(shown["state"]["evaluations"][-1]["mlm_accuracy"],
                         records(self.folder, "eval")[-1]["mlm_accuracy"])
        path = self.new_folder("report")
        path.write_text("mine\n")
        self.assert_failure(bertha("checkpoint", "show", "/nowhere", "--json", path), 4, "/nowhere")
        self.assertEqual(path.read_text(), "mine\n")


if __name__ == "__main__":
    main()
