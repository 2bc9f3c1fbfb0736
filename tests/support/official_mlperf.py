"""Verdicts of the benchmark's own checkers, from the package mlperf-logging."""

import logging
import sys

try:
    from mlperf_logging.compliance_checker import mlp_compliance
    from mlperf_logging.package_checker.seed_checker import SeedChecker
    from mlperf_logging.rcp_checker import rcp_checker
except ImportError as missing:
    sys.exit(f"{sys.executable}: {missing}. This test needs the packages of tests/requirements.txt: "
             "tests/run installs them; or set BERTHA_TEST_PYTHON to a Python that has them.")

RULE_SETS = ("4.0.0", "5.0.0")
logging.disable(logging.CRITICAL)


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


class ReferencePoints:
    """What the test against the reference convergence points says about a folder."""

    def __init__(self, folder, rule_set, train_samples=False):
        self.passed, self.message, self.factor = rcp_checker.check_directory(
            str(folder), "training", rule_set, False, train_samples, rcp_pass="pruned_rcps")


def reference_point(rule_set, batch_seqs):
    """The record that a batch size is compared with: a point itself, or between two of them."""
    checker = rcp_checker.RCP_Checker("training", rule_set, "bert", False)
    found = checker._find_rcp(batch_seqs, "pruned_rcps")
    if found:
        return found
    low = checker._find_top_min_rcp(batch_seqs, "pruned_rcps")
    high = checker._find_bottom_max_rcp(batch_seqs, "pruned_rcps")
    return checker._create_interp_rcp(batch_seqs, low, high)[1]
