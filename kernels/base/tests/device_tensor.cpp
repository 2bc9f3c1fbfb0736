#include "kernels/base/tests/device_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/base/error.h"
#include "kernels/base/fp8.h"
#include "kernels/base/half.h"

namespace bertha::testing {
namespace {

// Bytes before and after a tensor that no kernel may write.
constexpr int64_t kGuardBytes = 4096;
constexpr uint8_t kGuard = 0xA5;

}  // namespace

CudaKernels kernels_to_test() {
  const char* const value = std::getenv("BERTHA_TEST_KERNELS");
  const std::string kernels = value == nullptr ? "auto" : value;
  if (kernels == "auto") return CudaKernels::kAuto;
  BERTHA_CHECK(kernels == "portable", "BERTHA_TEST_KERNELS is ", kernels,
               "; set it to auto or portable, or unset it");
  return CudaKernels::kPortable;
}

double rounding(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::ldexp(1.0, -53);
    case DType::kF16:
      return std::ldexp(1.0, -11);
    case DType::kBF16:
      return std::ldexp(1.0, -8);
    default:
      return std::ldexp(1.0, -24);
  }
}

HostTensor<float> rounded_to(DType dtype, const HostTensor<float>& values) {
  HostTensor<float> rounded = values;
  for (float& value : rounded.values) {
    if (dtype == DType::kF16) value = to_float(to_half(static_cast<double>(value)));
    if (dtype == DType::kBF16) value = to_float(to_bfloat16(static_cast<double>(value)));
  }
  return rounded;
}

DeviceTensor::DeviceTensor(const TestDevice& device, DType dtype, const HostTensor<float>& values,
                           int64_t offset)
    : device_(&device),
      view_(nullptr, dtype, std::span(values.extents)),
      extents_(values.extents),
      offset_bytes_(offset * size_bytes(dtype)) {
  std::vector<uint8_t> bytes(static_cast<size_t>(view_.bytes()));
  for (size_t i = 0; i < values.values.size(); ++i) {
    set_element(bytes.data(), dtype, static_cast<int64_t>(i),
                static_cast<double>(values.values[i]));
  }
  upload(bytes.data());
}

template <class T>
DeviceTensor::DeviceTensor(const TestDevice& device, const HostTensor<T>& values)
    : device_(&device),
      view_(nullptr, kDTypeOf<T>, std::span(values.extents)),
      extents_(values.extents) {
  upload(values.values.data());
}

void DeviceTensor::upload(const void* bytes) {
  const int64_t count = view_.bytes();
  const int64_t begin = kGuardBytes + offset_bytes_;
  std::vector<uint8_t> all(static_cast<size_t>(begin + count + kGuardBytes), kGuard);
  if (count > 0) std::memcpy(&all[static_cast<size_t>(begin)], bytes, static_cast<size_t>(count));
  buffer_ = device_->device->allocate(static_cast<int64_t>(all.size()));
  device_->device->copy(*device_->stream, buffer_.data(), all.data(),
                        static_cast<int64_t>(all.size()));
  device_->wait();
  view_.data = static_cast<char*>(buffer_.data()) + begin;
}

std::vector<uint8_t> DeviceTensor::download() const {
  std::vector<uint8_t> all(static_cast<size_t>(buffer_.bytes()));
  device_->device->copy(*device_->stream, all.data(), buffer_.data(), buffer_.bytes());
  device_->wait();
  const int64_t begin = kGuardBytes + offset_bytes_;
  const int64_t end = begin + view_.bytes();
  for (int64_t i = 0; i < static_cast<int64_t>(all.size()); ++i) {
    if (i >= begin && i < end) continue;
    if (all[static_cast<size_t>(i)] == kGuard) continue;
    ADD_FAILURE() << "byte " << i - begin << " of " << view_.shape_text() << " was written";
    break;
  }
  return {all.begin() + begin, all.begin() + end};
}

HostTensor<float> DeviceTensor::floats() const {
  const std::vector<uint8_t> bytes = download();
  HostTensor<float> values;
  values.extents = extents_;
  values.values.resize(static_cast<size_t>(view_.elements()));
  for (size_t i = 0; i < values.values.size(); ++i) {
    values.values[i] =
        static_cast<float>(get_element(bytes.data(), view_.dtype, static_cast<int64_t>(i)));
  }
  return values;
}

std::vector<double> DeviceTensor::numbers() const {
  return view_.dtype == DType::kF64 ? values<double>().values : floats().doubles();
}

template <class T>
HostTensor<T> DeviceTensor::values() const {
  const std::vector<uint8_t> bytes = download();
  HostTensor<T> values;
  values.extents = extents_;
  values.values.resize(static_cast<size_t>(view_.elements()));
  if (!bytes.empty()) std::memcpy(values.values.data(), bytes.data(), bytes.size());
  return values;
}

template DeviceTensor::DeviceTensor(const TestDevice&, const HostTensor<int32_t>&);
template DeviceTensor::DeviceTensor(const TestDevice&, const HostTensor<int64_t>&);
template DeviceTensor::DeviceTensor(const TestDevice&, const HostTensor<uint64_t>&);
template DeviceTensor::DeviceTensor(const TestDevice&, const HostTensor<uint8_t>&);
template DeviceTensor::DeviceTensor(const TestDevice&, const HostTensor<double>&);
template HostTensor<int32_t> DeviceTensor::values() const;
template HostTensor<int64_t> DeviceTensor::values() const;
template HostTensor<uint64_t> DeviceTensor::values() const;
template HostTensor<uint8_t> DeviceTensor::values() const;
template HostTensor<double> DeviceTensor::values() const;

}  // namespace bertha::testing
