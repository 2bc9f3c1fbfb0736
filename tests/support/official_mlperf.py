"""Verdicts of the benchmark's own checkers, from the package mlperf-logging."""

import functools
import json
import logging
import pathlib
import shutil
import sys

try:
    from mlperf_logging.compliance_checker import mlp_compliance
    from mlperf_logging.package_checker.package_checker import check_training_result_files
    from mlperf_logging.package_checker.seed_checker import SeedChecker
    from mlperf_logging.rcp_checker import rcp_checker
    from mlperf_logging.result_summarizer import result_summarizer
    from mlperf_logging.system_desc_checker import system_desc_checker  # noqa: F401
except ImportError as missing:
    sys.exit(f"{sys.executable}: {missing}. This test needs the packages of tests/requirements.txt: "
             "tests/run installs them; or set BERTHA_TEST_PYTHON to a Python that has them.")

RULE_SETS = ("4.0.0", "5.0.0")
logging.disable(logging.CRITICAL)
# The same reader of YAML, in C: the rules are read anew for every log.
mlp_compliance.yaml.BaseLoader = getattr(mlp_compliance.yaml, "CBaseLoader",
                                         mlp_compliance.yaml.BaseLoader)
# It searches its limits by bisection, anew for every folder, for half a second.
rcp_checker.RCP_Checker = functools.lru_cache(maxsize=None)(rcp_checker.RCP_Checker)


class Compliance:
    """What the checker of one log says."""

    def __init__(self, path, rule_set):
        checker = mlp_compliance.make_checker("training", rule_set, quiet=True, werror=False)
        mlp_compliance.enqueued_configs.clear()
        try:
            self.passed = bool(mlp_compliance.main(str(path), f"training_{rule_set}/common.yaml",
                                                   checker)[0])
            self.messages = [*checker.overwritable.values(), *checker.not_overwritable]
        except Exception as crash:  # a log that its rules' Python cannot evaluate does not pass
            self.passed = False
            self.messages = [f"{type(crash).__name__}: {crash}"]


def seeds_pass(paths, rule_set):
    return SeedChecker(rule_set).check_seeds([str(path) for path in paths])


class Package:
    """What the checker of a whole submission says about a folder of result files."""

    def __init__(self, results, rule_set, train_samples=False):
        """Copies `results` into a submission's tree beside it."""
        root = pathlib.Path(f"{results}.package")
        shutil.rmtree(root, ignore_errors=True)
        folder = root / "results" / "box" / "bert"
        shutil.copytree(results, folder)
        (root / "systems").mkdir()
        (root / "systems" / "box.json").write_text(json.dumps({"division": "closed"}))
        mlp_compliance.enqueued_configs.clear()
        try:
            self.passed = check_training_result_files(str(root), "training", rule_set, True, False,
                                                      False, train_samples, False)
            self.score = result_summarizer._compute_strong_score_standalone(
                "bert", "box", False, str(folder), "training", rule_set)[0]
        except Exception:  # files that its Python cannot evaluate do not pass
            self.passed = False
            self.score = None
