#!/usr/bin/env python3
"""Builds kernels/rows from a copy of it and of kernels/base, with no package but GoogleTest to be found,
after following "Adding an operation" of kernels/rows/README.md there.

The toy operation, y = -x, touches the files that the guide names and no others. Its program and those of
the library run on the CPU; its kernel is compiled where nvcc is.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = "kernels/rows/"
UNNEEDED = ["MPI", "HDF5", "yaml-cpp", "CLI11", "spdlog", "fmt", "nlohmann_json", "OpenSSL", "PkgConfig",
            "Protobuf", "Python", "Python3", "OpenBLAS"]

# Files of the guide's words, and what they get. A pair is inserted before its first part.
NEW = {
    "ops/negate.h": """#pragma once

#include "kernels/base/arguments.h"

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
    "ops/negate.cpp": """#include "kernels/rows/ops/negate.h"

#include "kernels/base/check.h"

namespace bertha {

void validate(const Negate& args) {
  const ArgumentCheck check(Negate::kName);
  check.view("x", args.x, DType::kF32, {args.x.extent(0)});
  check.view("y", args.y, DType::kF32, {args.x.extent(0)});
}

}  // namespace bertha
""",
    "cpu/negate.cpp": """#include "kernels/rows/ops/negate.h"

#include "kernels/base/cpu/operations.h"

namespace bertha {

template <>
void run_cpu(WorkerPool& pool, const Negate& args) {
  pool.for_range(args.x.elements(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) args.y.as<float>()[i] = -args.x.as<float>()[i];
  });
}

}  // namespace bertha
""",
    "cuda/norm_softmax/negate.cu": """// y = -x, a thread an element. Bound by memory.

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/cuda/types.cuh"
#include "kernels/rows/ops/negate.h"

namespace bertha {
namespace {

__global__ void negate_kernel(const float* x, float* y, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) y[i] = -x[i];
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const Negate& args) {
  constexpr int64_t kThreads = 256;
  const int64_t count = args.x.elements();
  if (count == 0) return;
  launch_kernel(context.stream, negate_kernel,
                {blocks_for(count, kThreads), kThreads},
                static_cast<const float*>(elements<float>(args.x)), elements<float>(args.y), count);
}

}  // namespace bertha
""",
    "tests/negate_test.cpp": """#include "kernels/rows/ops/negate.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/rows/row_ops.h"

namespace bertha {
namespace {

TEST(Negate, ChangesSigns) {
  std::vector<float> x(5000, 3.0f);
  std::vector<float> y(5000);
  const View from(x.data(), DType::kF32, {5000});
  run_on_cpu(Negate{.x = from, .y = View(y.data(), DType::kF32, {5000})}, 2);
  for (const float value : y) EXPECT_EQ(value, -3.0f);
  EXPECT_NE(error_of([&] { validate(Negate{.x = from, .y = View()}); }, ExitCode::kInternal), "");
}

}  // namespace
}  // namespace bertha
""",
}
EDITED = {
    "row_ops.h": [('#include "kernels/rows/ops/prelu.h"', '#include "kernels/rows/ops/negate.h"\n'),
                  ("SoftmaxFwd, SoftmaxBwd", "Negate, ")],
    "CMakeLists.txt": [("ops/prelu.cpp", "ops/negate.cpp "), ("cpu/prelu.cpp", "cpu/negate.cpp "),
                       ("cuda/channels/prelu.cu", "cuda/norm_softmax/negate.cu ")],
    "tests/CMakeLists.txt": [("row_test(prelu_test", "row_test(negate_test SOURCES negate_test.cpp)\n")],
}


def guide():
    return re.search(r"## Adding an operation\n(.*)", (ROOT / ROWS / "README.md").read_text(), re.S)[1]


def run(*command, folder):
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                         env=os.environ | {"CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"})
    if ran.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout


class RowsAlone(unittest.TestCase):
    def test_the_guide_names_every_file_that_is_touched_on_one_page(self):
        steps = guide()
        self.assertLessEqual(len(steps.splitlines()), 60)
        words = re.findall(r"`([^`]+)`", steps)
        for path in [*NEW, *EDITED]:
            self.assertEqual(words.count(path.replace("negate", "<op>")), 1, path)

    def test_the_guides_edits_build_and_run_without_the_rest_of_the_tree(self):
        with tempfile.TemporaryDirectory() as scratch:
            tree = pathlib.Path(scratch)
            for name in ("kernels/base", "kernels/rows"):
                shutil.copytree(ROOT / name, tree / name)
            for name, text in NEW.items():
                (tree / ROWS / name).write_text(text)
            for name, insertions in EDITED.items():
                text = (tree / ROWS / name).read_text()
                for before, new in insertions:
                    self.assertIn(before, text)
                    text = text.replace(before, new + before, 1)
                (tree / ROWS / name).write_text(text)
            build = tree / "build"
            run("cmake", "-S", tree / ROWS, "-B", build, "-G", "Ninja", "-DBERTHA_CUDA=OFF",
                "-DBERTHA_TESTS=ON", "-DCMAKE_BUILD_TYPE=Debug",
                *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in UNNEEDED), folder=tree)
            run("cmake", "--build", build, "-j", "2", folder=tree)
            # The excluded tests compile for minutes, and run in the whole tree as well.
            listed = run("ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error",
                         "--exclude-regex", "functors_compile_test|rows_guest", folder=tree)
            for test in ("negate_test", "softmax_test", "c_interface_test", "rows_installed_package"):
                self.assertRegex(listed, rf"{test} \.* +Passed")
            nvcc = shutil.which("nvcc")
            if nvcc:
                run(nvcc, "-std=c++20", "-arch=sm_90a", "--expt-relaxed-constexpr", "-I.", "-c",
                    "-o", "negate.o", ROWS + "cuda/norm_softmax/negate.cu", folder=tree)


if __name__ == "__main__":
    unittest.main()
