#!/usr/bin/env python3
"""Follows "Adding an operation" of kernels/README.md in a copy of the kernels, up to its CUDA step.

The toy operation, y = -x, touches the files that the guide names and no others. The copy is built
with BERTHA_KERNELS_ONLY, without any package that only the rest of the tree needs; the operation's
test runs through make_cpu_ops, and TimedOps compiles with it unchanged.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNNEEDED = ["MPI", "HDF5", "yaml-cpp", "CLI11", "spdlog", "fmt", "nlohmann_json", "OpenSSL", "GTest"]

# Files of the guide's words, and what they get. A pair is inserted before its first part.
NEW = {
    "kernels/ops/negate.h": """#pragma once

#include "kernels/ops/common.h"

namespace bertha {

/// y = -x.
struct Negate {
  static constexpr const char* kName = "negate";
  View x;  // f32 [n]
  View y;  // f32 [n]  out
};

void validate(const Negate& args);

}  // namespace bertha
""",
    "kernels/ops/negate.cpp": """#include "kernels/ops/negate.h"

#include "kernels/ops/check.h"

namespace bertha {

void validate(const Negate& args) {
  const ArgumentCheck check(Negate::kName);
  check.view("x", args.x, DType::kF32, {args.x.extent(0)});
  check.view("y", args.y, DType::kF32, {args.x.extent(0)});
}

}  // namespace bertha
""",
    "kernels/cpu/negate.cpp": """#include "kernels/ops/negate.h"

#include "kernels/cpu/operations.h"

namespace bertha {

template <>
void run_cpu(WorkerPool& pool, const Negate& args) {
  pool.for_range(args.x.elements(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) args.y.as<float>()[i] = -args.x.as<float>()[i];
  });
}

}  // namespace bertha
""",
    "tests/kernels/negate_test.cpp": """#include <cstdio>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/negate.h"

using namespace bertha;

int main() {
  const auto device = make_cpu_device(2);
  const auto stream = device->make_stream();
  const auto ops = make_cpu_ops(*device, *stream);
  std::vector<float> x(5000, 3.0f);
  std::vector<float> y(5000);
  const View from(x.data(), DType::kF32, {5000});
  ops->run(Negate{.x = from, .y = View(y.data(), DType::kF32, {5000})});
  for (const float value : y) {
    if (value != -3.0f) return 1;
  }
  try {
    ops->run(Negate{.x = from, .y = View(y.data(), DType::kF32, {4999})});
  } catch (const Error& error) {
    std::puts(error.what());
    return 0;
  }
  return 1;
}
""",
}
EDITED = {
    "kernels/ops.h": [("#include \"kernels/ops_fwd.h\"", "#include \"kernels/ops/negate.h\"\n")],
    "kernels/ops_fwd.h": [("struct Quantize;", "struct Negate;\n"), ("Cast, Fill,", "Negate, ")],
    "kernels/CMakeLists.txt": [("ops/attention.cpp", "ops/negate.cpp ")],
    "kernels/cpu/CMakeLists.txt": [("attention.cpp", "negate.cpp ")],
}


def guide():
    """The steps of the guide before that of CUDA."""
    text = (ROOT / "kernels/README.md").read_text()
    return re.search(r"## Adding an operation\n(.*?)\n\d\. \*\*CUDA\.\*\*", text, re.S)[1]


def run(*command, folder):
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                         env=os.environ | {"CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"})
    if ran.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout


class AddOperation(unittest.TestCase):
    def test_the_guide_names_every_file_that_is_touched(self):
        words = re.findall(r"`([^`]+)`", guide())
        for path in [*NEW, *EDITED]:
            name = path.removeprefix("kernels/").replace("negate", "<op>")
            self.assertIn(name if name in words else pathlib.Path(name).name, words)

    def test_the_guides_edits_build_and_run(self):
        with tempfile.TemporaryDirectory() as scratch:
            tree = pathlib.Path(scratch)
            for name in ("CMakeLists.txt", "kernels", "harness/train"):
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                copy(ROOT / name, tree / name)
            for name, text in NEW.items():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_text(text)
            for name, insertions in EDITED.items():
                text = (tree / name).read_text()
                for before, new in insertions:
                    self.assertIn(before, text)
                    text = text.replace(before, new + before, 1)
                (tree / name).write_text(text)
            run("cmake", "-S", tree, "-B", tree / "build", "-G", "Ninja",
                "-DBERTHA_KERNELS_ONLY=ON", "-DBERTHA_CUDA=OFF", "-DBERTHA_NATIVE=OFF",
                "-DCMAKE_BUILD_TYPE=Debug",
                *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in UNNEEDED), folder=tree)
            run("cmake", "--build", tree / "build", "--target", "bertha_kernels_cpu", "-j", "2",
                folder=tree)
            libraries = [tree / "build/kernels" / name for name in
                         ("cpu/libbertha_kernels_cpu.a", "libbertha_ops.a", "libbertha_base.a")]
            compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$",
                                 (tree / "build/CMakeCache.txt").read_text(), re.M)[1]
            run(compiler, "-std=c++20", "-I.", "tests/kernels/negate_test.cpp", "-o", "negate_test",
                *libraries, "-lpthread", folder=tree)
            self.assertIn("negate", run("./negate_test", folder=tree))
            run(compiler, "-std=c++20", "-I.", "-Wall", "-Werror", "-fsyntax-only",
                "harness/train/timed_ops.cpp", folder=tree)


if __name__ == "__main__":
    unittest.main()
