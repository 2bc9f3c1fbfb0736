"""Exit codes, which are Bertha's, and the one exception for what is wrong with what a user gave."""

SUCCESS = 0
INTERNAL = 1
USAGE = 2
TARGET_MISSED = 3
DATA = 4
ENVIRONMENT = 5
COMPLIANCE = 8


class Refused(Exception):
    """Ends the command with this code and sentence: what was found, what is wanted, what to do."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def warn(sentence):
    import sys
    print(f"bertha-tools: warning: {sentence}", file=sys.stderr)
