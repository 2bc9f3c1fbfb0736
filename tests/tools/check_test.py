"""bertha-tools check gives the verdict of the official checkers on a real run's log, on that log broken in
many ways and on folders of ten."""

import json
import os

from mllog_case import TOKEN, Log, MllogCase, ten
from official_mlperf import RULE_SETS, Compliance, Package, seeds_pass
from tool_case import main, process

PLACE = {"file": "a.cpp", "lineno": 1}
# Ways to change a good log: fields of a record, and others.
EDITS = (
    ("eval_accuracy", "metadata", {}), ("eval_accuracy", "metadata", {"samples_count": 150}),
    ("eval_accuracy", "metadata", "epoch_num"), ("epoch_start", "metadata", {"samples_count": 0}),
    ("epoch_stop", "metadata", PLACE), ("block_start", "metadata", {"first_epoch_num": 1}),
    ("block_start", "metadata", {"first_epoch_num": 1, "epoch_count": 0}), ("run_stop", "metadata", PLACE),
    ("run_stop", "metadata", {"status": "aborted"}), ("gradient_accumulation_steps", "value", 0),
    ("gradient_accumulation_steps", "value", "1"), ("submission_benchmark", "value", "bart"),
    ("submission_division", "value", "ajar"), ("train_samples", "value", ""), ("run_stop", "time_ms", 1),
    ("d_batch_size", "metadata", ...), ("d_batch_size", "time_ms", "1.2.3"), ("seed", "metadata", {}),
    ("seed", "value", "12"), ("seed", "value", "twelve"), ("seed", "value", None))
CASES = {
    "as written": lambda log: log,
    "with a rank in front": lambda log: Log(log.text().replace(TOKEN, "0: " + TOKEN)),
    "neither block nor epoch starts": lambda log: log.without("block_start").without("epoch_start"),
    "no eval interval, no block stops": lambda log: log.without("block_stop").without("eval_stop"),
    "two batch sizes": lambda log: log.repeated("global_batch_size", value=449),
    "open division": lambda log: log.edited("submission_division", value="open").accuracy(0.1),
    "open division, no seed": lambda log: log.without("seed").edited("submission_division", value="open"),
    "glued to a required record": lambda log: log.glued("train_samples"),
    "glued to a record that is not required": lambda log: log.glued("d_batch_size"),
    "torn record": lambda log: log.torn("d_batch_size"),
    "cut in the middle": lambda log: log.cut("eval_accuracy"),
    "cut before run_stop": lambda log: log.cut("run_stop"),
    "record is a list": lambda log: log.with_lines(TOKEN + "[1]"),
    "record is null": lambda log: log.with_lines(TOKEN + "null"),
    "lines that are no records": lambda log: log.with_lines("hello", "{\"key\": 1}"),
    "time is text": lambda log: log.edited(
        "d_batch_size", time_ms=str(log.record("d_batch_size")["time_ms"] + 0.5)),
    "seeds from two lines": lambda log: log.repeated("seed", metadata=PLACE),
    "no record": lambda log: Log("hello\n"),
    "empty file": lambda log: Log(""),
    "target reached after the run": lambda log: log.accuracy(0.7199).repeated(
        "eval_accuracy", value=0.73, metadata={"epoch_num": 160}),
}
CASES.update({f"accuracy {value!r}": lambda log, value=value: log.accuracy(value)
              for value in (0.7199999, 0.72, 1.0, "0.7202", None)})
CASES.update({f"{field} {value!r} of {key}": lambda log, key=key, edit={field: value}: log.edited(key, **edit)
              for key, field, value in EDITS})
CASES.update({f"{minutes} minutes of initialization": lambda log, minutes=minutes: log.init_minutes(minutes)
              for minutes in (29, 31)})
CASES.update({f"{pair[0]} before {pair[1]}": lambda log, pair=pair: log.moved(*pair) for pair in (
    ("run_start", "init_stop"), ("init_stop", "init_start"), ("run_stop", "run_start"),
    ("block_start", "run_start"), ("submission_division", "run_start"))})
CASES.update({f"{key} twice": lambda log, key=key: log.repeated(key)
              for key in ("init_start", "run_start", "run_stop", "global_batch_size", "seed")})
CASES.update({f"no {key}": lambda log, key=key: log.without(key) for key in (
    "cache_clear init_start init_stop run_start run_stop submission_benchmark submission_division "
    "gradient_accumulation_steps global_batch_size opt_base_learning_rate opt_lamb_epsilon "
    "opt_learning_rate_training_steps opt_learning_rate_warmup_steps num_warmup_steps seed "
    "start_warmup_step opt_lamb_beta_1 opt_lamb_beta_2 opt_lamb_weight_decay_rate eval_accuracy "
    "train_samples eval_samples block_start block_stop epoch_start eval_stop opt_epsilon "
    "submission_org submission_platform submission_status").split()})
