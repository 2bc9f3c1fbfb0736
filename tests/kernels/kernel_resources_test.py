#!/usr/bin/env python3
"""kernel_resources.py on a report of nvcc 13.0."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = (pathlib.Path(__file__).resolve().parents[2] / "kernels" / "bench" /
          "kernel_resources.py")
REPORT = """ptxas info    : 0 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function 'second_kernel' for 'sm_90a'
ptxas info    : Function properties for second_kernel
    16 bytes stack frame, 12 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 16 bytes cumulative stack size
ptxas info    : Compile time = 247.259 ms
ptxas info    : Compiling entry function 'first_kernel' for 'sm_90a'
ptxas info    : Function properties for first_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, 1040 bytes smem
"""


class KernelResources(unittest.TestCase):
    def rows(self, *more):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(REPORT)
            file.flush()
            ran = subprocess.run([sys.executable, "-B", SCRIPT, "--report", file.name, *more],
                                 capture_output=True, text=True, check=False)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        return [[cell.strip() for cell in line.split("|")[1:-1]]
                for line in ran.stdout.splitlines()[2:]]

    def test_a_row_per_kernel(self):
        self.assertEqual(self.rows(), [["`first_kernel`", "40", "0", "0", "0", "1040", "0"],
                                       ["`second_kernel`", "128", "16", "12", "24", "0", "1"]])

    def test_only_some(self):
        self.assertEqual([row[0] for row in self.rows("--only", "second")], ["`second_kernel`"])

    def test_a_file_that_is_not_there_fails(self):
        ran = subprocess.run([sys.executable, "-B", SCRIPT, "/none.cu"], capture_output=True,
                             text=True, check=False)
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("kernel_resources.py: ", ran.stderr)


if __name__ == "__main__":
    unittest.main()
