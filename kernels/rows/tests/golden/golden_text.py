"""Text files of golden values, which golden.h reads."""
import pathlib


def text_of(value):
    """Nested lists become one line; fifteen digits store the inputs exactly."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(text_of(item) for item in value)
    return f"{value:.15g}"


def write_golden(name, made_with, cases):
    """Writes the file `name` to the folder of this script.

    `cases` are pairs of an operation and its fields: a dict of words, numbers and lists.
    """
    lines = [f"# Made with {made_with}."]
    for operation, fields in cases:
        lines.append(f"case {operation}")
        lines += [f"{field} {text_of(value)}" for field, value in fields.items()]
    pathlib.Path(__file__).with_name(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
