#include "tests/cuda/gpu.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace bertha::testing {
namespace {

// Bytes before and after a tensor that no kernel may write.
constexpr int64_t kGuardBytes = 4096;
constexpr uint8_t kGuard = 0xA5;

View shaped(void* data, DType dtype, const std::vector<int64_t>& extents) {
  View view(data, dtype, {});
  view.rank = static_cast<int>(extents.size());
  for (size_t axis = 0; axis < extents.size(); ++axis) view.extents[axis] = extents[axis];
  return view;
}

CudaKernels kernels_to_test() {
  const char* const asked = std::getenv("BERTHA_TEST_KERNELS");
  if (asked == nullptr) return CudaKernels::kAuto;
  BERTHA_CHECK(std::string(asked) == "portable", "BERTHA_TEST_KERNELS is ", asked,
               ", want portable, or no such variable");
  return CudaKernels::kPortable;
}

}  // namespace

const TestBackend& gpu() {
  static const TestBackend backend = make_gpu({});
  return backend;
}

const TestBackend& cpu() {
  static const TestBackend backend = [] {
    TestBackend made{
        .device = make_cpu_device(2), .stream = nullptr, .ops = nullptr, .row_ops = nullptr};
    made.stream = made.device->make_stream();
    made.ops = make_cpu_ops(*made.device, *made.stream);
    made.row_ops = make_cpu_row_ops(*made.device, *made.stream);
    return made;
  }();
  return backend;
}

TestBackend make_gpu(const CudaOptions& options) {
  TestBackend made{.device = make_cuda_device(0, kernels_to_test()),
                   .stream = nullptr,
                   .ops = nullptr,
                   .row_ops = nullptr};
  made.stream = made.device->make_stream();
  made.ops = make_cuda_ops(*made.device, *made.stream, options);
  made.row_ops = make_cuda_row_ops(*made.device, *made.stream);
  return made;
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

DeviceTensor::DeviceTensor(const TestBackend& backend, DType dtype, const HostTensor<float>& values,
                           int64_t offset)
    : backend_(&backend),
      view_(shaped(nullptr, dtype, values.extents)),
      extents_(values.extents),
      offset_bytes_(offset * size_bytes(dtype)) {
  std::vector<uint8_t> bytes(static_cast<size_t>(view_.bytes()));
  for (size_t i = 0; i < values.values.size(); ++i) {
    const double value = static_cast<double>(values.values[i]);
    if (dtype == DType::kF64) std::memcpy(&bytes[8 * i], &value, 8);
    if (dtype == DType::kF32) std::memcpy(&bytes[4 * i], &values.values[i], 4);
    if (dtype == DType::kE4M3) bytes[i] = to_e4m3(value).bits;
    if (dtype == DType::kE5M2) bytes[i] = to_e5m2(value).bits;
    if (dtype == DType::kF16) {
      const Half half = to_half(value);
      std::memcpy(&bytes[2 * i], &half, 2);
    }
    if (dtype == DType::kBF16) {
      const BFloat16 half = to_bfloat16(value);
      std::memcpy(&bytes[2 * i], &half, 2);
    }
  }
  upload(bytes.data());
}

DeviceTensor::DeviceTensor(const TestBackend& backend, const HostTensor<int32_t>& values)
    : backend_(&backend),
      view_(shaped(nullptr, DType::kI32, values.extents)),
      extents_(values.extents) {
  upload(values.values.data());
}

DeviceTensor::DeviceTensor(const TestBackend& backend, const HostTensor<int64_t>& values)
    : backend_(&backend),
      view_(shaped(nullptr, DType::kI64, values.extents)),
      extents_(values.extents) {
  upload(values.values.data());
}

DeviceTensor::DeviceTensor(const TestBackend& backend, const HostTensor<uint64_t>& values)
    : backend_(&backend),
      view_(shaped(nullptr, DType::kU64, values.extents)),
      extents_(values.extents) {
  upload(values.values.data());
}

DeviceTensor::DeviceTensor(const TestBackend& backend, const HostTensor<uint8_t>& values)
    : backend_(&backend),
      view_(shaped(nullptr, DType::kU8, values.extents)),
      extents_(values.extents) {
  upload(values.values.data());
}

DeviceTensor::DeviceTensor(const TestBackend& backend, const HostTensor<double>& values)
    : backend_(&backend),
      view_(shaped(nullptr, DType::kF64, values.extents)),
      extents_(values.extents) {
  upload(values.values.data());
}

void DeviceTensor::upload(const void* bytes) {
  const int64_t count = view_.bytes();
  const int64_t begin = kGuardBytes + offset_bytes_;
  std::vector<uint8_t> all(static_cast<size_t>(begin + count + kGuardBytes), kGuard);
  if (count > 0) std::memcpy(&all[static_cast<size_t>(begin)], bytes, static_cast<size_t>(count));
  buffer_ = backend_->device->allocate(static_cast<int64_t>(all.size()));
  backend_->device->copy(*backend_->stream, buffer_.data(), all.data(),
                         static_cast<int64_t>(all.size()));
  backend_->wait();
  view_.data = static_cast<char*>(buffer_.data()) + begin;
}

std::vector<uint8_t> DeviceTensor::download() const {
  std::vector<uint8_t> all(static_cast<size_t>(buffer_.bytes()));
  backend_->device->copy(*backend_->stream, all.data(), buffer_.data(), buffer_.bytes());
  backend_->wait();
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
    if (view_.dtype == DType::kF32) std::memcpy(&values.values[i], &bytes[4 * i], 4);
    if (view_.dtype == DType::kF16) {
      Half half;
      std::memcpy(&half, &bytes[2 * i], 2);
      values.values[i] = to_float(half);
    }
    if (view_.dtype == DType::kBF16) {
      BFloat16 half;
      std::memcpy(&half, &bytes[2 * i], 2);
      values.values[i] = to_float(half);
    }
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

template HostTensor<int32_t> DeviceTensor::values() const;
template HostTensor<int64_t> DeviceTensor::values() const;
template HostTensor<uint64_t> DeviceTensor::values() const;
template HostTensor<uint8_t> DeviceTensor::values() const;
template HostTensor<double> DeviceTensor::values() const;

}  // namespace bertha::testing
