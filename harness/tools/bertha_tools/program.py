"""Runs the program bertha and reads the report that it prints as JSON."""
import json
import os
import pathlib
import shutil
import subprocess

from bertha_tools.errors import ENVIRONMENT, Refused

# From a checkout: harness/tools/bertha_tools/program.py.
BUILT = pathlib.Path(__file__).resolve().parents[3] / "build" / "release" / "bertha"


def add_options(parser):
    parser.add_argument("--bertha", metavar="PATH",
                        help="the program (default: $BERTHA, build/release/bertha, or the PATH)")
    parser.add_argument("-c", "--config", metavar="FILE", action="append", default=[],
                        help="YAML file; repeatable, later files win")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[],
                        help="set one key of the configuration; repeatable")


def find(given):
    path = given or os.environ.get("BERTHA") or (BUILT if BUILT.exists() else "bertha")
    found = shutil.which(path)
    if not found:
        raise Refused(ENVIRONMENT, f"{path}: is not an executable program; build bertha, or give "
                      "its path with --bertha PATH or $BERTHA")
    return found


def configuration(options):
    """The options that pass on the configuration."""
    return [word for name, values in (("--config", options.config), ("--set", options.set))
            for value in values for word in (name, value)]


def report_of(words):
    """The report of a command line that ends with --json -. One that found something wrong with
    its inputs and still reports, as `bertha plan` does, has its report too.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise Refused(ENVIRONMENT, f"{words[0]}: cannot be run ({error.strerror}); check the "
                      "command") from None
    try:
        report = json.loads(done.stdout)
        if isinstance(report, dict):
            return report
    except (ValueError, RecursionError):
        pass
    _, error, sentence = done.stderr.rpartition("bertha: error: ")
    said = (sentence if error else done.stderr[-500:]).strip() or "nothing was printed"
    if done.returncode > 0:
        raise Refused(done.returncode, said)
    how = f"signal {-done.returncode}" if done.returncode < 0 else "a report that is not JSON"
    raise Refused(ENVIRONMENT, f"{' '.join(map(str, words))}: ended with {how}: {said}")
