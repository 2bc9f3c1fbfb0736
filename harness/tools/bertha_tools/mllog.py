"""Benchmark logs, and the verdicts of the benchmark's own checkers (package mlperf-logging).

check_log() is the verdict on one log: its keys and, in the closed division, its seed.
check_package() is the verdict on several logs as one submission: their number, seeds, convergence
and score. What this file checks in addition is a warning and does not change a verdict.
"""
import contextlib
import dataclasses
import io
import itertools
import json
import logging
import math
import os
import pathlib
import re
import tempfile
import warnings

from bertha_tools.check import bad_file
from bertha_tools.errors import ENVIRONMENT, Refused, shortened

try:
    from mlperf_logging.compliance_checker import mlp_compliance
    # The parsers of rule sets 4.0.0 and 5.0.0 are the same.
    from mlperf_logging.compliance_checker.mlp_parser import ruleset_500 as mlp_parser
    from mlperf_logging.package_checker.seed_checker import SeedChecker
except ImportError as missing:
    raise Refused(ENVIRONMENT, f"the benchmark's checkers are missing ({missing}); run pip install "
                  "mlperf-logging==4.1.68") from None

TARGET = 0.72
ABOUT_TARGET = "Failed checks for eval_accuracy"  # as a message of the official checker begins
# Ranks on several machines may write to one log, with clocks that agree to a fraction of this.
CLOCK_SLACK_MS = 1000


@dataclasses.dataclass
class Rules:
    rule_set: str
    target: float
    train_samples: bool = False  # samples to the target are in train_samples, not in epoch_num

    def __str__(self):
        replaced = "" if self.target == TARGET else \
            f", with target {self.target:g} instead of the benchmark's {TARGET:.3f}"
        return f"with rule set {self.rule_set} for BERT{replaced}"


@dataclasses.dataclass
class Log:
    path: str
    records: list = dataclasses.field(default_factory=list)  # LogLine of the package
    findings: list = dataclasses.field(default_factory=list)  # {"level", "line", "text"}
    passed: bool = False
    crash: Exception | None = None  # in a rule, not caught by the official checker
    samples: float | None = None    # samples to the target, from check_package()

    def add(self, level, line, text):
        """level: error or warning; line: counted from 1, or 0 for the file as a whole."""
        self.findings.append({"level": level, "line": line, "text": text})

    def of(self, key):
        return [record for record in self.records if record.key == key]

    def last_value(self, key):
        return next((record.value["value"] for record in reversed(self.of(key))), None)

    @property
    def is_open(self):
        return [record.value["value"] for record in self.of("submission_division")][:1] == ["open"]

    def accuracies(self, until=None):
        """Values of the evaluations that are numbers, up to the first record with this key."""
        found = itertools.takewhile(lambda record: record.key != until, self.records)
        return [record.value["value"] for record in found
                if record.key == "eval_accuracy" and is_number(record.value["value"])]

    @property
    def best_accuracy(self):
        return max(self.accuracies(), default=0)

    def reaches(self, target, until="run_stop"):
        least = -math.inf if self.is_open else target
        return any(least <= accuracy < 1 for accuracy in self.accuracies(until))

    @property
    def status(self):
        stops = self.of("run_stop")
        return str(metadata(stops[-1]).get("status", "")) if stops else ""

    @property
    def minutes(self):
        starts, stops = self.of("run_start"), self.of("run_stop")
        spent = (stops[0].timestamp - starts[0].timestamp) / 60e3 if starts and stops else 0.0
        return spent if math.isfinite(spent) else 0.0


@dataclasses.dataclass
class Package:
    passed: bool = False
    errors: list = dataclasses.field(default_factory=list)
    warnings: list = dataclasses.field(default_factory=list)
    convergence: str = "not tested: that is for the closed division and the benchmark's target"
    score_minutes: float | None = None
    factor: float = 1.0  # of the score, for runs that were faster than the reference


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def metadata(record):
    found = record.value["metadata"]
    return found if isinstance(found, dict) else {}


def one_line(text):
    return " ".join(str(text).split())


def read_log(path):
    """The records that the official parser accepts, with their lines in the file, and a finding
    for every line that it refuses."""
    log = Log(str(path))
    if not os.path.isfile(path):
        reason = "is a folder or a device" if os.path.exists(path) else "no such file"
        raise bad_file(path, f"{reason}; give a run folder or a result file")
    with open(path, encoding="latin-1") as file:
        for number, line in enumerate(file, 1):
            for text in mlp_parser.strip_and_dedup([line]):
                try:
                    log.records.append(mlp_parser.string_to_logline(number, text.strip()))
                except Exception as error:  # it expects an object with certain fields
                    log.add("error", number, "cannot be read, as if a record was cut or mixed up "
                            f"({type(error).__name__}: {error})")
    return log


