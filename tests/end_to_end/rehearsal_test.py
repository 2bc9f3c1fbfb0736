"""A submission from end to end at toy size: ten timed runs, their verdicts, the package, and what the
benchmark's own checkers say of it."""

import json
import pathlib
import sys

from support import LAUNCH, EndToEnd, Running, main, must, mllog

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from official_mlperf import (RULE_SETS, Compliance, check_training_result_files,  # noqa: E402
                             mlp_compliance, seeds_pass, system_desc_checker)

TARGET = "0.02"  # of a model that has seen next to nothing


class Rehearsal(EndToEnd):
    def test_ten_runs_become_a_package_that_the_checkers_accept(self):
        folder = self.new_folder("runs")
        config = folder.with_suffix(".yaml")
        config.write_text("log: {tensorboard: false, plots: false}\n")
        # The open division: its runs may have a target of their own.
        words = self.data.config(mlperf__division="open", checkpoint__at_end=False)
        with Running("--ranks", 2, config, *words, script="run_and_time.sh",
                     extra={"NEXP": "10", "DOCTOR": "0", "LOGDIR": str(folder), "TARGET_MLM_ACCURACY": TARGET,
                            "MLPERF_SUBMISSION_ORG": "toy"}) as run:
            done = run.wait()
        self.assertEqual(done.code, 0, done)
        logs = [folder / f"run_{i}" / "mllog" / "result_0.txt" for i in range(10)]
        seeds = {r["value"] for log in logs for r in mllog(log) if r["key"] == "seed"}
        self.assertEqual(len(seeds), 10)
        for rule_set in RULE_SETS:
            self.assertTrue(seeds_pass(logs, rule_set))
            for log in logs:
                official = Compliance(log, rule_set)
                self.assertTrue(official.passed, official.messages)

        must("log", "check", *sorted(folder.glob("run_*")), "--target-accuracy", TARGET)

        output = self.new_folder("submission")
        built = must("submit", folder, "--system", "toy_box", "--output", output, "--draft",
                     "--sources", LAUNCH.parent, "--target-accuracy", TARGET)
        self.assertIn("to fill in by hand", built.out)
        description = output / "systems" / "toy_box.json"
        self.assertEqual(json.loads(description.read_text())["submitter"], "toy")
        for rule_set in RULE_SETS:
            mlp_compliance.enqueued_configs.clear()
            self.assertTrue(check_training_result_files(
                str(output), "training", rule_set, True, False, False, False, False))
            self.assertTrue(system_desc_checker.check_system_desc(
                str(description), "training", rule_set)[0])


if __name__ == "__main__":
    main()
