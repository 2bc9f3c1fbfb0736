"""Pictures, drawn as `bertha-tools plot` draws its own. Needs matplotlib."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "harness/tools"))

from bertha_tools.output import new_figure, write_figure  # noqa: E402,F401
