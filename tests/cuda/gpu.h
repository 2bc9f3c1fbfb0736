#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/base/fp8.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_row_ops.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_row_ops.h"
#include "tests/support/expect_close.h"
#include "tests/support/host_tensor.h"

namespace bertha::testing {

/// One backend with what a test needs of it. The same arguments run on the CPU and on the GPU.
struct TestBackend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<RowOps> row_ops;

  void wait() const { stream->wait_on_host(); }
};

/// GPU 0 and the reference, made once per program. The GPU runs portable kernels where it has no
/// others, or where the environment variable BERTHA_TEST_KERNELS is "portable".
const TestBackend& gpu();
const TestBackend& cpu();
/// Another GPU backend with other choices, for variants of a kernel.
TestBackend make_gpu(const CudaOptions& options);

/// What tests of kernels of sm_90a, or of fp8, derive from: skipped where portable kernels run.
class NeedsSm90a : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!runs_sm90a_kernels(*gpu().device)) GTEST_SKIP() << "portable kernels run here";
  }
};

constexpr DType kIoTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kFloatingTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

/// Half a unit in the last place of a number in [1, 2), relative.
double rounding(DType dtype);

/// The nearest values of `dtype`, as f32: what a half-precision kernel and the f32 reference both
/// get as input.
HostTensor<float> rounded_to(DType dtype, const HostTensor<float>& values);

/// Elements in device memory, with a guard band on both sides that `download` checks.
class DeviceTensor {
 public:
  /// Copies `values`, narrowed or widened to `dtype`; the first lies `offset` elements behind an
  /// aligned address.
  DeviceTensor(const TestBackend& backend, DType dtype, const HostTensor<float>& values,
               int64_t offset = 0);
  DeviceTensor(const TestBackend& backend, const HostTensor<int32_t>& values);
  DeviceTensor(const TestBackend& backend, const HostTensor<int64_t>& values);
  DeviceTensor(const TestBackend& backend, const HostTensor<uint64_t>& values);
  DeviceTensor(const TestBackend& backend, const HostTensor<uint8_t>& values);
  DeviceTensor(const TestBackend& backend, const HostTensor<double>& values);

  View view() const { return view_; }
  /// Waits for the stream. f16 and bf16 are widened.
  HostTensor<float> floats() const;
  /// Of any floating dtype, widened.
  std::vector<double> numbers() const;
  template <class T>
  HostTensor<T> values() const;

 private:
  void upload(const void* bytes);
  std::vector<uint8_t> download() const;

  const TestBackend* backend_;
  Buffer buffer_;
  View view_;
  std::vector<int64_t> extents_;
  int64_t offset_bytes_ = 0;
};

}  // namespace bertha::testing