class Checker(mlp_compliance.ComplianceChecker):
    """The official checker of one log, restricted to the official rules."""

    def configured_checks(self, loglines, config_file):
        # Values of the log are part of this name, and the file's contents are executed.
        rules = pathlib.Path(mlp_compliance.__file__).resolve().parent / f"training_{self.ruleset}"
        path = pathlib.Path(config_file).resolve()
        if path.parent == rules and path.is_file():
            super().configured_checks(loglines, str(path))
        else:
            self.put_message(f"there are no rules {config_file}")

    def replace_target(self, log, target):
        self.not_overwritable = [message for message in self.not_overwritable
                                 if not message.startswith(ABOUT_TARGET)]
        if not log.is_open and not log.reaches(target, until=None):
            self.put_message(f"{ABOUT_TARGET} : none is at least {target:g} and below 1")


@contextlib.contextmanager
def listening():
    """Collects the log messages of the official package and suppresses its output."""
    said = []
    handler, root = logging.Handler(), logging.getLogger()
    handler.emit = said.append
    handlers, level = root.handlers, root.level
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield said
    finally:
        root.handlers = handlers
        root.setLevel(level)


def check_log(path, rules, alone=True):
    """alone: check the seed here; check_package() checks the seeds of several logs."""
    log = read_log(path)
    is_readable = not log.findings
    checker = Checker("training", rules.rule_set, quiet=False, werror=False)
    mlp_compliance.enqueued_configs.clear()
    with listening() as said:
        try:
            checker.check_loglines(log.records, f"training_{rules.rule_set}/common.yaml")
        except Exception as crash:  # rules are expressions, and the log may contain any value
            log.crash = crash
            checker.put_message(f"a rule cannot be evaluated ({type(crash).__name__}: {crash})")
        if rules.target != TARGET:
            checker.replace_target(log, rules.target)
        log.passed = is_readable and not checker.has_messages()
        if alone and is_readable and not log.is_open:
            log.passed &= SeedChecker(rules.rule_set).check_seeds([log.path])
    for message in (*checker.overwritable.values(), *checker.not_overwritable):
        add_official(log, message)
    for record in said:
        if record.levelno >= logging.ERROR:
            log.add("error", 0, one_line(record.getMessage()))
    for message in checker.warnings.values():
        log.add("warning", 0, one_line(message))
    advise(log, rules)
    log.findings.sort(key=lambda finding: (finding["line"] == 0, finding["line"]))
    return log


def add_official(log, message):
    """An official message without the dumps of the checker's state."""
    lines = message.split("\n")
    record = next((record for record in log.records if record.full_string in lines), None)
    test = re.search(r"(?:failed test|CHECK code):\s*(.+)", message)
    if record and test:
        log.add("error", record.lineno, f"{record.key}: fails {one_line(test[1])}; found "
                f"{shortened(json.dumps(record.value))}")
        return
    best = f"; the best is {log.best_accuracy:.4f}" if message.startswith(ABOUT_TARGET) else ""
    log.add("error", 0, one_line(message) + best)


def advise(log, rules):
    """Adds warnings about facts that the package does not check but a submitter needs."""
    # Rule set 5.0.0 does not require these; `submit` describes the system with them.
    for key in ("submission_org", "submission_platform", "submission_status"):
        if rules.rule_set == "5.0.0" and not log.last_value(key):
            log.add("warning", 0, f"{key}: missing")
    for before, record in itertools.pairwise(log.records):
        if record.timestamp < before.timestamp - CLOCK_SLACK_MS:
            log.add("warning", record.lineno, "time_ms: the clock was set back by "
                    f"{(before.timestamp - record.timestamp) / 1e3:.1f} s after line "
                    f"{before.lineno}, so no duration in this log is valid")
            break
    if not log.reaches(rules.target):
        if log.reaches(rules.target, until=None):
            log.add("warning", 0, "eval_accuracy: the target is reached only after run_stop")
        if log.status == "success":
            log.add("warning", 0, "run_stop states success, but no eval_accuracy before it reaches "
                    "the target")
    if not log.is_open:
        advise_cadence(log)


def advise_cadence(log):
    """Warns of the first evaluation that is not where the closed division wants one.

    It may be a batch and 0.2 % away: steps are whole, and packed batches have no fixed number of
    sequences. Evaluations before any training and the last one are exempt.
    """
    batch = log.last_value("global_batch_size")
    counts = [metadata(record).get("epoch_num") for record in log.of("eval_accuracy")]
    counts = [count for count in counts if is_number(count) and count > 0]
    # 0.05 (230.23 batch + 3,000,000) in whole numbers.
    interval = (115_115 * batch + 1_500_000_000) // 250_000_000 * 25_000 if is_number(batch) else 0
    for number, count in enumerate(counts[:-1], 1):
        if interval > 0 and abs(count - interval * number) > batch + count / 500:
            log.add("warning", 0, f"eval_accuracy: evaluation {number} comes after {count:.0f} "
                    f"samples; with a global batch of {batch} the rule is every {interval}")
            return


