"""Checks benchmark logs by the official package; several logs are checked as one submission."""
import glob
import os

from bertha_tools import diagnose, metrics
from bertha_tools.errors import (COMPLIANCE, DATA, SUCCESS, USAGE, Refused, say, warn,
                                 within)
from bertha_tools.output import add_json_option, counted, fixed, print_table, write_json

DESCRIPTION = "Checks benchmark logs by the official rules of MLPerf BERT; code 8 if one breaks a rule."
EXAMPLES = (
    "bertha-tools check runs/latest",
    "bertha-tools check runs/latest --ruleset 4.0.0",
    "bertha-tools check runs/latest --target 0.2      # for a run with another target",
    "bertha-tools check runs/seed-0 runs/seed-1 runs/seed-2",
    "bertha-tools check results/my_system/bert --json -",
)
LOG_OF_A_RUN = os.path.join("mllog", "result_0.txt")


def bad_file(path, sentence):
    return Refused(DATA, f"{path}: {sentence}")


def add_rule_options(parser):
    parser.add_argument("--ruleset", choices=("4.0.0", "5.0.0"), default="5.0.0",
                        help="rule set to check by (default 5.0.0, the last one with BERT)")
    parser.add_argument("--target", "--target-accuracy", type=within(0, 1, float), default=0.72,
                        metavar="ACCURACY",
                        help="accuracy that an evaluation must reach (default 0.720)")


def add_arguments(parser):
    parser.add_argument("paths", nargs="+", metavar="PATH",
                        help="run folder, result file or folder of result files")
    add_rule_options(parser)
    parser.add_argument("--samples-from", choices=("evaluation", "train_samples"),
                        default="evaluation",
                        help="where the samples to the target are (default: in each evaluation)")
    add_json_option(parser)


def has_log(folder):
    return os.path.exists(os.path.join(folder, LOG_OF_A_RUN))


def runs_in(folder):
    """The run folders in a folder, without links such as runs/latest."""
    logs = sorted(glob.glob(os.path.join(glob.escape(folder), "*", LOG_OF_A_RUN)))
    runs = [log.removesuffix(os.sep + LOG_OF_A_RUN) for log in logs]
    return [run for run in runs if not os.path.islink(run)]


def result_files(path):
    """The file itself, the result files in a folder, or the log of a run folder."""
    if not os.path.isdir(path):
        return [path]
    files = sorted(glob.glob(os.path.join(glob.escape(path), "result_*.txt")))
    files = [file for file in files if ".resume" not in os.path.basename(file)]
    if files or has_log(path):
        return files or [os.path.join(path, LOG_OF_A_RUN)]
    if runs := runs_in(path):
        raise bad_file(path, f"contains {counted(len(runs), 'run folder')} and is not one itself; "
                       f"give each run to check, such as {runs[0]}")
    raise bad_file(path, f"is a folder without {LOG_OF_A_RUN}, as in a run folder, and without "
                   "result_*.txt; give a run folder or a log")


def print_findings(logs):
    for log in logs:
        for finding in log.findings:
            where = f"{log.path}:{finding['line']}" if finding["line"] else log.path
            say(f"{where}: {finding['level']}: {finding['text']}")


def print_log(log, rules):
    print_findings([log])
    errors = sum(finding["level"] == "error" for finding in log.findings)
    say(f"{log.path}: {counted(len(log.records), 'record')}, {counted(errors, 'error')}: "
        f"{'complies' if log.passed else 'does not comply'} {rules}")


def print_package(logs, package, rules):
    """Findings, a table of the runs and the verdict on all of them."""
    print_findings(logs)
    print_table(("run", "complies", "status", "samples", "best accuracy", "minutes"),
                [(log.path, "yes" if log.passed else "no", log.status or "-",
                  "-" if log.samples is None else fixed(log.samples, 0),
                  fixed(log.best_accuracy, 4), fixed(log.minutes, 3)) for log in logs])
    score = "none" if package.score_minutes is None else \
        f"{package.score_minutes:.3f} minutes (olympic mean, times {package.factor:.4f})"
    say(f"RCP      {package.convergence}\nscore    {score}")
    for level, texts in (("warning", package.warnings), ("error", package.errors)):
        for text in texts:
            say(f"{level}: {text}")
    say(f"verdict  {counted(len(logs), 'result file')}: "
        f"{'comply' if package.passed else 'do not comply'} {rules}")


def curve_remarks(log):
    """Known bad shapes in metrics.jsonl, if the log is in a run folder."""
    run, folder = os.path.split(os.path.dirname(log.path))
    if folder != "mllog" or not os.path.isfile(os.path.join(run, metrics.FILE_NAME)):
        return []
    try:
        return diagnose.remarks_on(run, metrics.read(run))
    except Refused as refused:  # the verdict on the log does not depend on it
        warn(refused)
        return []


def run(options):
    from bertha_tools import mllog  # loads the official package, which --help does without
    files = [file for path in options.paths for file in result_files(path)]
    for file in files:
        if files.count(file) > 1:
            raise Refused(USAGE, f"{file} is given twice; give every log once")
    rules = mllog.Rules(options.ruleset, options.target, options.samples_from == "train_samples")
    logs = [mllog.check_log(file, rules, alone=len(files) == 1) for file in files]
    package = mllog.check_package(logs, rules) if len(files) > 1 else None
    remarks = [remark for log in logs for remark in curve_remarks(log)]
    code = SUCCESS if (package or logs[0]).passed else COMPLIANCE
    report = {"rule_set": rules.rule_set, "target_accuracy": rules.target, "logs": [
        {"path": log.path, "passed": log.passed, "records": len(log.records),
         "reached_target": log.reaches(rules.target), "findings": log.findings,
         "best_accuracy": log.best_accuracy, "samples_to_target": log.samples,
         "minutes": log.minutes} for log in logs], "curve_remarks": remarks}
    if package:
        report |= {"errors": package.errors, "warnings": package.warnings,
                   "score_minutes": package.score_minutes}
    if options.json != "-":
        if package:
            print_package(logs, package, rules)
        else:
            print_log(logs[0], rules)
        diagnose.print_remarks(remarks)
    write_json(options.json, "check", code, report)
    return code
