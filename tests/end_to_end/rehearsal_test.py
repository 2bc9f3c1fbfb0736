"""A submission from end to end at toy size: ten timed runs, their verdicts, the package, and what the
benchmark's own checkers say of it."""

import json
import os
import pathlib
import shutil

from support import LAUNCH, EndToEnd, Running, main, must, mllog, with_tools

from official_mlperf import (RULE_SETS, Compliance, check_training_result_files,
                             mlp_compliance, seeds_pass, system_desc_checker)

TARGET = "0.02"  # of a model that has seen next to nothing


class Rehearsal(EndToEnd):
    def timed(self, folder, launch=LAUNCH, **extra):
        """Ends run_and_time.sh with runs in this folder."""
        config = folder.with_suffix(".yaml")
        config.write_text("log: {tensorboard: false}\n")
        # The open division: its runs may have a target of their own.
        words = self.data.config(mlperf__division="open", checkpoint__at_end=False)
        with Running("--ranks", 2, config, *words, script=launch / "run_and_time.sh",
                     extra={"DOCTOR": "0", "LOGDIR": str(folder), "TARGET_MLM_ACCURACY": TARGET,
                            **extra}) as run:
            return run.wait()

    def test_ten_runs_become_a_package_that_the_checkers_accept(self):
        folder, tools = self.new_folder("runs"), with_tools(self.new_folder("tools"))
        done = self.timed(folder, NEXP="10", MLPERF_SUBMISSION_ORG="toy", **tools)
        self.assertEqual(done.code, 0, done)
        self.assertEqual(done.out.count(": complies "), 10, done)
        self.assertNotIn("not installed", done.err)
        logs = [folder / f"run_{i}" / "mllog" / "result_0.txt" for i in range(10)]
        seeds = {r["value"] for log in logs for r in mllog(log) if r["key"] == "seed"}
        self.assertEqual(len(seeds), 10)
        for rule_set in RULE_SETS:
            self.assertTrue(seeds_pass(logs, rule_set))
            for log in logs:
                official = Compliance(log, rule_set)
                self.assertTrue(official.passed, official.messages)

        must("check", *sorted(folder.glob("run_*")), "--target-accuracy", TARGET, extra=tools)

        output = self.new_folder("submission")
        built = must("submit", folder, "--system", "toy_box", "--output", output, "--draft",
                     "--sources", LAUNCH.parent, "--target-accuracy", TARGET, extra=tools)
        self.assertIn("to fill in by hand", built.out)
        description = output / "systems" / "toy_box.json"
        self.assertEqual(json.loads(description.read_text())["submitter"], "toy")
        for rule_set in RULE_SETS:
            mlp_compliance.enqueued_configs.clear()
            self.assertTrue(check_training_result_files(
                str(output), "training", rule_set, True, False, False, False, False))
            self.assertTrue(system_desc_checker.check_system_desc(
                str(description), "training", rule_set)[0])

    def test_without_the_tools_it_says_that_no_log_is_checked(self):
        folder = self.new_folder("runs")
        launch = folder.with_suffix(".launch") / "launch"  # no .venv lies beside it
        shutil.copytree(LAUNCH, launch)
        path = [part for part in os.environ["PATH"].split(":")
                if not (pathlib.Path(part) / "bertha-tools").exists()]
        done = self.timed(folder, launch, PATH=":".join(path))
        self.assertIn(done.code, (0, 3), done)
        before, _, after = done.err.partition("bertha-tools is not installed: logs are not checked; ")
        self.assertNotIn(" step ", before)
        self.assertIn(" step ", after)


if __name__ == "__main__":
    main()
