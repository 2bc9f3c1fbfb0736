"""The command line of bertha-tools: help, and sentences on words that it does not know."""

from tool_case import ESCAPES, ToolCase, main
from bertha_tools.main import COMMANDS


class CommandLine(ToolCase):
    def test_every_command_has_help_with_examples(self):
        overview = self.tool("--help")
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", overview)
            self.assertRegex(self.tool(command, "--help"), rf"(?s)examples:\n.*bertha-tools {command} ")

    def test_words_that_it_does_not_know_are_refused(self):
        for words, code in (((ESCAPES,), 2), (("plot", "run", f"--{ESCAPES}"), 2),
                            (("watch", "--every", ESCAPES), 2), (("plot", ESCAPES), 4),
                            (("scale", "--ranks", ESCAPES, "--plan", "none"), 4),
                            (("gains", "--only", ESCAPES), 2), (("timeline", "x", "--output", ESCAPES), 2)):
            self.assert_cannot_steer(self.refusal(code, *words))

    def test_values_are_quoted_in_part(self):
        for words in (("x" * 500,), ("plot", "run", "--" + "x" * 500), ("check", "log", "--ruleset", "x" * 500),
                      ("timeline", "report", "--output", "x" * 500), ("gains", "--only", "x" * 500)):
            said = self.refusal(2, *words)
            self.assertLessEqual(said.count("x"), 210, words)
        self.assertIn("want a name that ends with .svg", self.refusal(2, "gains", "--plot", "x" * 500))


if __name__ == "__main__":
    main()
