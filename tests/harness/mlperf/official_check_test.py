"""The native verdict on benchmark logs is that of the official checkers: on single logs, good and
broken, and on folders of ten.

usage: official_check_test.py BERTHA WRITE_MLLOG
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from official_mlperf import RULE_SETS, Compliance, Package, ReferencePoints, seeds_pass  # noqa: E402

BERTHA, WRITE_MLLOG = sys.argv[1:3]
TOKEN = ":::MLLOG "


def native(rule_set, *paths):
    """(complies, what the program said)"""
    words = [BERTHA, "log", "check", "--ruleset", rule_set, *map(str, paths)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120, check=False)
    text = done.stdout.decode()
    if done.returncode not in (0, 8):
        raise AssertionError(f"{words}: exit code {done.returncode}\n{text}")
    return done.returncode == 0, text


def write_log(path, batch_seqs=448, seed=7, status="success", init_ms=68_000, run_ms=900_000,
              evaluations=((150080, 0.371), (300160, 0.4012), (450240, 0.7202))):
    subprocess.run([WRITE_MLLOG, str(path), str(batch_seqs), str(seed), status, str(init_ms),
                    str(run_ms), *(f"{s}:{a}" for s, a in evaluations)], check=True, timeout=60)
    return path


class Log:
    """The lines of a log, to be broken."""

    def __init__(self, text):
        self.lines = text.splitlines()

    def at(self, key):
        return next(i for i, line in enumerate(self.lines) if f'"key": "{key}"' in line)

    def without(self, key):
        self.lines = [line for line in self.lines if f'"key": "{key}"' not in line]
        return self

    def edited(self, key, **fields):
        """Fields of the first record with this key replaced; None takes a field out."""
        i = self.at(key)
        record = json.loads(self.lines[i][len(TOKEN):])
        for name, value in fields.items():
            record[name] = value
            if value is None:
                del record[name]
        self.lines[i] = TOKEN + json.dumps(record)
        return self

    def moved(self, key, before):
        line = self.lines.pop(self.at(key))
        self.lines.insert(self.at(before), line)
        return self

    def repeated(self, key, **fields):
        """The first record with this key once more, at the end and at its time."""
        last_ms = json.loads(self.lines[-1][len(TOKEN):])["time_ms"]
        again = Log(self.lines[self.at(key)]).edited(key, **{"time_ms": last_ms, **fields})
        self.lines.append(again.lines[0])
        return self

    def glued(self, key):
        i = self.at(key)
        self.lines[i:i + 2] = [self.lines[i] + self.lines[i + 1]]
        return self

    def torn(self, key):
        i = self.at(key)
        self.lines[i] = self.lines[i][:-9]
        return self

    def replaced(self, old, new):
        if old not in self.text():
            raise AssertionError(f"{old}: not in the log")
        return Log(self.text().replace(old, new))

    def text(self):
        return "".join(line + "\n" for line in self.lines)


REQUIRED = ("cache_clear init_start init_stop run_start run_stop submission_benchmark "
            "submission_division gradient_accumulation_steps global_batch_size "
            "opt_base_learning_rate opt_lamb_epsilon opt_learning_rate_training_steps "
            "opt_learning_rate_warmup_steps num_warmup_steps start_warmup_step opt_lamb_beta_1 "
            "opt_lamb_beta_2 opt_lamb_weight_decay_rate eval_accuracy train_samples eval_samples "
            "seed").split()
OPTIONAL = ("block_start block_stop epoch_start epoch_stop eval_start eval_stop opt_epsilon "
            "tracked_stats weights_initialization d_batch_size").split()
SUBMITTER = "submission_org submission_platform submission_status".split()

PLACE = {"file": "a.cpp", "lineno": 1}
# name: (verdict under 4.0.0, verdict under 5.0.0, how to break a good log)
CASES = {
    "as written": (True, True, lambda log: log),
    "with a rank in front": (True, True, lambda log: log.replaced(TOKEN, "0: " + TOKEN)),
    "eval far below the target": (False, False, lambda log: log.replaced("0.7202", "0.5")),
    "eval just below the target": (False, False, lambda log: log.replaced(
        "0.7202", "0.7199999")),
    "eval at the target": (True, True, lambda log: log.replaced("0.7202", "0.72")),
    "eval of 1": (False, False, lambda log: log.replaced("0.7202", "1.0")),
    "eval is text": (False, False, lambda log: log.replaced("0.7202", '"0.7202"')),
    "eval is null": (False, False, lambda log: log.replaced("0.7202", "null")),
    "eval without samples": (False, False, lambda log: log.edited("eval_accuracy", metadata={})),
    "eval by samples_count only": (False, False, lambda log: log.edited(
        "eval_accuracy", metadata={"samples_count": 150080})),
    "epochs by samples_count": (False, True, lambda log: log.edited(
        "epoch_start", metadata={"samples_count": 0})),
    "epoch_stop without progress": (False, False, lambda log: log.edited(
        "epoch_stop", metadata=PLACE)),
    "neither block nor epoch starts": (False, False, lambda log: log.without(
        "block_start").without("epoch_start")),
    "no eval interval and no block starts": (False, False, lambda log: log.without(
        "block_start").without("eval_start")),
    "no eval interval and no block stops": (False, False, lambda log: log.without(
        "block_stop").without("eval_stop")),
    "block without count": (False, False, lambda log: log.edited(
        "block_start", metadata={"first_epoch_num": 1})),
    "block of no epochs": (False, False, lambda log: log.edited(
        "block_start", metadata={"first_epoch_num": 1, "epoch_count": 0})),
    "block of samples": (True, True, lambda log: log.edited(
        "block_start", metadata={"samples_count": 0})),
    "initialisation stops after the run starts": (False, False, lambda log: log.moved(
        "run_start", "init_stop")),
    "initialisation stops before it starts": (False, False, lambda log: log.moved(
        "init_stop", "init_start")),
    "initialisation starts again": (False, False, lambda log: log.repeated("init_start")),
    "run stops before it starts": (False, False, lambda log: log.moved("run_stop", "run_start")),
    "block starts before the run": (False, False, lambda log: log.moved("block_start", "run_start")),
    "division after initialisation": (False, False, lambda log: log.moved(
        "submission_division", "run_start")),
    "31 minutes of initialisation": (False, False, lambda log: log.edited(
        "init_start", time_ms=1715252859434 - 29 * 60_000)),
    "29 minutes of initialisation": (True, True, lambda log: log.edited(
        "init_start", time_ms=1715252859434 - 28 * 60_000).edited(
        "cache_clear", time_ms=1715252859434 - 28 * 60_000)),
    "run_stop without status": (False, False, lambda log: log.edited("run_stop", metadata=PLACE)),
    "aborted after the target": (True, True, lambda log: log.edited(
        "run_stop", metadata={"status": "aborted"})),
    "batch size twice": (True, True, lambda log: log.repeated("global_batch_size")),
    "two batch sizes": (False, False, lambda log: log.repeated("global_batch_size", value=449)),
    "no accumulation": (False, False, lambda log: log.edited(
        "gradient_accumulation_steps", value=0)),
    "accumulation is text": (False, False, lambda log: log.edited(
        "gradient_accumulation_steps", value="1")),
    "another benchmark": (False, False, lambda log: log.edited(
        "submission_benchmark", value="bart")),
    "another division": (False, False, lambda log: log.edited(
        "submission_division", value="ajar")),
    "empty train_samples": (False, False, lambda log: log.edited("train_samples", value="")),
    "glued to a required record": (False, False, lambda log: log.glued("train_samples")),
    "glued to a record that is not required": (True, True, lambda log: log.glued("d_batch_size")),
    "torn record": (False, False, lambda log: log.torn("d_batch_size")),
    "text behind a record": (False, False, lambda log: log.replaced("}}\n", "}} x\n")),
    "record without metadata": (False, False, lambda log: log.edited(
        "d_batch_size", metadata=None)),
    "time is text": (True, True, lambda log: log.edited("d_batch_size", time_ms="1715252927434.5")),
    "time is no number": (False, False, lambda log: log.edited("d_batch_size", time_ms="1.2.3")),
    "seed is text of a number": (True, True, lambda log: log.edited("seed", value="12")),
    "seed is text": (False, False, lambda log: log.edited("seed", value="twelve")),
    "seed is null": (False, False, lambda log: log.replaced(
        '"key": "seed", "value": 7', '"key": "seed", "value": null')),
    "seed without its place": (False, False, lambda log: log.edited("seed", metadata={})),
    "seed twice from one line": (False, False, lambda log: log.repeated("seed")),
    "seed twice from two lines": (True, True, lambda log: log.repeated("seed", metadata=PLACE)),
    "empty file": (False, False, lambda log: Log("")),
    "no record": (False, False, lambda log: Log("hello\n")),
}
CASES.update({f"no {key}": (False, False, lambda log, key=key: log.without(key))
              for key in REQUIRED})
CASES.update({f"no {key}": (True, True, lambda log, key=key: log.without(key))
              for key in OPTIONAL})
CASES.update({f"no {key}": (False, True, lambda log, key=key: log.without(key))
              for key in SUBMITTER})
CASES.update({f"empty {key}": (False, True, lambda log, key=key: log.edited(key, value=""))
              for key in SUBMITTER})


# What the official checkers of one log pass, and what the native one says of it.
STRICTER = {
    "the clock is set back": (
        lambda log: log.edited("run_stop", time_ms=1715252859434 - 3_600_000),
        "the clock was set back, so no duration of this log counts"),
    "the target is reached after the run": (
        lambda log: log.replaced("0.7202", "0.7199").repeated(
            "eval_accuracy", value=0.73, metadata={"epoch_num": 450240}),
        "no value in [0.720, 1) before run_stop, the best is 0.7199"),
    "run_start twice": (lambda log: log.repeated("run_start"), "run_start: must occur once"),
    "run_stop twice": (lambda log: log.repeated("run_stop"), "run_stop: must occur once"),
}


class Run:
    """One of ten runs: nine of them alike but for the seed."""

    def __init__(self, seed, samples=2_500_000, batch_seqs=448, status="success", accuracy=0.7203,
                 minutes=15.0, change=None):
        self.seed = seed
        self.samples = samples
        self.batch_seqs = batch_seqs
        self.status = status
        self.accuracy = accuracy
        self.minutes = minutes
        self.change = change  # of the Log, or None

    def write(self, path):
        write_log(path, batch_seqs=self.batch_seqs, seed=self.seed, status=self.status,
                  run_ms=int(self.minutes * 60_000),
                  evaluations=((150_000, 0.37), (self.samples, self.accuracy)))
        if self.change is not None:
            path.write_text(self.change(Log(path.read_text())).text())


def ten(samples, batch_seqs=448, spread=40_000, runs=10, **changes):
    """Runs around a mean; `changes` are {number: {field: value}} as run_N=dict."""
    made = [Run(seed=100 + i, samples=samples + spread * (2 * i - runs + 1) // 2,
                batch_seqs=batch_seqs, minutes=10 + (i * 7 % runs) * 0.25) for i in range(runs)]
    for name, fields in changes.items():
        vars(made[int(name.removeprefix("run_"))]).update(fields)
    return made


MISSED = dict(status="aborted", accuracy=0.7199)
# name: (package passes, start of the native verdict on convergence, runs)
FOLDERS = {
    "slower than the reference": (True, "passed: ", ten(2_500_000)),
    "faster than its mean": (True, "passed, needs scaling by ", ten(2_350_000)),
    "just allowed": (True, "passed, needs scaling by ", ten(2_274_733)),
    "just too fast": (False, "too fast: ", ten(2_274_731)),
    "much too fast": (False, "too fast: ", ten(1_500_000)),
    "between two points": (True, "passed: ", ten(2_492_563, batch_seqs=768)),
    "between two points, faster": (True, "passed, needs scaling by ", ten(2_306_740, batch_seqs=768)),
    "between two points, too fast": (False, "too fast: ", ten(2_306_730, batch_seqs=768)),
    "below all points": (True, "passed: ", ten(2_600_000, batch_seqs=256)),
    "below all points and fast": (False, "missing RCP: ", ten(2_200_000, batch_seqs=256)),
    "above all points": (False, "missing RCP: ", ten(6_000_000, batch_seqs=20_000)),
    "one run misses": (True, "passed: ", ten(2_500_000, run_4=MISSED)),
    "one run misses, the rest fast": (True, "passed, needs scaling by ",
                                      ten(2_330_000, run_0=MISSED)),
    "two runs miss": (False, "not converged: 2 of 10", ten(2_500_000, run_4=MISSED, run_7=MISSED)),
    "one run is aborted after the target": (True, "passed: ", ten(
        2_500_000, run_2=dict(status="aborted"))),
    "one log lacks a key": (True, "passed: ", ten(
        2_500_000, run_3=dict(change=lambda log: log.without("train_samples")))),
    "one log has a torn record": (False, "passed: ", ten(
        2_500_000, run_3=dict(change=lambda log: log.torn("d_batch_size")))),
    "one log has no seed": (False, "passed: ", ten(
        2_500_000, run_3=dict(change=lambda log: log.without("seed")))),
    "one seed has no place": (False, "passed: ", ten(
        2_500_000, run_3=dict(change=lambda log: log.edited("seed", metadata={})))),
    "nine runs": (False, "passed: ", ten(2_500_000, runs=9)),
    "eleven runs": (False, "passed: ", ten(2_500_000, runs=11)),
    "two batch sizes": (False, "not tested: ", ten(2_500_000, run_9=dict(batch_seqs=449))),
    "a seed twice": (False, "passed: ", ten(2_500_000, run_9=dict(seed=103))),
}


class OfficialCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.good = write_log(cls.folder / "good.txt").read_text()

    def test_the_verdict_on_one_log_is_the_official_one(self):
        path = self.folder / "result_0.txt"
        for name, (*wanted, change) in CASES.items():
            path.write_text(change(Log(self.good)).text())
            for rule_set, verdict in zip(RULE_SETS, wanted):
                with self.subTest(name, rule_set=rule_set):
                    official = Compliance(path, rule_set)
                    self.assertEqual(official.passed and seeds_pass([path], rule_set), verdict,
                                     official.messages)
                    complies, said = native(rule_set, path)
                    self.assertEqual(complies, verdict, said)

    def test_what_the_official_checkers_do_not_look_at_is_found(self):
        path = self.folder / "result_0.txt"
        for name, (change, sentence) in STRICTER.items():
            path.write_text(change(Log(self.good)).text())
            for rule_set in RULE_SETS:
                with self.subTest(name, rule_set=rule_set):
                    self.assertTrue(Compliance(path, rule_set).passed)
                    complies, said = native(rule_set, path)
                    self.assertFalse(complies)
                    self.assertIn(sentence, said)

    def test_a_run_says_success_only_with_an_evaluation_that_reached_the_target(self):
        unproven = {"no evaluation": lambda log: log.without("eval_accuracy"),
                    "evaluated after the run": lambda log: log.moved("run_stop", "eval_start"),
                    "below the target": lambda log: log.replaced("0.7203", "0.7199")}
        for number, (name, change) in enumerate(unproven.items()):
            with self.subTest(name):
                folder = self.folder / f"unproven_{number}"
                folder.mkdir()
                for i, run in enumerate(ten(2_500_000, run_3=dict(change=change))):
                    run.write(folder / f"result_{i}.txt")
                complies, said = native("5.0.0", folder)
                self.assertFalse(complies, said)
                self.assertIn(f"error: {folder}/result_3.txt: run_stop says success, but no "
                              "eval_accuracy before it reaches the target\n", said)
                if name == "no evaluation":
                    self.assertFalse(Package(folder, "5.0.0").passed)

    def compare(self, rule_set, folder, package_passes, verdict, *options):
        """Both verdicts on a folder, the factor of the score, and the score."""
        package = Package(folder, rule_set, train_samples=bool(options))
        points = ReferencePoints(folder, rule_set, train_samples=bool(options))
        complies, said = native(rule_set, folder, *options)
        self.assertEqual(package.passed, package_passes)
        self.assertEqual(complies, package_passes, said)
        found = re.search(r"^RCP +(.*)$", said, re.MULTILINE).group(1)
        self.assertTrue(found.startswith(verdict), said)
        self.assertEqual(found.startswith("passed"), points.passed, (said, points.message))
        if points.passed:
            score, factor = re.search(r"^score +(\S+) minutes .* ([\d.]+)\)$", said,
                                      re.MULTILINE).groups()
            self.assertAlmostEqual(float(factor), points.factor, delta=6e-5)
            self.assertAlmostEqual(float(score), package.score, delta=6e-4)

    def test_the_verdict_on_ten_runs_is_the_official_one(self):
        for number, (name, (package_passes, verdict, runs)) in enumerate(FOLDERS.items()):
            with self.subTest(name):
                folder = self.folder / f"folder_{number}"
                folder.mkdir()
                for i, run in enumerate(runs):
                    run.write(folder / f"result_{i}.txt")
                # One rule set each, in turn: their reference points are the same.
                self.compare(RULE_SETS[number % 2], folder, package_passes, verdict)

    def test_files_may_be_named_one_by_one(self):
        paths = [self.folder / name for name in ("one.txt", "two.txt", "three.txt")]
        for run, path in zip(ten(2_500_000), paths):
            run.write(path)
        complies, said = native("5.0.0", *paths)
        self.assertFalse(complies)
        self.assertIn("error: 3 result files, want exactly 10", said)
        self.assertEqual(said.count("error: "), 1, said)
        self.assertIn("the runs needed 2360000 samples on average", said)

    def test_samples_may_be_read_from_train_samples(self):
        folder = self.folder / "train_samples"
        folder.mkdir()
        for i, run in enumerate(ten(2_500_000)):
            path = folder / f"result_{i}.txt"
            run.write(path)
            log = Log(path.read_text())
            path.write_text(log.replaced(f'"epoch_num": {run.samples}', '"epoch_num": 1').text())
        self.compare(RULE_SETS[0], folder, False, "too fast: ")
        self.compare(RULE_SETS[1], folder, True, "passed: ", "--samples-from", "train_samples")

    def test_what_our_writer_leaves_out_is_nothing(self):
        for rule_set in RULE_SETS:
            complies, said = native(rule_set, self.folder / "good.txt")
            self.assertTrue(complies, said)
            self.assertNotIn("warning", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
