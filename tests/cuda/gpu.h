#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/base/fp8.h"
#include "kernels/base/tests/device_tensor.h"
#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/host_tensor.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"

namespace bertha::testing {

/// One backend. The same arguments run on the CPU and on the GPU.
struct TestBackend : TestDevice {
  std::unique_ptr<Ops> ops;
};

/// GPU 0 and the reference, made once per program. The GPU runs portable kernels if it supports no
/// others, or if the environment variable BERTHA_TEST_KERNELS is "portable".
const TestBackend& gpu();
const TestBackend& cpu();
/// Another GPU backend with other choices, for variants of a kernel.
TestBackend make_gpu(const CudaOptions& options);

/// Base of tests that need the kernels of sm_90a, or fp8: skipped if portable kernels run.
class NeedsSm90a : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!runs_sm90a_kernels(*gpu().device)) GTEST_SKIP() << "portable kernels run here";
  }
};

}  // namespace bertha::testing
