"""The log of a real training passes the official checker but for the target, which is BERT's."""

import pathlib
import sys

from support import EndToEnd, bertha, main, must, mllog, with_tools

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from official_mlperf import RULE_SETS, Compliance, seeds_pass  # noqa: E402


class OfficialLog(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = cls.new_folder()
        cls().train(cls.folder, ranks=2, mlperf__division="closed")
        cls.log = cls.folder / "mllog" / "result_0.txt"
        cls.tools = with_tools(cls.scratch / "tools")

    def test_only_the_target_is_missed(self):
        for rule_set in RULE_SETS:
            official = Compliance(self.log, rule_set)
            self.assertFalse(official.passed)
            self.assertEqual(len(official.messages), 1, official.messages)
            self.assertIn("Failed checks for eval_accuracy", official.messages[0])
            done = bertha("check", self.log, "--ruleset", rule_set, extra=self.tools)
            self.assertEqual(done.code, 8, done)
            self.assertEqual(done.out.count(": error: "), 1, done)
            self.assertIn("Failed checks for eval_accuracy", done.out)

    def test_with_the_target_reached_it_passes(self):
        last = [r for r in mllog(self.log) if r["key"] == "eval_accuracy"][-1]["value"]
        reached = self.folder / "reached.txt"
        reached.write_text(self.log.read_text().replace(f'"value": {last}', '"value": 0.7201'))
        for rule_set in RULE_SETS:
            official = Compliance(reached, rule_set)
            self.assertTrue(official.passed, official.messages)
            self.assertTrue(seeds_pass([reached], rule_set))
            must("check", reached, "--ruleset", rule_set, extra=self.tools)


if __name__ == "__main__":
    main()
