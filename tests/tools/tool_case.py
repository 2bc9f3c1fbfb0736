"""What tests of bertha-tools share: a folder that goes away with the test, and the command line."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "harness" / "tools"))
from bertha_tools import main  # noqa: E402


class ToolCase(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def tool(self, *words, code=0):
        """(what it prints, what it says on standard error)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                found = main.main([str(word) for word in words])
            except SystemExit as ended:  # of argparse
                found = ended.code
        self.assertEqual(found, code, err.getvalue())
        return out.getvalue(), err.getvalue()
