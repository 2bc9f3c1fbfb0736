"""What tests of the scripts share: a folder that goes away with the test, and running a script in it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))


class ScriptCase(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_script(self, script, *words, **how):
        """A script of this folder, or one by its whole path, run to its end."""
        return subprocess.run([sys.executable, "-B", str(HERE / script), *map(str, words)],
                              cwd=self.folder, capture_output=True, text=True, check=False, **how)

    def code_and_text(self, script, *words):
        """Exit code and all that it prints."""
        done = self.run_script(script, *words)
        return done.returncode, done.stdout + done.stderr