# What the official checkers do not look at.
WARNINGS = {"time_ms 1 of run_stop": "the clock was set back",
            "target reached after the run": "is reached only after run_stop",
            "run_start twice": "EXACTLY_ONE occurrence of 'run_start' but found 2",
            "run_stop twice": "EXACTLY_ONE occurrence of 'run_stop' but found 2"}

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
    "one log lacks a key": ten(2_500_000, run_3=dict(change=lambda log: log.without("train_samples"))),
    "one log has a torn record": ten(2_500_000, run_3=dict(change=lambda log: log.torn("d_batch_size"))),
    "one log has no seed": ten(2_500_000, run_3=dict(change=lambda log: log.without("seed"))),
    "one log has no evaluation": ten(2_500_000, run_3=dict(change=lambda log: log.without("eval_accuracy"))),
    "one accuracy is null": ten(2_500_000, run_3=dict(accuracy=None)),
    "nine runs": ten(2_500_000, runs=9),
    "two batch sizes": ten(2_500_000, run_9=dict(batch_seqs=449)),
    "a seed twice": ten(2_500_000, run_9=dict(seed=103)),
    "one success below the target": ten(2_500_000, run_3=dict(accuracy=0.7199)),
    "one log of the open division": ten(2_500_000, run_3=dict(
        change=lambda log: log.edited("submission_division", value="open"))),
}
WARNINGS_OF_FOLDERS = {
    "one success below the target": "run_stop states success, but no eval_accuracy before it reaches",
    "one log of the open division": "submission_division is not closed as in the others",
}


