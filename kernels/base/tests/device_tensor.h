#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/base/cuda/cuda_devices.h"
#include "kernels/base/device.h"
#include "kernels/base/tests/host_tensor.h"
#include "kernels/base/view.h"

namespace bertha::testing {

/// A device and a stream on it. Test backends add operations.
struct TestDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;

  void wait() const { stream->wait_on_host(); }
};

/// The kernels that tests run on GPU 0: portable ones if the environment variable
/// BERTHA_TEST_KERNELS is "portable", those of the GPU if it is "auto" or not set.
CudaKernels kernels_to_test();

constexpr DType kIoTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kFloatingTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

/// Half a unit in the last place of a number in [1, 2), relative.
double rounding(DType dtype);

/// The nearest values of `dtype`, as f32: the input of both a half-precision kernel and the f32
/// reference.
HostTensor<float> rounded_to(DType dtype, const HostTensor<float>& values);

/// Elements in device memory, with a guard band on both sides that every read of the elements
/// checks. The TestDevice must outlive it.
class DeviceTensor {
 public:
  /// Copies `values`, narrowed or widened to `dtype`; the first one is stored `offset` elements
  /// after an aligned address.
  DeviceTensor(const TestDevice& device, DType dtype, const HostTensor<float>& values,
               int64_t offset = 0);
  /// T: int32_t, int64_t, uint64_t, uint8_t or double.
  template <class T>
  DeviceTensor(const TestDevice& device, const HostTensor<T>& values);

  View view() const { return view_; }
  /// Waits for the stream. f16 and bf16 are widened.
  HostTensor<float> floats() const;
  /// Any floating dtype, widened.
  std::vector<double> numbers() const;
  template <class T>
  HostTensor<T> values() const;

 private:
  void upload(const void* bytes);
  std::vector<uint8_t> download() const;

  const TestDevice* device_;
  Buffer buffer_;
  View view_;
  std::vector<int64_t> extents_;
  int64_t offset_bytes_ = 0;
};

}  // namespace bertha::testing
