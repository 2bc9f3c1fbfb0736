"""Tables in the terminal and pictures in files."""
import io
import pathlib

from bertha_tools.errors import USAGE, Refused
from bertha_tools.run_folder import printable, write_whole

PICTURES = (".svg", ".png", ".pdf")


def check_picture(path):
    """Call before the work whose picture it will be."""
    if pathlib.Path(path).suffix not in PICTURES:
        raise Refused(USAGE, f"{printable(path)}: want a name that ends with {', '.join(PICTURES)}")


def new_figure(width, height):
    """A matplotlib figure, in inches, that needs no display; text stays text in an SVG."""
    import matplotlib
    from matplotlib.figure import Figure
    matplotlib.rcParams["svg.fonttype"] = "none"
    return Figure(figsize=(width, height), layout="constrained")


def write_figure(figure, path):
    picture = io.BytesIO()
    figure.savefig(picture, format=pathlib.Path(path).suffix[1:], dpi=150)
    write_whole(path, picture.getvalue())


def print_table(columns, rows):
    """Names in the first column are left-aligned, figures right-aligned."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if table.columns else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    # A terminal wraps at its width; a pipe or a file gets whole lines.
    console = Console(highlight=False)
    console.width = console.width if console.is_terminal else 200
    console.print(table)
