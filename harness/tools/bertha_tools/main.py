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

from bertha_tools.errors import DATA, SUCCESS, USAGE, Refused, say, shortened

COMMANDS = ("check", "submit", "plot", "compare", "watch", "diagnose", "timeline", "export",
            "gains", "scale")


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(USAGE, f"{shortened(message)}; see {self.prog} --help")


def module_of(name):
    return importlib.import_module(f"bertha_tools.{name}")


def run(words):
    name = words[0] if words else "help"
    if name in ("-h", "--help", "help"):
        lines = [f"  {name:<10}{module_of(name).DESCRIPTION}" for name in COMMANDS]
        print("\n".join(["usage: bertha-tools COMMAND ...", "", *lines, "",
                         "bertha-tools COMMAND --help has the options and examples of each."]))
        return SUCCESS
    if name not in COMMANDS:
        raise Refused(USAGE, f"{shortened(name)} is not a command; use {', '.join(COMMANDS)}")
    module = module_of(name)
    examples = "\n".join(f"  {line}" for line in module.EXAMPLES)
    parser = Parser(prog=f"bertha-tools {name}", description=module.DESCRIPTION,
                    epilog=f"examples:\n{examples}",
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_arguments(parser)
    return module.run(parser.parse_args(words[1:]))


def main(arguments=None):
    try:
        return run(sys.argv[1:] if arguments is None else arguments)
    except Refused as refused:
        code, sentence = refused.code, refused
    except BrokenPipeError:  # the reader of a pipe has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SUCCESS
    except OSError as error:
        code, sentence = DATA, (f"{error.filename or 'a file'}: cannot be read or written "
                                f"({error.strerror}); check the path, its permissions and the "
                                "free space")
    except KeyboardInterrupt:
        return 130
    say(f"bertha-tools: error: {sentence}", sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
