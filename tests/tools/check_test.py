"""bertha-tools check gives the verdict of the official checkers on a real run's log, on that log
broken in many ways and on folders of ten, and the C++ command agrees but where it is stricter.

usage: check_test.py BERTHA
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from mllog_case import TOKEN, TOOLS, Log, MllogCase, program, ten, tool  # noqa: E402
from official_mlperf import RULE_SETS, Compliance, Package, seeds_pass  # noqa: E402

PLACE = {"file": "a.cpp", "lineno": 1}
# Ways to break a good log.
CASES = {
    "as written": lambda log: log,
    "with a rank in front": lambda log: Log(log.text().replace(TOKEN, "0: " + TOKEN)),
    "accuracy just below the target": lambda log: log.accuracy(0.7199999),
    "accuracy at the target": lambda log: log.accuracy(0.72),
    "accuracy of 1": lambda log: log.accuracy(1.0),
    "accuracy is text": lambda log: log.accuracy("0.7202"),
    "accuracy is null": lambda log: log.accuracy(None),
    "accuracy without samples": lambda log: log.edited("eval_accuracy", metadata={}),
    "accuracy by samples_count": lambda log: log.edited("eval_accuracy",
                                                        metadata={"samples_count": 150}),
    "metadata is text": lambda log: log.edited("eval_accuracy", metadata="epoch_num"),
    "epochs by samples_count": lambda log: log.edited("epoch_start",
                                                      metadata={"samples_count": 0}),
    "epoch_stop without progress": lambda log: log.edited("epoch_stop", metadata=PLACE),
    "neither block nor epoch starts": lambda log: log.without("block_start").without("epoch_start"),
    "no eval interval, no block stops": lambda log: log.without("block_stop").without("eval_stop"),
    "block without count": lambda log: log.edited("block_start", metadata={"first_epoch_num": 1}),
    "block of no epochs": lambda log: log.edited(
        "block_start", metadata={"first_epoch_num": 1, "epoch_count": 0}),
    "init_stop after run_start": lambda log: log.moved("run_start", "init_stop"),
    "init_stop before init_start": lambda log: log.moved("init_stop", "init_start"),
    "init_start again": lambda log: log.repeated("init_start"),
    "run_stop before run_start": lambda log: log.moved("run_stop", "run_start"),
    "block_start before run_start": lambda log: log.moved("block_start", "run_start"),
    "division after initialisation": lambda log: log.moved("submission_division", "run_start"),
    "31 minutes of initialisation": lambda log: log.init_minutes(31),
    "29 minutes of initialisation": lambda log: log.init_minutes(29),
    "run_stop without status": lambda log: log.edited("run_stop", metadata=PLACE),
    "aborted after the target": lambda log: log.edited("run_stop", metadata={"status": "aborted"}),
    "batch size twice": lambda log: log.repeated("global_batch_size"),
    "two batch sizes": lambda log: log.repeated("global_batch_size", value=449),
    "no accumulation": lambda log: log.edited("gradient_accumulation_steps", value=0),
    "accumulation is text": lambda log: log.edited("gradient_accumulation_steps", value="1"),
    "another benchmark": lambda log: log.edited("submission_benchmark", value="bart"),
    "another division": lambda log: log.edited("submission_division", value="ajar"),
    "open division": lambda log: log.edited("submission_division", value="open").accuracy(0.1),
    "open division without a seed": lambda log: log.edited("submission_division",
                                                           value="open").without("seed"),
    "empty train_samples": lambda log: log.edited("train_samples", value=""),
    "glued to a required record": lambda log: log.glued("train_samples"),
    "glued to a record that is not required": lambda log: log.glued("d_batch_size"),
    "torn record": lambda log: log.torn("d_batch_size"),
    "cut in the middle": lambda log: log.cut("eval_accuracy"),
    "cut before run_stop": lambda log: log.cut("run_stop"),
    "record is a list": lambda log: log.with_lines(TOKEN + "[1]"),
    "record is null": lambda log: log.with_lines(TOKEN + "null"),
    "record without metadata": lambda log: log.edited("d_batch_size", metadata=...),
    "lines that are no records": lambda log: log.with_lines("hello", "{\"key\": 1}"),
    "time is text": lambda log: log.edited(
        "d_batch_size", time_ms=str(log.record("d_batch_size")["time_ms"] + 0.5)),
    "time is no number": lambda log: log.edited("d_batch_size", time_ms="1.2.3"),
    "seed is text of a number": lambda log: log.edited("seed", value="12"),
    "seed is text": lambda log: log.edited("seed", value="twelve"),
    "seed is null": lambda log: log.edited("seed", value=None),
    "seed without its place": lambda log: log.edited("seed", metadata={}),
    "seed twice from one line": lambda log: log.repeated("seed"),
    "seed twice from two lines": lambda log: log.repeated("seed", metadata=PLACE),
    "no record": lambda log: Log("hello\n"),
    "empty file": lambda log: Log(""),
    # What the C++ command refuses and the official checkers do not look at: a warning.
    "clock set back": lambda log: log.edited("run_stop", time_ms=1),
    "target reached after the run": lambda log: log.accuracy(0.7199).repeated(
        "eval_accuracy", value=0.73, metadata={"epoch_num": 160}),
    "run_start twice": lambda log: log.repeated("run_start"),
    "run_stop twice": lambda log: log.repeated("run_stop"),
}
CASES.update({f"no {key}": lambda log, key=key: log.without(key) for key in (
    "cache_clear init_start init_stop run_start run_stop submission_benchmark submission_division "
    "gradient_accumulation_steps global_batch_size opt_base_learning_rate opt_lamb_epsilon "
    "opt_learning_rate_training_steps opt_learning_rate_warmup_steps num_warmup_steps seed "
    "start_warmup_step opt_lamb_beta_1 opt_lamb_beta_2 opt_lamb_weight_decay_rate eval_accuracy "
    "train_samples eval_samples block_start block_stop epoch_start eval_stop opt_epsilon "
    "submission_org submission_platform submission_status").split()})
# Warnings of the tool on logs that the C++ command refuses.
STRICTER = {"clock set back": "the clock was set back",
            "target reached after the run": "is reached after run_stop only",
            "run_start twice": "EXACTLY_ONE occurrence of 'run_start' but found 2",
            "run_stop twice": "EXACTLY_ONE occurrence of 'run_stop' but found 2",
            # The official rule is "'epoch_num' in metadata", which text passes.
            "metadata is text": ""}

MISSED = dict(status="aborted", accuracy=0.7199)
FOLDERS = {
    "slower than the reference": ten(2_500_000),
    "faster than its mean": ten(2_350_000),
    "just allowed": ten(2_274_733),
    "just too fast": ten(2_274_731),
    "between two points, faster": ten(2_306_740, batch_seqs=768),
    "between two points, too fast": ten(2_306_730, batch_seqs=768),
    "below all points": ten(2_600_000, batch_seqs=256),
    "below all points and fast": ten(2_200_000, batch_seqs=256),
    "above all points": ten(6_000_000, batch_seqs=20_000),
    "one run misses, the rest fast": ten(2_330_000, run_0=MISSED),
    "two runs miss": ten(2_500_000, run_4=MISSED, run_7=MISSED),
    "one log lacks a key": ten(2_500_000,
                               run_3=dict(change=lambda log: log.without("train_samples"))),
    "one log has a torn record": ten(2_500_000,
                                     run_3=dict(change=lambda log: log.torn("d_batch_size"))),
    "one log has no seed": ten(2_500_000, run_3=dict(change=lambda log: log.without("seed"))),
    "one log has no evaluation": ten(
        2_500_000, run_3=dict(change=lambda log: log.without("eval_accuracy"))),
    "one accuracy is null": ten(2_500_000, run_3=dict(accuracy=None)),
    "nine runs": ten(2_500_000, runs=9),
    "two batch sizes": ten(2_500_000, run_9=dict(batch_seqs=449)),
    "a seed twice": ten(2_500_000, run_9=dict(seed=103)),
    "one success below the target": ten(2_500_000, run_3=dict(accuracy=0.7199)),
    "one log of the open division": ten(2_500_000, run_3=dict(
        change=lambda log: log.edited("submission_division", value="open"))),
}
# Of folders: what the official checker decides and the C++ command otherwise, and the tool's words.
OTHERWISE = {
    "one success below the target": "run_stop says success, but no eval_accuracy before it reaches",
    "one log of the open division": "submission_division is not closed as in the others",
}


class Check(MllogCase):
    def test_the_verdict_on_one_log_is_the_official_one(self):
        path = self.folder / "result_0.txt"
        for name, change in CASES.items():
            path.write_text(change(Log(self.good)).text())
            for rule_set in RULE_SETS:
                with self.subTest(name, rule_set=rule_set):
                    is_open = '"submission_division", "value": "open"' in path.read_text()
                    official = Compliance(path, rule_set)
                    wanted = official.passed and (is_open or seeds_pass([path], rule_set))
                    code, said, _ = tool("check", path, "--ruleset", rule_set)
                    self.assertEqual(code, 0 if wanted else 8, (official.messages, said))
                    self.assertEqual(": error: " in said, not wanted, said)
                    code, native = program(self.bertha, "log", "check", path, "--ruleset", rule_set)
                    self.assertEqual(code == 0, wanted and name not in STRICTER, native)
                    self.assertIn(STRICTER.get(name, ""), said)

    def test_the_verdict_on_ten_runs_is_the_official_one(self):
        for number, (name, runs) in enumerate(FOLDERS.items()):
            with self.subTest(name):
                folder = self.write_folder(f"folder_{number}", runs)
                rule_set = RULE_SETS[number % 2]  # their reference points are the same
                official = Package(folder, rule_set)
                words = (folder, "--ruleset", rule_set, "--json", "-")
                code, said, _ = tool("check", *words)
                report = json.loads(said)
                self.assertEqual(code, 0 if official.passed else 8, report["errors"])
                self.assertEqual(bool(report["errors"]), code == 8)
                if official.score is not None and code == 0:
                    self.assertAlmostEqual(report["score_minutes"], official.score)
                self.assertFalse((folder / "scaling.json").exists())
                code, native = program(self.bertha, "log", "check", *words)
                if name in OTHERWISE:
                    self.assertNotEqual(code == 0, official.passed)
                    self.assertIn(OTHERWISE[name], tool("check", folder)[1])
                    continue
                self.assertEqual(code == 0, official.passed, native)
                native = json.loads(native)
                if code == 0:
                    self.assertAlmostEqual(report["score_minutes"], native["score_minutes"], 6)
                for ours, theirs in zip(report["logs"], native["logs"]):
                    for key in ("path", "passed", "records", "reached_target", "best_accuracy",
                                "samples_to_target", "minutes"):
                        self.assertEqual(ours[key], theirs[key], key)

    def write_folder(self, name, runs):
        folder = self.folder / name
        folder.mkdir()
        for i, run in enumerate(runs):
            (folder / f"result_{i}.txt").write_text(Log(self.good).as_run(**run).text())
        return folder

    def test_samples_may_be_read_from_train_samples(self):
        def early(log):
            samples = log.record("eval_accuracy", last=True)["metadata"]["epoch_num"]
            place = {**log.record("seed")["metadata"], "epoch_num": 1}
            return log.edited("train_samples", value=samples).edited("eval_accuracy", last=True,
                                                                     metadata=place)
        runs = [dict(run, change=early) for run in ten(2_500_000)]
        folder = self.write_folder("train_samples", runs)
        code, said, _ = tool("check", folder)
        self.assertEqual(code, 8, said)
        self.assertIn("look for a difference from the reference", said)
        code, said, _ = tool("check", folder, "--samples-from", "train_samples")
        self.assertEqual(code, 0, said)
        self.assertIn("RCP      Passed: RCP found: the runs needed 2500000 samples", said)

    def test_a_real_run_misses_the_target_only(self):
        for given in (self.run_dir, self.real):
            code, said, _ = tool("check", given)
            self.assertEqual(code, 8, said)
            self.assertEqual(said.count(": error: "), 1, said)
            self.assertIn("Failed checks for eval_accuracy : (v['value'] >= 0.720)", said)
            self.assertIn("does not comply with rule set 5.0.0 for BERT\n", said)

    def test_another_target_replaces_one_rule_and_is_named(self):
        best = max(json.loads(line.partition(TOKEN)[2])["value"]
                   for line in self.real.read_text().splitlines() if '"eval_accuracy"' in line)
        for target, wanted in ((best, 0), (best + 1e-4, 8), (0, 0)):
            for option in ("--target", "--target-accuracy"):
                code, said, _ = tool("check", self.run_dir, option, target)
                self.assertEqual(code, wanted, said)
                self.assertIn(f"with target {target:g} in place of the benchmark's 0.720", said)
            native = program(self.bertha, "log", "check", self.run_dir, "--target-accuracy", target)
            self.assertEqual(native[0], wanted, native)
        broken = self.folder / "broken.txt"
        broken.write_text(Log(self.real.read_text()).without("seed").text())
        self.assertEqual(tool("check", broken, "--target", 0)[0], 8)

    def test_ten_runs_with_another_target_are_not_compared_with_the_reference(self):
        runs = ten(1_000_000, run_2=MISSED, run_3=MISSED)
        folder = self.write_folder("other_target", [dict(run, accuracy=0.3) for run in runs])
        code, said, _ = tool("check", folder, "--target", 0.3)
        self.assertEqual(code, 8, said)  # two say that they missed it
        folder = self.write_folder("other_target_reached", ten(1_000_000))
        for words in ((), ("--target", 0.3)):
            code, said, _ = tool("check", folder, *words)
            native = program(self.bertha, "log", "check", folder, *(
                "--target-accuracy" if word == "--target" else word for word in words))
            self.assertEqual(code, 0 if words else 8, said)
            self.assertEqual(code, native[0], native)
        self.assertIn("RCP      not tested", said)

    def test_json_has_the_fields_of_the_program(self):
        path = self.folder / "report.json"
        code, said, _ = tool("check", self.run_dir, "--json", path)
        self.assertIn("does not comply", said)
        report = json.loads(path.read_text())
        native = json.loads(program(self.bertha, "log", "check", self.run_dir, "--json", "-")[1])
        self.assertEqual((report["command"], report["exit_code"]), ("check", code))
        self.assertLessEqual(set(native), set(report))
        self.assertLessEqual(set(native["logs"][0]), set(report["logs"][0]))
        self.assertEqual(report["logs"][0]["records"], native["logs"][0]["records"])
        self.assertEqual(report["curve_remarks"], native["curve_remarks"])

    def test_findings_name_the_line_of_the_file(self):
        path = self.folder / "lines.txt"
        log = Log("something else\n\n" + self.good).edited("gradient_accumulation_steps", value=0)
        path.write_text(log.text())
        line = 1 + log.at("gradient_accumulation_steps")
        self.assertIn(f"{path}:{line}: error: gradient_accumulation_steps: fails v['value'] > 0; "
                      'found {"value": 0, "metadata"', tool("check", path)[1])

    def test_what_cannot_be_read_is_refused_in_a_sentence(self):
        pipe, empty, runs = (self.folder / name for name in ("pipe", "empty", "runs"))
        os.mkfifo(pipe)
        empty.mkdir()
        (runs / "run_0" / "mllog").mkdir(parents=True)
        (runs / "run_0" / "mllog" / "result_0.txt").write_text(self.good)
        for words, code, sentence in (
                ((self.folder / "none.txt",), 4, "there is no such file"),
                ((pipe,), 4, "is a folder or a device"),
                ((empty,), 4, "is a folder with neither"),
                ((runs,), 4, "name each run to check, such as"),
                ((self.real, self.real), 2, "is given twice"),
                ((self.real, "--target", "nan"), 2, "want a number from 0 to 1"),
                ((self.real, "--ruleset", "6.1.0"), 2, "invalid choice"),
                ((self.real, "--json", "/dev/full"), 4, "is a device"),
                ((self.real, "--json", empty / "no" / "x"), 4, "cannot write the file")):
            with self.subTest(words):
                found, _, said = tool("check", *words)
                self.assertEqual(found, code, said)
                self.assertIn(sentence, said)

    def test_without_the_official_package_a_sentence_says_what_to_install(self):
        fake = self.folder / "fake" / "mlperf_logging"
        fake.mkdir(parents=True)
        (fake / "__init__.py").write_text("raise ImportError('none')\n")
        done = subprocess.run(
            [sys.executable, "-m", "bertha_tools.main", "check", str(self.real)], text=True,
            env={**os.environ, "PYTHONPATH": f"{fake.parent}:{TOOLS}"}, capture_output=True,
            check=False)
        self.assertEqual(done.returncode, 5, done)
        self.assertIn("run pip install mlperf-logging==4.1.68", done.stderr)

    def test_a_log_cannot_steer_the_terminal_or_choose_rules(self):
        # The official checker executes a file of rules whose name ends with this value.
        planted, done = self.folder / "x_common.yaml", self.folder / "done"
        planted.write_text(f"- BEGIN:\n    CODE: \"open('{done}', 'w')\"\n")
        path = self.folder / "steers.txt"
        place = "../" * 12 + str(self.folder / "x")
        log = Log(self.good).edited("submission_division", value=place)
        path.write_text(log.edited("seed", value="\x1b[2J").text())
        code, said, _ = tool("check", path)
        self.assertEqual(code, 8, said)
        self.assertNotIn("\x1b", said)
        self.assertFalse(done.exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2, warnings="ignore")
