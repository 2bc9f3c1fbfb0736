"""Figures as text, tables in the terminal, reports and pictures in files that appear complete."""
import argparse
import io
import json
import math
import os
import pathlib
import sys
import warnings

from bertha_tools.errors import DATA, Refused, printable, shortened

PICTURES = (".svg", ".png", ".pdf")


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


def memory(count):
    """Bytes with a binary unit: 64.0 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1023.95:
            return f"{count:.{0 if unit == 'B' else 1}f} {unit}"
        count /= 1024
    return f"{fixed(count, 1)} TiB"


def duration(seconds):
    """45s, 3m31s, 2h05m, 3d04h."""
    if not 0 <= seconds < math.inf:
        return "?"
    minutes, rest = divmod(math.floor(min(seconds, 1e9) + 0.5), 60)
    hours, days = minutes // 60, minutes // 1440
    if days > 1000:
        return ">1000d"
    if days:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def counted(count, noun):
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def short_names(paths):
    """Paths without their common leading folders."""
    whole = [os.path.abspath(path) for path in paths]
    common = os.path.commonpath([os.path.dirname(path) for path in whole])
    return [os.path.relpath(path, common) for path in whole]


def write_whole(path, content):
    """Writes a file that appears complete or not at all. A link is replaced, not followed."""
    path = pathlib.Path(path)
    if str(path.parent) == "/dev" or (os.path.exists(path) and not os.path.isfile(path)):
        raise Refused(DATA, f"{path}: is a device, a pipe or a folder, which a file cannot "
                            "replace; give a file")
    temporary = path.with_name(path.name + ".tmp")
    try:
        # Do not write through a link that another user has created.
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
        raise Refused(DATA, f"{path}: cannot write the file ({error.strerror}); check the path, "
                            "its permissions and the free space") from None


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


def picture(word):
    """The type of an option for a picture's file name."""
    if pathlib.Path(word).suffix not in PICTURES:
        raise argparse.ArgumentTypeError(f"found {shortened(word, 100)}, want a name that ends "
                                         f"with {', '.join(PICTURES)}")
    return word


def new_figure(width, height):
    """A matplotlib figure, in inches, that needs no display; text stays text in an SVG."""
    import matplotlib
    from matplotlib.figure import Figure
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "bertha",
                                "text.parse_math": False, "axes.formatter.useoffset": False})
    return Figure(figsize=(width, height), layout="constrained")


def write_figure(figure, path):
    """Equal figures give equal files."""
    ending, drawn = pathlib.Path(path).suffix, io.BytesIO()
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about letters that the font lacks
        figure.savefig(drawn, format=ending[1:], dpi=150, metadata=dates.get(ending))
    write_whole(path, drawn.getvalue())


def print_table(columns, rows, justify="right"):
    """justify: of all columns but the first. A table that is wider than the terminal becomes a
    block for each row."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for column in columns:
        table.add_column(Text(printable(column)), no_wrap=True,
                         justify=justify if table.columns else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(highlight=False)
    width = console.measure(table, options=console.options.update_width(100_000)).maximum
    if not console.is_terminal:
        console.width = max(width, 1)  # whole lines for a pipe or a file
    if width <= console.width:
        console.print(table)
        return
    for name, *cells in rows:
        console.print(Text(printable(name), style="bold"))
        for column, cell in zip(columns[1:], cells):
            console.print(Text(printable(f"  {column}  {cell}")))