def division_of(logs):
    return "open" if all(log.is_open for log in logs) else "closed"


def check_package(logs, rules, description=None):
    """Runs the official checker of submissions on a tree of links to the logs.

    description: of the system, checked too; without one only its division is known.
    """
    system = description or {"division": division_of(logs)}
    package = Package(warnings=[
        f"{log.path}: submission_division is not {system['division']} as in the others"
        for log in logs if log.is_open != (system["division"] == "open")])
    with tempfile.TemporaryDirectory() as root, listening() as said:
        results = pathlib.Path(root, "results", "system", "bert")
        results.mkdir(parents=True)
        links = {str(results / f"result_{i}.txt"): log for i, log in enumerate(logs)}
        for link, log in links.items():
            os.symlink(os.path.abspath(log.path), link)
        pathlib.Path(root, "systems").mkdir()
        pathlib.Path(root, "systems", "system.json").write_text(json.dumps(system))
        ask_official(package, root, links, rules, description is not None)
    for record in said:
        # Convergence is not tested with another target, so messages about it are dropped.
        is_moot = rules.target != TARGET and record.module == "rcp_checker"
        text = one_line(record.getMessage()).replace(f"directory {results}", "the submission")
        for link, log in links.items():
            text = text.replace(link, log.path)
        if record.levelno >= logging.WARNING and not is_moot:
            is_error = record.levelno >= logging.ERROR
            (package.errors if is_error else package.warnings).append(text)
    if rules.target == TARGET:
        package.convergence = convergence_text(said) or package.convergence
    return package


def ask_official(package, root, links, rules, with_system):
    # These load numpy, scipy and pandas, which takes seconds.
    from mlperf_logging.package_checker import package_checker
    from mlperf_logging.rcp_checker import rcp_checker
    from mlperf_logging.result_summarizer import result_summarizer

    def known_verdict(path, _config, _checker):
        if links[path].crash:
            raise links[path].crash
        return links[path].passed, None, None, None

    results = os.path.dirname(next(iter(links)))
    for path, log in links.items():
        with contextlib.suppress(Exception):  # odd values, reported below
            missed, samples, *_ = rcp_checker.read_submission_file(path, rules.rule_set,
                                                                   rules.train_samples)
            log.samples = None if missed or not is_number(samples) else samples
    check_one, mlp_compliance.main = mlp_compliance.main, known_verdict
    try:
        package.passed = package_checker.check_training_result_files(
            root, "training", rules.rule_set, quiet=True, werror=False,
            rcp_bypass=rules.target != TARGET, rcp_bert_train_samples=rules.train_samples,
            seed_checker_bypass=False)
        if with_system:
            package.passed &= package_checker.check_systems(root, "training", rules.rule_set)
        if rules.target != TARGET:  # the scale that the reference would give
            pathlib.Path(results, "scaling.json").unlink(missing_ok=True)
        package.score_minutes, _, package.factor = \
            result_summarizer._compute_strong_score_standalone(
                "bert", "system", False, results, "training", rules.rule_set)
    except OSError:
        raise
    except Exception as crash:  # it computes with whatever values the logs have
        package.passed = False
        package.errors.append("the official checker of submissions cannot evaluate these files "
                              f"({type(crash).__name__}: {crash}); see the errors of each")
    finally:
        mlp_compliance.main = check_one


def convergence_text(said):
    """The verdict on the samples to the target, with the numbers behind it; "" = not tested."""
    verdicts = [record.getMessage().removeprefix("RCP Test ") for record in said
                if record.msg.startswith("RCP Test ")]
    points = [record.args for record in said if record.msg.startswith(" RCP Record")]
    means = [record.args[0] for record in said
             if record.msg.startswith(" Submission mean epochs: %")]
    if not verdicts or not points or not means:
        return "".join(verdicts[-1:])
    if math.isnan(means[-1]):
        return f"{verdicts[-1]}: the mean needs 3 runs"
    allowed = points[-1]["RCP Mean"] / points[-1]["Max Speedup"]
    look = "; look for a difference from the reference in data, evaluation or rules"
    return (f"{verdicts[-1]}: the runs needed {means[-1]:.0f} samples on average, the reference "
            f"needs {points[-1]['RCP Mean']:.0f} (batch {points[-1]['BS']}), allowed is a mean of "
            f"at least {allowed:.0f}{look if means[-1] < allowed else ''}")
