#include "kernels/base/bench/op_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "kernels/base/cpu/cpu_devices.h"
#include "kernels/base/error.h"
#include "kernels/base/figures.h"
#include "kernels/base/fp8.h"
#include "kernels/base/philox.h"

namespace bertha {
namespace {

constexpr int64_t kPoolElements = int64_t{1} << 22;  // random values; tensors repeat them
// Operands of consecutive launches are in separate memory, four times the cache of an H200.
constexpr int64_t kRotatedBytes = int64_t{200} << 20;
constexpr int64_t kMaxRotating = 16;
constexpr int64_t kLaunchesInFlight = 64;  // fewer than the capacity of a driver's queue
constexpr int64_t kBusyBytes = int64_t{128} << 20;
constexpr int kBusyCopies = 32;  // about a millisecond: the host enqueues 64 launches meanwhile
constexpr double kClearedBytesPerSecond = 200e9;  // half of the measured rate
constexpr int64_t kWarmUps = 3;
constexpr int64_t kMaxUploadedRest = int64_t{1} << 20;  // bytes; the device repeats them

/// Blocks: the host, until the bytes have been copied to device memory.
void upload(Device& device, Stream& stream, const std::vector<char>& bytes, void* to) {
  const Buffer pinned = device.allocate_pinned(std::ssize(bytes));
  std::memcpy(pinned.data(), bytes.data(), bytes.size());
  device.copy(stream, to, pinned.data(), pinned.bytes());
  stream.wait_on_host();
}

std::vector<char> download(Device& device, Stream& stream, const void* data, int64_t bytes) {
  std::vector<char> values(static_cast<size_t>(bytes));
  if (bytes == 0) return values;
  const Buffer pinned = device.allocate_pinned(bytes);
  device.copy(stream, pinned.data(), data, bytes);
  stream.wait_on_host();
  std::memcpy(values.data(), pinned.data(), values.size());
  return values;
}

/// Continues the view with copies of its first `bytes`.
void repeat(Device& device, Stream& stream, const View& view, int64_t bytes) {
  char* const data = static_cast<char*>(view.data);
  for (int64_t done = bytes; done < view.bytes(); done *= 2) {
    device.copy(stream, data + done, data, std::min(done, view.bytes() - done));
  }
}

/// Fills the view with zeros, or with -1 if it contains i32.
void empty(Device& device, Stream& stream, const View& view) {
  const int64_t bytes = std::min(view.bytes(), kMaxUploadedRest);
  if (bytes == 0) return;
  const char byte = view.dtype == DType::kI32 ? '\xFF' : '\0';
  upload(device, stream, std::vector<char>(static_cast<size_t>(bytes), byte), view.data);
  repeat(device, stream, view, bytes);
}

}  // namespace

double rounding_unit(DType dtype) {
  if (dtype == DType::kF64) return 0x1p-53;
  if (dtype == DType::kBF16) return 0x1p-8;
  return dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

size_t place_of(std::string_view name, std::span<const BenchTensor> described) {
  const auto found = std::ranges::find(described, name, &BenchTensor::name);
  BERTHA_CHECK(found != described.end(), "no tensor of the case is called ", name);
  return static_cast<size_t>(found - described.begin());
}

double bytes_moved(const std::vector<BenchTensor>& tensors, DType io) {
  double bytes = 0;
  for (const BenchTensor& tensor : tensors) {
    const View view(nullptr, tensor.io ? io : tensor.dtype, std::span(tensor.extents));
    bytes += tensor.passes * static_cast<double>(view.bytes());
  }
  return bytes;
}

OpBenchBase::OpBenchBase(Device& device, Stream& stream, DType io, int reference_threads)
    : device_(device),
      stream_(stream),
      io_(io),
      reference_device_(make_cpu_device(reference_threads)),
      reference_stream_(reference_device_->make_stream()),
      busy_(device.allocate(kBusyBytes)) {
  // An asynchronous stream is kept busy while the host enqueues the launches to be timed.
  const auto after = device_.make_event();
  stream_.wait_on_host();
  enqueue_copies(8);
  stream_.record(*after);
  is_asynchronous_ = !after->is_done();
  stream_.wait_on_host();
}

/// Random values in [-scale, scale).
const Buffer& OpBenchBase::pool(double scale, DType dtype) {
  const auto [at, is_new] = pools_.try_emplace({scale, dtype});
  if (!is_new) return at->second;
  std::vector<char> values(static_cast<size_t>(kPoolElements * size_bytes(dtype)));
  for (int64_t i = 0; i < kPoolElements; i += 4) {
    const PhiloxWords words = random_block(20, 0, 0, i / 4);
    for (int64_t k = 0; k < 4; ++k) {
      const auto value = static_cast<float>(
          scale * 0x1p-31 * static_cast<double>(static_cast<int32_t>(words.elem[k])));
      set_element(values.data(), dtype, i + k, static_cast<double>(value));
    }
  }
  at->second = device_.allocate(std::ssize(values));
  upload(device_, stream_, values, at->second.data());
  return at->second;
}

void OpBenchBase::fill(const BenchTensor& tensor, const View& view, int64_t number) {
  if (!tensor.bytes.empty()) {
    BERTHA_CHECK(std::ssize(tensor.bytes) == view.bytes(), tensor.name, ": ", tensor.bytes.size(),
                 " bytes given, want ", view.bytes());
    return upload(device_, stream_, tensor.bytes, view.data);
  }
  if (tensor.scale == 0) return;  // as allocated
  const Buffer& values = pool(tensor.scale, view.dtype);
  const int64_t pool_bytes = values.bytes();
  int64_t from = number * 65536 % pool_bytes;  // different for every tensor and number
  for (int64_t at = 0; at < view.bytes();) {
    const int64_t bytes = std::min(view.bytes() - at, pool_bytes - from);
    device_.copy(stream_, static_cast<char*>(view.data) + at,
                 static_cast<const char*>(values.data()) + from, bytes);
    at += bytes;
    from = 0;
  }
}

OpBenchBase::Operands OpBenchBase::make_operands(const std::vector<BenchTensor>& tensors,
                                                 int64_t number) {
  Operands made;
  for (const BenchTensor& tensor : tensors) {
    View view(nullptr, tensor.io ? io_ : tensor.dtype, std::span(tensor.extents));
    made.memory.push_back(device_.allocate(view.bytes()));
    made.bytes += view.bytes();
    view.data = made.memory.back().data();
    const View first = tensor.repeats ? view.rows(0, tensor.checked[0]) : view;
    fill(tensor, first, number * 31 + std::ssize(made.views));
    if (tensor.repeats) repeat(device_, stream_, view, first.bytes());
    made.views.push_back(view);
  }
  return made;
}

std::vector<OpBenchBase::Operands> OpBenchBase::make_rotating_operands(
    const std::vector<BenchTensor>& tensors) {
  std::vector<Operands> rotating;
  rotating.push_back(make_operands(tensors, 0));
  const int64_t bytes = std::max<int64_t>(rotating.front().bytes, 1);
  const int64_t count = std::clamp<int64_t>(kRotatedBytes / bytes + 1, 2, kMaxRotating);
  while (std::ssize(rotating) < count) {
    rotating.push_back(make_operands(tensors, std::ssize(rotating)));
  }
  return rotating;
}

OpBenchBase::Operands OpBenchBase::make_checked_operands(const std::vector<BenchTensor>& tensors,
                                                         const Operands& full) {
  const DType exact = io_ == DType::kF64 ? DType::kF64 : DType::kF32;
  Operands made;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const BenchTensor& tensor = tensors[i];
    const View& all = full.views[i];
    View view(nullptr, tensor.io ? exact : tensor.dtype,
              std::span(tensor.checked.empty() ? tensor.extents : tensor.checked));
    if (tensor.is_empty_beyond)
      empty(device_, stream_, all.rows(view.extent(0), all.extent(0) - view.extent(0)));
    made.memory.push_back(reference_device_->allocate(std::max<int64_t>(view.bytes(), 1)));
    view.data = tensor.is_absent_in_reference ? nullptr : made.memory.back().data();
    if (view.has_data()) {
      const std::vector<char> values =
          download(device_, stream_, all.data, view.elements() * size_bytes(all.dtype));
      if (all.dtype == view.dtype) {
        std::ranges::copy(values, static_cast<char*>(view.data));
      } else {
        for (int64_t e = 0; e < view.elements(); ++e) {
          view.as<float>()[e] = static_cast<float>(get_element(values.data(), all.dtype, e));
        }
      }
    }
    made.views.push_back(view);
  }
  return made;
}

// The allowed difference, relative to the largest value: for rounding of inputs and results to the
// dtype, and of sums in f32 or f64. Both grow as the square root of their number (Higham and Mary
// 2019), with a factor for the maximum of many.
void OpBenchBase::compare(const std::vector<BenchTensor>& tensors, const Operands& full,
                          const Operands& checked, OpResult& result) {
  const auto root = [](int64_t count) { return std::sqrt(static_cast<double>(count)); };
  const double sum_unit = io_ == DType::kF64 ? rounding_unit(DType::kF64) : 0x1p-24;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const BenchTensor& tensor = tensors[i];
    if (!tensor.is_result) continue;
    const DType dtype = full.views[i].dtype;
    const View& wanted = checked.views[i];
    const std::vector<char> found =
        download(device_, stream_, full.views[i].data, wanted.elements() * size_bytes(dtype));
    double largest = 0;
    double difference = 0;
    for (int64_t e = 0; e < wanted.elements(); ++e) {
      const double want = tensor.repeated * get_element(wanted.data, wanted.dtype, e);
      const double off = std::abs(get_element(found.data(), dtype, e) - want);
      largest = std::max(largest, std::abs(want));
      difference = std::isnan(off) ? HUGE_VAL : std::max(difference, off);
    }
    const bool is_exact = dtype == DType::kU8 || dtype == DType::kI64 || is_fp8(dtype);
    const double allowed = 4 * (root(tensor.roundings) + 1) * rounding_unit(io_) +
                           6 * (root(tensor.terms) + 1) * sum_unit;
    double error = difference;
    if (difference > 0)
      error = is_exact || largest == 0 ? HUGE_VAL : difference / (allowed * largest);
    if (result.worst.empty() || error > result.error) {
      result.error = error;
      result.worst = tensor.name;
    }
    result.checked += concat(result.checked.empty() ? "" : ", ", tensor.name, " ", wanted.extent(0),
                             "/", full.views[i].extent(0));
  }
}

