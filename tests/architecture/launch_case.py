"""What tests of the shell scripts share: stand-ins for programs, and starting a script.

A test that imports it takes the source folder as its first argument.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
ROOT = pathlib.Path(sys.argv[1]).resolve()
LAUNCH = ROOT / "launch"


class LaunchCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.config = self.folder / "a config.yaml"
        self.config.write_text("")
        # The first line that a stand-in prints is its name and arguments, one between each pair of <>.
        self.bertha = self.stand_in("bertha")

    def stand_in(self, name, body="", code=0):
        """A program on PATH that prints its arguments, in one write: mpirun mixes what ranks write."""
        file = self.bin / name
        line = f"echo \"{name}$(printf ' <%s>' \"$@\")\""
        file.write_text(f"#!/bin/bash\n{body}\n{line}\nexit {code}\n")
        file.chmod(0o755)
        return str(file)

    def launch(self, script, *arguments, only_path="", **environment):
        launchers = ("SLURM_", "OMPI_", "PMI", "CUDA_VISIBLE_DEVICES")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
        clean.update(environment, PATH=only_path or f"{self.bin}:{os.environ['PATH']}")
        clean.setdefault("BERTHA", self.bertha)
        clean.setdefault("DOCTOR", "0")
        return subprocess.Popen(
            ["bash", str(LAUNCH / script), *map(str, arguments)],
            env=clean, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )

    def start(self, script, *arguments, **environment):
        """Runs a script to its end: exit code and output."""
        run = self.launch(script, *arguments, **environment)
        output = run.communicate(timeout=60)[0].decode()
        return run.returncode, output
