"""What a run shows while it trains and afterwards: its lines, `bertha watch`, and reports as JSON."""

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

    def watch(self, *words, columns, code):
        done = bertha("watch", *words, "--once", extra={"COLUMNS": str(columns), "LINES": "40"})
        self.assertEqual(done.code, code, done)
        self.assertLessEqual(max(map(len, done.out.splitlines())), columns, done)
        return done.out

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
        self.assertIn("mlm loss ", frame := self.watch(folder, columns=80, code=0))
        (events,) = (folder / "tb").glob("events.out.tfevents.*")
        checkpoint = folder / "ckpt" / "step_00000004"
        arguments = ("eval", "--checkpoint", checkpoint, *self.data.config(**changes))
        printed = bertha(*arguments).out
        self.assertIn("masked-token accuracy", printed)
        for shown in (done.out + done.err, frame, events.read_bytes().decode(errors="replace"),
                      (folder / "plots" / "loss.svg").read_text(), printed):
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

    def test_a_run_that_has_ended_is_watched_with_its_exit_code(self):
        for columns in COLUMNS:
            frame = self.watch(self.folder, columns=columns, code=3)
            for text in ("ended without reaching the target", "step 40 of 40", "Masked-token",
                         "2 ranks", "longest on rank", "mlm loss", "alarms", "saved "):
                self.assertIn(text, frame)

    def test_a_run_whose_process_is_gone_is_named(self):
        folder = self.new_folder()
        self.train(folder, train__max_steps=4)
        path = folder / "metrics.jsonl"
        lines = path.read_text().splitlines()
        self.assertEqual(json.loads(lines.pop())["kind"], "stop")
        path.write_text("\n".join(lines) + '\n{"kind":"st')
        self.assertIn("ended without recording why", self.watch(folder, columns=80, code=137))

    def test_a_folder_without_a_run_is_refused(self):
        self.assert_failure(bertha("watch", self.scratch / "none"), 4, "metrics.jsonl")

    def test_the_view_in_a_terminal_ends_with_the_run(self):
        folder = self.new_folder()
        words = command(["train", *self.data.config(log__run_dir=folder, train__max_steps=400,
                                                    train__log_every_steps=20,
                                                    optimizer__schedule_steps=400)], 2)
        with subprocess.Popen(words, env=environment(), stderr=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL) as run:
            while not (folder / "metrics.jsonl").exists() or not records(folder, "step"):
                self.assertIsNone(run.poll())
            leader, follower = pty.openpty()
            view = subprocess.Popen(command(["watch", folder, "--every", "0.2"], 0),
                                    env=environment({"TERM": "xterm"}), stdout=follower)
            os.close(follower)
            text = shown_on(leader)
            self.assertEqual(view.wait(), 0)
            self.assertEqual(run.wait(), 0)
        self.assertIn("running", text)
        self.assertIn("ended as planned", text)
        self.assertGreater(len(re.findall("\x1b\\[\\d+A", text)), 1)

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
        reports = {("compare", *self.folders.values(), "."): 4,
                   ("compare", *self.folders.values(), *self.folders.values()): 0,
                   ("plan", *self.data.config(), "--gpu-memory", "80GB"): 0,
                   ("config", "check", "--set", "train.max_step=3", "--set", "model.heads=7",
                    "--set", "train.target_accuracy=2", "--set", "train.accumulation_steps=3"): 2}
        for words, code in reports.items():
            for line in self.on_terminal(*words, code=code):
                longest = max(map(len, line.split() or [""]))
                self.assertTrue(len(line) <= 80 or longest > 40, line)  # but paths stay whole
        stacked = self.on_terminal("compare", *self.folders.values(), *self.folders.values())
        at = stacked.index("parameters")
        below = " ".join(stacked[at + 1:]).split()  # a long path has a line of its own
        self.assertEqual(below[0:8:2], [str(folder) for folder in self.folders.values()] * 2)
        wide = self.on_terminal("compare", *self.folders.values(), columns=400)
        self.assertEqual(sum(line.startswith("parameters  ") for line in wide), 1)

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
        compared = self.report("compare", self.folder, self.folders[80])
        self.assertEqual([run["samples"] for run in compared["runs"]], [480, 480])
        self.assertIsNone(compared["runs"][0]["seconds_to_target"])
        self.assertEqual(list(compared["differing_keys"]), ["log.run_dir"])
        checked = self.report("log", "check", self.folder, code=8)
        self.assertFalse(checked["logs"][0]["passed"])
        self.assertTrue(any(f["level"] == "error" for f in checked["logs"][0]["findings"]))
        path = self.new_folder("report")
        path.write_text("mine\n")
        self.assert_failure(bertha("checkpoint", "show", "/nowhere", "--json", path), 4, "/nowhere")
        self.assertEqual(path.read_text(), "mine\n")
        several = self.report("log", "check", self.folder, self.folders[80], code=8)
        self.assertEqual(len(several["logs"]), 2)
        self.assertTrue(several["errors"])


if __name__ == "__main__":
    main()