void OpBenchBase::enqueue_copies(int count) {
  char* const data = static_cast<char*>(busy_.data());
  for (int i = 0; i < count; ++i) {
    device_.copy(stream_, data, data + kBusyBytes / 2, kBusyBytes / 2);
  }
}

// The driver clears freed memory in the background; until it has, a copy takes a tenth longer.
void OpBenchBase::wait_until_freed_is_cleared() {
  const std::chrono::duration<double> needed(static_cast<double>(freed_bytes_) /
                                             kClearedBytesPerSecond);
  if (is_asynchronous_) std::this_thread::sleep_for(needed);
  freed_bytes_ = 0;
}

std::vector<double> OpBenchBase::time_us(const std::function<void(int64_t)>& launch,
                                         int64_t launches) {
  wait_until_freed_is_cleared();
  for (int64_t i = 0; i < kWarmUps; ++i) launch(i);
  std::vector<std::unique_ptr<Event>> borders;
  for (int64_t i = 0; i <= std::min(launches, kLaunchesInFlight); ++i) {
    borders.push_back(device_.make_event());
  }
  std::vector<double> times;
  while (std::ssize(times) < launches) {
    const auto count =
        static_cast<size_t>(std::min(launches - std::ssize(times), std::ssize(borders) - 1));
    if (is_asynchronous_) enqueue_copies(kBusyCopies);
    stream_.record(*borders[0]);
    for (size_t i = 0; i < count; ++i) {
      launch(kWarmUps + std::ssize(times) + static_cast<int64_t>(i));
      stream_.record(*borders[i + 1]);
    }
    stream_.wait_on_host();
    for (size_t i = 0; i < count; ++i) {
      times.push_back(borders[i + 1]->ms_since(*borders[i]) * 1e3);
    }
  }
  return times;
}

double OpBenchBase::time_copy_us(double bytes, int64_t launches) {
  const auto half = std::max<int64_t>(static_cast<int64_t>(bytes / 2) / 256 * 256, 256);
  const int64_t pairs = std::clamp<int64_t>(kRotatedBytes / (2 * half) + 1, 2, kMaxRotating);
  const Buffer memory = device_.allocate(2 * half * pairs);
  char* const data = static_cast<char*>(memory.data());
  const std::vector<double> times = time_us(
      [&](int64_t i) {
        char* const at = data + i % pairs * 2 * half;
        device_.copy(stream_, at, at + half, half);
      },
      launches);
  freed_bytes_ += memory.bytes();
  return percentile(times, 0.5);
}

}  // namespace bertha
