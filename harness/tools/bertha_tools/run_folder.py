"""What the commands share: figures of records, texts of figures, settings of a run, whole files.

The files of a run come from other people: text is shown without control characters, and a figure
that is missing or not a number is NaN.
"""
import json
import math
import os
import pathlib
import re
import sys

from bertha_tools.errors import DATA, USAGE, Refused


def number(record, name, otherwise=math.nan):
    """A figure of a record; anything but a number is `otherwise`."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return otherwise
    try:
        return float(value)
    except OverflowError:
        return math.inf


def count_of(record, name):
    value = number(record, name, 0)
    return int(value) if abs(value) < 2**63 else 0


def text(record, name):
    value = record.get(name)
    return value if isinstance(value, str) else ""


def target_of(metrics):
    """The accuracy to reach; 0 if there is none. A target may depend on the data of a start."""
    is_current = number(metrics.data, "time_ms", 0) >= number(metrics.run, "time_ms", 0)
    of_run = number(metrics.run, "target_accuracy", 0)
    target = number(metrics.data, "target_accuracy", of_run) if is_current else of_run
    return target if target > 0 else 0.0


def printable(shown):
    """The text with control characters as \\x1b and the like: it cannot steer a terminal."""
    return "".join(letter if letter.isprintable() or letter in "\n\t"
                   else letter.encode("unicode_escape", "surrogatepass").decode()
                   for letter in str(shown))


def fixed(value, digits):
    """3.14159 as 3.142; 1e300 stays short."""
    return f"{value:.{digits}e}" if abs(value) >= 1e18 else f"{value:.{digits}f}"


def scaled(value):
    """Three digits and a scale: 46080 as 46.1k."""
    if abs(value) < 999.5 and float(value).is_integer():
        return fixed(value, 0)
    scales = iter(("", "k", "M", "G", "T"))
    scale = next(scales)
    while abs(value) >= 999.5 and scale != "T":
        value, scale = value / 1000, next(scales)
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return fixed(value, digits) + scale


def exponent(value):
    """0.00042 as 4.2e-4."""
    mantissa, _, power = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa


def duration(seconds):
    """45s, 3m31s, 2h05m, 3d04h."""
    if not 0 <= seconds < math.inf:
        return "?"
    if seconds > 1000 * 86400:
        return ">1000d"
    total = math.floor(seconds + 0.5)
    if total < 60:
        return f"{total}s"
    big, small, names = (60, 1, "ms") if total < 3600 else \
        (3600, 60, "hm") if total < 86400 else (86400, 3600, "dh")
    return f"{total // big}{names[0]}{total % big // small:02}{names[1]}"


def counted(count, noun):
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def short_names(paths):
    """Without the leading folders that all have in common."""
    names = [str(path) for path in paths]
    while True:
        first = names[0].partition("/")[0] + "/"
        if not all(name.startswith(first) and len(name) > len(first) for name in names):
            return names
        names = [name[len(first):] for name in names]


def newest_settings(folder):
    """The resolved*.yaml of the newest start: every start that trains also writes an env*.json."""
    folder = pathlib.Path(folder)
    path, start = folder / "resolved.yaml", 1
    while os.path.exists(folder / f"env.resume{start}.json"):
        path, start = folder / f"resolved.resume{start}.yaml", start + 1
    return path


def read_settings(path):
    """{"section.key": value as written} of a resolved.yaml.

    Only the form in which a run writes it is read, sections with one key a line, which needs no
    YAML package. The exit code is that of a wrong configuration.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
            raise OSError(0, "not a file")
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise Refused(USAGE, f"{printable(path)}: cannot be read ({error.strerror}); give a run "
                             "folder with the settings that the run recorded") from None
    settings, section = {}, ""
    for count, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, rest = line.partition(":")
        value = re.match(r'\s*("(?:[^"\\]|\\.)*"|[^#"]*)', rest)
        is_whole = (colon and re.fullmatch(r" *\w+", name)
                    and re.match(r"\s*(#|$)", rest[value.end():]))
        if is_whole and not line.startswith(" ") and not value[1].strip():
            section = name
        elif is_whole and section and line.startswith(" "):
            settings[f"{section}.{name.strip()}"] = value[1].strip()
        else:
            shown = printable(line.strip())[:60]
            raise Refused(USAGE, f"{printable(path)}: line {count} is {shown}, want 'section:' or "
                                 "'  key: value'; restore the file that the run wrote")
    return settings


def make_folder(path):
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise Refused(DATA, f"{printable(path)}: cannot make this folder ({error.strerror}); "
                            "choose a place that can be written") from None


def write_whole(path, content):
    """Writes a file that appears whole or not at all. A link is replaced, not followed."""
    path = pathlib.Path(path)
    if str(path.parent) == "/dev" or (os.path.exists(path) and not os.path.isfile(path)):
        raise Refused(DATA, f"{printable(path)}: is a device, a pipe or a folder, which a file "
                            "cannot replace; name a file")
    temporary = path.with_name(path.name + ".tmp")
    try:
        # A link that someone has put there must not be written through.
        temporary.unlink(missing_ok=True)
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise Refused(DATA, f"{printable(path)}: cannot write the file ({error.strerror}); check "
                            "the path, its permissions and the free space") from None


def add_json_option(parser):
    parser.add_argument("--json", metavar="FILE", default="",
                        help='write the report as JSON; "-" prints it instead of the text')


def write_json(path, command, exit_code, fields):
    """The report of a command for programs: nothing without a path, standard output for "-"."""
    if not path:
        return
    report = {"command": command, "exit_code": exit_code, **fields}
    # JSON has no NaN and no infinity: null stands for them.
    report = json.loads(json.dumps(report), parse_constant=lambda _: None)
    whole = json.dumps(report, indent=2) + "\n"
    if path == "-":
        sys.stdout.write(whole)
    else:
        write_whole(path, whole.encode())
