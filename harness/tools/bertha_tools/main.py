"""The command line: bertha-tools COMMAND. Each command is a module of this package with

    DESCRIPTION   what it does, a sentence
    EXAMPLES      whole command lines
    add_arguments(parser)
    run(options)  the exit code

and is imported only when it is the one that was named, because matplotlib takes a second.
"""
import argparse
import importlib
import os
import sys

from bertha_tools import errors

COMMANDS = ("check", "submit", "plot", "compare", "watch", "diagnose", "timeline", "export", "gains",
            "scale")


def parser_of(name):
    """The parser of one command, and its module."""
    module = importlib.import_module(f"bertha_tools.{name}")
    examples = "\n".join(f"  {line}" for line in module.EXAMPLES)
    parser = argparse.ArgumentParser(
        prog=f"bertha-tools {name}", description=module.DESCRIPTION,
        epilog=f"examples:\n{examples}", formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_arguments(parser)
    return parser, module


def overview():
    lines = [f"  {name:<10}{importlib.import_module(f'bertha_tools.{name}').DESCRIPTION}"
             for name in COMMANDS]
    return "\n".join(["usage: bertha-tools COMMAND ...", "", *lines, "",
                      "bertha-tools COMMAND --help has the options and examples of each."])


def main(arguments=None):
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return errors.SUCCESS
    if words[0] not in COMMANDS:
        print(f"bertha-tools: error: {words[0]} is no command; want one of {', '.join(COMMANDS)}",
              file=sys.stderr)
        return errors.USAGE
    parser, module = parser_of(words[0])
    options = parser.parse_args(words[1:])
    try:
        return module.run(options)
    except errors.Refused as refused:
        print(f"bertha-tools: error: {refused}", file=sys.stderr)
        return refused.code
    except BrokenPipeError:  # the reader of a pipe has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.SUCCESS
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
