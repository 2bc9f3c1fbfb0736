#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "kernels/base/cpu/cpu_device.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/tests/device_tensor.h"

namespace bertha::testing {

/// One backend. The same arguments run on the CPU and on the GPU, each operation by itself, so that
/// a program links only those that it tests.
struct RowBackend : TestDevice {
  std::unique_ptr<CudaContext> context;  // null: the CPU

  template <class Args>
  void run(const Args& args) const {
    validate(args);
    if (context != nullptr) {
      run_cuda(*context, args);
    } else {
      run_cpu(dynamic_cast<CpuDevice&>(*device).pool(), args);
    }
  }
};

/// GPU 0 and the reference, made once per program. The GPU runs portable kernels if it supports no
/// others, or if the environment variable BERTHA_TEST_KERNELS is "portable".
inline const RowBackend& gpu() {
  static const RowBackend backend = [] {
    RowBackend made;
    made.device = make_cuda_device(0, kernels_to_test());
    made.stream = made.device->make_stream();
    made.context = std::make_unique<CudaContext>(as_cuda(*made.device), native(*made.stream));
    return made;
  }();
  return backend;
}
inline const RowBackend& cpu() {
  static const RowBackend backend = [] {
    RowBackend made;
    made.device = make_cpu_device(2);
    made.stream = made.device->make_stream();
    return made;
  }();
  return backend;
}

/// Base of tests that need the kernels of sm_90a: skipped if portable kernels run.
class NeedsSm90a : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!runs_sm90a_kernels(*gpu().device)) GTEST_SKIP() << "portable kernels run here";
  }
};

}  // namespace bertha::testing
