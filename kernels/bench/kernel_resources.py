#!/usr/bin/env python3
"""Registers, shared memory and spills of CUDA kernels, as the compiler reports them.

    python3 kernels/bench/kernel_resources.py                     # the kernels of attention
    python3 kernels/bench/kernel_resources.py kernels/cuda/norm_softmax/residual_ln.cu --only backward
    nvcc ... -Xptxas -v 2> report.txt; python3 kernels/bench/kernel_resources.py --report report.txt

Compiles each file as the build does, for sm_90a, and prints one Markdown row per kernel:
registers of a thread (of 65,536 on an SM), bytes of its stack, bytes that it stores to
and loads from spilled registers, bytes of shared memory declared in the kernel, and barriers.
Shared memory that a launch asks for is not in it: see the launcher. Needs nvcc, no GPU; c++filt, if
there is one, spells the names.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATTENTION = ROOT / "kernels" / "cuda" / "attention"
FLAGS = ["-std=c++20", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v", "-cubin"]

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
BARRIERS = re.compile(r"used (\d+) barriers")
SHARED = re.compile(r"(\d+) bytes smem")


def number(pattern, line):
    found = pattern.search(line)
    return int(found.group(1)) if found else 0


def parse(report):
    """One dict per entry function of a `-Xptxas -v` report."""
    kernels = []
    for line in report.splitlines():
        if entry := ENTRY.search(line):
            kernels.append({"name": entry.group(1), "arch": entry.group(2)})
        elif kernels and (frame := FRAME.search(line)) and "stack" not in kernels[-1]:
            for key, text in zip(("stack", "stored", "loaded"), frame.groups()):
                kernels[-1][key] = int(text)
        elif kernels and (used := USED.search(line)):
            kernels[-1] |= {"registers": int(used.group(1)), "barriers": number(BARRIERS, line),
                            "shared": number(SHARED, line)}
    return [kernel for kernel in kernels if "registers" in kernel]


def spelled(names):
    """The same names as C++ has them, without what says nothing."""
    if shutil.which("c++filt"):
        names = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                               check=True).stdout.splitlines()
    short = []
    for name in names:
        name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
        name = re.sub(r"\b(bertha|std)::", "", name)
        short.append(re.sub(r"\([^()]*\)$", "", name))  # parameters
    return short


def table(kernels):
    lines = ["| kernel | registers | stack (B) | spilled: stored (B) | loaded (B) | "
             "shared, declared (B) | barriers |", "|---|---|---|---|---|---|---|"]
    for name, k in sorted(zip(spelled([k["name"] for k in kernels]), kernels),
                          key=lambda pair: pair[0]):
        lines.append(f"| `{name}` | {k['registers']} | {k.get('stack', 0)} | {k.get('stored', 0)} "
                     f"| {k.get('loaded', 0)} | {k['shared']} | {k['barriers']} |")
    return lines


def compile_report(file, arch):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, *FLAGS, f"-arch={arch}", "-I", str(ROOT), "-o", f"{folder}/out.cubin",
                   str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            sys.exit(f"kernel_resources.py: {nvcc}: {error.strerror}; put nvcc on PATH")
    if done.returncode != 0:
        sys.exit(f"kernel_resources.py: {file} does not compile:\n{done.stderr}")
    return done.stderr + done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE.cu")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--report", type=pathlib.Path, help="a report that nvcc wrote, instead")
    options = parser.parse_args()
    if options.report:
        kernels = parse(options.report.read_text())
    else:
        kernels = []
        for file in options.files or sorted(ATTENTION.glob("*.cu")):
            kernels += parse(compile_report(file, options.arch))
    lines = table(kernels)
    print("\n".join(lines[:2] + [line for line in lines[2:] if options.only in line]))


if __name__ == "__main__":
    main()