class Check(MllogCase):
    def write_folder(self, runs, name="runs"):
        folder = self.folder / name
        folder.mkdir()
        for i, run in enumerate(runs):
            (folder / f"result_{i}.txt").write_text(Log(self.good).as_run(**run).text())
        return folder

    def test_the_verdict_on_one_log_is_the_official_one(self):
        path = self.folder / "result_0.txt"
        for name, change in CASES.items():
            path.write_text(change(Log(self.good)).text())
            for rule_set in RULE_SETS:
                with self.subTest(name, rule_set=rule_set):
                    is_open = '"submission_division", "value": "open"' in path.read_text()
                    wanted = Compliance(path, rule_set).passed and (is_open or seeds_pass([path], rule_set))
                    said = self.tool("check", path, "--ruleset", rule_set, code=0 if wanted else 8)
                    self.assertEqual(": error: " in said, not wanted, said)
                    self.assertIn(WARNINGS.get(name, ""), said)

    def test_the_verdict_on_ten_runs_is_the_official_one(self):
        for number, (name, runs) in enumerate(FOLDERS.items()):
            with self.subTest(name):
                folder = self.write_folder(runs, f"folder_{number}")
                rule_set = RULE_SETS[number % 2]  # their reference points are the same
                official = Package(folder, rule_set)
                code = 0 if official.passed else 8
                report = self.report("check", folder, "--ruleset", rule_set, code=code)
                self.assertEqual(bool(report["errors"]), not official.passed)
                self.assertIn(WARNINGS_OF_FOLDERS.get(name, ""), json.dumps(report))
                if official.score is not None and official.passed:
                    self.assertAlmostEqual(report["score_minutes"], official.score)
                self.assertFalse((folder / "scaling.json").exists())

    def test_reports_have_the_figures_of_each_log(self):
        runs = ten(2_500_000, run_4=MISSED)
        folder = self.write_folder(runs)
        report = self.report("check", folder)
        self.assertAlmostEqual(report["score_minutes"], 11.15625)  # without the missed run and the fastest
        for i, (run, log) in enumerate(zip(runs, report["logs"])):
            reached = i != 4
            wanted = {"path": f"{folder}/result_{i}.txt", "records": self.good.count(TOKEN),
                      "passed": reached, "reached_target": reached, "minutes": run["minutes"],
                      "best_accuracy": 0.7203 if reached else 0.7199,
                      "samples_to_target": run["samples"] if reached else None}
            self.assertEqual({name: log[name] for name in wanted}, wanted)

    def test_samples_may_be_read_from_train_samples(self):
        def early(log):
            samples = log.record("eval_accuracy", last=True)["metadata"]["epoch_num"]
            place = {**log.record("seed")["metadata"], "epoch_num": 1}
            log.edited("train_samples", value=samples)
            return log.edited("eval_accuracy", last=True, metadata=place)
        folder = self.write_folder([dict(run, change=early) for run in ten(2_500_000)])
        self.assertIn("look for a difference from the reference", self.tool("check", folder, code=8))
        self.assertIn("RCP      Passed: RCP found: the runs needed 2500000 samples on average, the reference "
                      "needs 2414421 (batch 448), allowed is a mean of at least 2274732",
                      self.tool("check", folder, "--samples-from", "train_samples"))

    def test_a_real_run_misses_the_target_only(self):
        for given in (self.run_dir, self.real):
            said = self.tool("check", given, code=8)
            self.assertEqual(said.count(": error: "), 1, said)
            self.assertIn("Failed checks for eval_accuracy : (v['value'] >= 0.720)", said)
            self.assertIn("does not comply with rule set 5.0.0 for BERT\n", said)

    def test_another_target_replaces_one_rule_and_is_named(self):
        best = max(json.loads(line.partition(TOKEN)[2])["value"]
                   for line in self.real.read_text().splitlines() if '"eval_accuracy"' in line)
        for target, wanted in ((best, 0), (best + 1e-4, 8), (0, 0)):
            for option in ("--target", "--target-accuracy"):
                self.assertIn(f"with target {target:g} instead of the benchmark's 0.720",
                              self.tool("check", self.run_dir, option, target, code=wanted))
        broken = self.folder / "broken.txt"
        broken.write_text(Log(self.real.read_text()).without("seed").text())
        self.tool("check", broken, "--target", 0, code=8)

    def test_ten_runs_with_another_target_are_not_compared_with_the_reference(self):
        runs = ten(1_000_000, run_2=MISSED, run_3=MISSED)
        folder = self.write_folder([dict(run, accuracy=0.3) for run in runs], "missed")
        self.tool("check", folder, "--target", 0.3, code=8)  # two say that they missed it
        folder = self.write_folder(ten(1_000_000))
        self.tool("check", folder, code=8)
        self.assertIn("RCP      not tested", self.tool("check", folder, "--target", 0.3))

    def test_a_report_may_be_a_file(self):
        path = self.folder / "report.json"
        self.assertIn("does not comply", self.tool("check", self.run_dir, "--json", path, code=8))
        report = json.loads(path.read_text())
        self.assertEqual(set(report), {"command", "exit_code", "rule_set", "target_accuracy", "logs",
                                       "curve_remarks"})
        (log,) = report["logs"]
        self.assertEqual((log["records"], report["curve_remarks"]), (self.good.count(TOKEN), []))
        self.assertEqual(log["findings"][0], {
            "level": "error", "line": 0, "text": "Failed checks for eval_accuracy : (v['value'] >= 0.720) "
            f"and v['value'] < 1.0; the best is {log['best_accuracy']:.4f}"})

    def test_findings_name_the_line_of_the_file(self):
        path = self.folder / "lines.txt"
        log = Log("something else\n\n" + self.good).edited("gradient_accumulation_steps", value=0)
        path.write_text(log.text())
        line = 1 + log.at("gradient_accumulation_steps")
        self.assertIn(f"{path}:{line}: error: gradient_accumulation_steps: fails v['value'] > 0; "
                      'found {"value": 0, "metadata"', self.tool("check", path, code=8))

    def test_what_cannot_be_read_is_refused_in_a_sentence(self):
        pipe, empty, runs = (self.folder / name for name in ("pipe", "empty", "runs"))
        os.mkfifo(pipe)
        empty.mkdir()
        (runs / "run_0" / "mllog").mkdir(parents=True)
        (runs / "run_0" / "mllog" / "result_0.txt").write_text(self.good)
        for words, code, sentence in (
                ((self.folder / "none.txt",), 4, "no such file"),
                ((pipe,), 4, "is a folder or a device"),
                ((empty,), 4, "is a folder without"),
                ((runs,), 4, "give each run to check, such as"),
                ((self.real, self.real), 2, "is given twice"),
                ((self.real, "--target", "nan"), 2, "want a number from 0 to 1"),
                ((self.real, "--ruleset", "6.1.0"), 2, "invalid choice"),
                ((self.real, "--json", "/dev/full"), 4, "is a device"),
                ((self.real, "--json", empty / "no" / "x"), 4, "cannot write the file")):
            self.assertIn(sentence, self.tool("check", *words, code=code))

    def test_without_the_official_package_a_sentence_says_what_to_install(self):
        (self.folder / "mlperf_logging").mkdir()
        (self.folder / "mlperf_logging" / "__init__.py").write_text("raise ImportError('none')\n")
        done = process("check", self.real, cwd=self.folder)  # where Python looks first
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
        self.assertNotIn("\x1b", self.tool("check", path, code=8))
        self.assertFalse(done.exists())


if __name__ == "__main__":
    main()
