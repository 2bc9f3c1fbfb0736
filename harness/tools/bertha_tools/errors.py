"""Bertha's exit codes; the exception for errors in a user's input; and printable forms of text from
users and files, without control characters, which could control a terminal."""
import argparse
import math
import sys

SUCCESS = 0
INTERNAL = 1
USAGE = 2
TARGET_MISSED = 3
DATA = 4
ENVIRONMENT = 5
MEMORY = 6
NUMERIC = 7
COMPLIANCE = 8
REQUEUE = 75  # a run has saved a checkpoint and stopped
MOST_QUOTED = 200  # characters


class Refused(Exception):
    """Ends the command with this code and message: what was found, what is wanted, what to do."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def printable(shown):
    """The text with control characters as \\x1b and the like."""
    return "".join(letter if letter.isprintable() or letter in "\n\t"
                   else letter.encode("unicode_escape", "surrogatepass").decode()
                   for letter in str(shown))


def shortened(value, most=MOST_QUOTED):
    """A value as quoted in messages."""
    text = printable(value)
    return text if len(text) <= most else text[:most - 3] + "..."


def say(text, file=None):
    """Prints to standard output unless there is a file."""
    print(printable(text), file=file)


def warn(sentence):
    say(f"bertha-tools: warning: {sentence}", sys.stderr)


def within(low, high=math.inf, kind=int):
    """The type of an option with a number."""
    def read(word):
        value = kind(word)
        if not low <= value <= high:
            bounds = f"of at least {low}" if high == math.inf else f"from {low} to {high}"
            raise argparse.ArgumentTypeError(f"found {shortened(word, 100)}, want a number "
                                             f"{bounds}")
        return value
    read.__name__ = "number"  # as argparse names it when the word is none
    return read
