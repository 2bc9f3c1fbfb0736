#include "kernels/bench/op_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "kernels/base/figures.h"
#include "kernels/base/fp8.h"
#include "kernels/base/philox.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/linear.h"

namespace bertha {
namespace {

constexpr int64_t kPoolElements = int64_t{1} << 22;  // random values; tensors repeat them
// Operands of consecutive launches lie in separate memory, four times the cache of an H200.
constexpr int64_t kRotatedBytes = int64_t{200} << 20;
constexpr int64_t kMostSets = 16;
constexpr int64_t kLaunchesInFlight = 64;  // fewer than a driver's queue holds
constexpr int64_t kBusyBytes = int64_t{128} << 20;
constexpr int kBusyCopies = 32;  // about a millisecond: the host enqueues 64 launches meanwhile
constexpr double kClearedBytesPerSecond = 200e9;  // half of the measured rate
constexpr int64_t kWarmUps = 3;

View view_of(DType dtype, const std::vector<int64_t>& extents) {
  View view(nullptr, dtype, {});
  view.rank = static_cast<int>(extents.size());
  std::copy(extents.begin(), extents.end(), view.extents.begin());
  return view;
}

double element(const char* data, DType dtype, int64_t index) {
  const auto at = [&]<class T>(T value) {
    std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::kF64:
      return at(double{});
    case DType::kF32:
      return static_cast<double>(at(float{}));
    case DType::kF16:
      return static_cast<double>(to_float(at(Half{})));
    case DType::kBF16:
      return static_cast<double>(to_float(at(BFloat16{})));
    case DType::kE4M3:
      return static_cast<double>(to_float(at(Fp8E4M3{})));
    case DType::kE5M2:
      return static_cast<double>(to_float(at(Fp8E5M2{})));
    case DType::kI64:
      return static_cast<double>(at(int64_t{}));
    case DType::kI32:
      return at(int32_t{});
    case DType::kU64:
      return static_cast<double>(at(uint64_t{}));
    case DType::kU8:
      return static_cast<unsigned char>(at(char{}));
  }
  return 0;
}

}  // namespace

double rounding_unit(DType dtype) {
  if (dtype == DType::kF64) return 0x1p-53;
  if (dtype == DType::kBF16) return 0x1p-9;
  return dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

double bytes_moved(const OpCase& op, DType io) {
  double bytes = op.other_bytes;
  for (const BenchTensor& tensor : op.tensors) {
    double elements = 1;
    for (const int64_t extent : tensor.extents) elements *= static_cast<double>(extent);
    bytes +=
        tensor.passes * elements * static_cast<double>(size_bytes(tensor.io ? io : tensor.dtype));
  }
  return bytes;
}

OpBench::OpBench(const Parts& parts)
    : parts_(parts),
      reference_device_(make_cpu_device(parts.reference_threads)),
      reference_stream_(reference_device_->make_stream()),
      reference_ops_(make_cpu_ops(*reference_device_, *reference_stream_)) {
  if (parts.make_reference_row_ops != nullptr) {
    reference_row_ops_ = parts.make_reference_row_ops(*reference_device_, *reference_stream_);
  }
  // An asynchronous stream is kept busy while the host enqueues the launches to be timed.
  busy_ = parts_.device->allocate(kBusyBytes);
  const auto after = parts_.device->make_event();
  parts_.stream->wait_on_host();
  enqueue_copies(8);
  parts_.stream->record(*after);
  is_asynchronous_ = !after->is_done();
  parts_.stream->wait_on_host();
}

/// Random values in [-scale, scale).
const Buffer& OpBench::pool(double scale, DType dtype) {
  const auto [at, is_new] = pools_.try_emplace({scale, dtype});
  if (!is_new) return at->second;
  const int64_t bytes = kPoolElements * size_bytes(DType::kF32);
  const Buffer pinned = parts_.device->allocate_pinned(bytes);
  auto* values = static_cast<float*>(pinned.data());
  for (int64_t i = 0; i < kPoolElements; i += 4) {
    const PhiloxWords words = random_block(20, 0, 0, i / 4);
    for (int64_t k = 0; k < 4; ++k) {
      values[i + k] = static_cast<float>(scale * 0x1p-31 *
                                         static_cast<double>(static_cast<int32_t>(words.elem[k])));
    }
  }
  const Buffer wide = parts_.device->allocate(bytes);
  parts_.device->copy(*parts_.stream, wide.data(), values, bytes);
  at->second = parts_.device->allocate(kPoolElements * size_bytes(dtype));
  parts_.ops->run(Cast{.from = View(wide.data(), DType::kF32, {kPoolElements}),
                       .to = View(at->second.data(), dtype, {kPoolElements})});
  parts_.stream->wait_on_host();
  return at->second;
}

/// Continues the view with copies of its first `bytes`.
void OpBench::repeat(const View& view, int64_t bytes) {
  char* const data = static_cast<char*>(view.data);
  for (int64_t done = bytes; done < view.bytes(); done *= 2) {
    parts_.device->copy(*parts_.stream, data + done, data, std::min(done, view.bytes() - done));
  }
}

void OpBench::fill(const BenchTensor& tensor, const View& view, int64_t number) {
  Device& device = *parts_.device;
  if (!tensor.bytes.empty()) {
    BERTHA_CHECK(std::ssize(tensor.bytes) == view.bytes(), tensor.name, ": ", tensor.bytes.size(),
                 " bytes given, want ", view.bytes());
    const Buffer pinned = device.allocate_pinned(view.bytes());
    std::memcpy(pinned.data(), tensor.bytes.data(), tensor.bytes.size());
    device.copy(*parts_.stream, view.data, pinned.data(), view.bytes());
    parts_.stream->wait_on_host();
    return;
  }
  if (tensor.scale == 0) return;  // as allocated
  const Buffer& values = pool(tensor.scale, view.dtype);
  const int64_t pool_bytes = values.bytes();
  int64_t from = number * 65536 % pool_bytes;  // tensors and sets differ
  for (int64_t at = 0; at < view.bytes();) {
    const int64_t bytes = std::min(view.bytes() - at, pool_bytes - from);
    device.copy(*parts_.stream, static_cast<char*>(view.data) + at,
                static_cast<const char*>(values.data()) + from, bytes);
    at += bytes;
    from = 0;
  }
}

int64_t OpBench::bytes_of(const Set& set) {
  int64_t bytes = 0;
  for (const Buffer& buffer : set.memory) bytes += buffer.bytes();
  return bytes;
}

OpCall OpBench::call_of(const Set& set) {
  return {
      .ops = *parts_.ops, .row_ops = parts_.row_ops, .tensors = set.views, .extent = Extent::kFull};
}

OpBench::Set OpBench::make_set(const OpCase& op, int64_t number) {
  Set set;
  for (const BenchTensor& tensor : op.tensors) {
    View view = view_of(tensor.io ? parts_.io : tensor.dtype, tensor.extents);
    set.memory.push_back(parts_.device->allocate(view.bytes()));
    view.data = set.memory.back().data();
    const View first = tensor.repeats ? view.rows(0, tensor.checked[0]) : view;
    fill(tensor, first, number * 31 + std::ssize(set.views));
    if (tensor.repeats) repeat(view, first.bytes());
    set.views.push_back(view);
  }
  return set;
}

void OpBench::empty_beyond(const OpCase& op, const Set& set) {
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    const BenchTensor& tensor = op.tensors[i];
    if (!tensor.is_empty_beyond || tensor.checked.empty()) continue;
    const View& all = set.views[i];
    const View beyond = all.rows(tensor.checked[0], all.extent(0) - tensor.checked[0]);
    if (beyond.elements() == 0) continue;
    parts_.ops->run(Fill{.values = beyond.reshaped({beyond.elements()}),
                         .value = tensor.dtype == DType::kI32 && !tensor.io ? -1.0 : 0.0});
  }
}

std::vector<char> OpBench::download(const View& view, int64_t bytes) {
  std::vector<char> values(static_cast<size_t>(bytes));
  if (bytes == 0) return values;
  const Buffer pinned = parts_.device->allocate_pinned(bytes);
  parts_.device->copy(*parts_.stream, pinned.data(), view.data, bytes);
  parts_.stream->wait_on_host();
  std::memcpy(values.data(), pinned.data(), values.size());
  return values;
}

// The allowed difference, relative to the largest value: roundings of inputs and results to the
// dtype, and those of sums in f32 or f64. Both grow as the square root of their number (Higham and
// Mary 2019), with a factor for the maximum of many.
void OpBench::compare(const BenchTensor& tensor, const View& found, const View& wanted,
                      OpResult& result) {
  const std::vector<char> device = download(found, wanted.elements() * size_bytes(found.dtype));
  const auto* reference = static_cast<const char*>(wanted.data);
  double largest = 0;
  double difference = 0;
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double want = tensor.repeated * element(reference, wanted.dtype, i);
    const double off = std::abs(element(device.data(), found.dtype, i) - want);
    largest = std::max(largest, std::abs(want));
    difference = std::isnan(off) ? HUGE_VAL : std::max(difference, off);
  }
  const bool is_exact = found.dtype == DType::kU8 || found.dtype == DType::kI64 ||
                        found.dtype == DType::kE4M3 || found.dtype == DType::kE5M2;
  const auto root = [](int64_t count) { return std::sqrt(static_cast<double>(count)); };
  const double sum_unit = parts_.io == DType::kF64 ? rounding_unit(DType::kF64) : 0x1p-24;
  const double allowed = 4 * (root(tensor.roundings) + 1) * rounding_unit(parts_.io) +
                         6 * (root(tensor.terms) + 1) * sum_unit;
  double error = difference;
  if (difference > 0)
    error = is_exact || largest == 0 ? HUGE_VAL : difference / (allowed * largest);
  if (result.worst.empty() || error > result.error) {
    result.error = error;
    result.worst = tensor.name;
  }
}

void OpBench::check(const OpCase& op, const Set& set, OpResult& result) {
  empty_beyond(op, set);
  const DType exact = parts_.io == DType::kF64 ? DType::kF64 : DType::kF32;
  Set reference;
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    const BenchTensor& tensor = op.tensors[i];
    View view = view_of(tensor.io ? exact : tensor.dtype,
                        tensor.checked.empty() ? tensor.extents : tensor.checked);
    reference.memory.push_back(reference_device_->allocate(std::max<int64_t>(view.bytes(), 1)));
    view.data = tensor.is_absent_in_reference ? nullptr : reference.memory.back().data();
    if (view.has_data()) {
      const DType dtype = set.views[i].dtype;
      const std::vector<char> values = download(set.views[i], view.elements() * size_bytes(dtype));
      if (dtype == view.dtype) {
        std::ranges::copy(values, static_cast<char*>(view.data));
      } else {
        for (int64_t e = 0; e < view.elements(); ++e) {
          view.as<float>()[e] = static_cast<float>(element(values.data(), dtype, e));
        }
      }
    }
    reference.views.push_back(view);
  }
  const OpCall on_device = call_of(set);
  const OpCall on_cpu{.ops = *reference_ops_,
                      .row_ops = reference_row_ops_.get(),
                      .tensors = reference.views,
                      .extent = Extent::kChecked};
  for (const OpCall& where : {on_device, on_cpu}) {
    if (op.prepare) op.prepare(where);
    op.call(where);
  }
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    const BenchTensor& tensor = op.tensors[i];
    if (!tensor.is_result) continue;
    compare(tensor, set.views[i], reference.views[i], result);
    const View& part = reference.views[i];
    result.checked += concat(result.checked.empty() ? "" : ", ", tensor.name, " ", part.extent(0),
                             "/", set.views[i].extent(0));
  }
}

void OpBench::enqueue_copies(int count) {
  char* const data = static_cast<char*>(busy_.data());
  for (int i = 0; i < count; ++i) {
    parts_.device->copy(*parts_.stream, data, data + kBusyBytes / 2, kBusyBytes / 2);
  }
}

// The driver clears freed memory in the background; until it has, a copy takes a tenth longer.
void OpBench::wait_until_freed_is_cleared() {
  const std::chrono::duration<double> needed(static_cast<double>(freed_bytes_) /
                                             kClearedBytesPerSecond);
  if (is_asynchronous_) std::this_thread::sleep_for(needed);
  freed_bytes_ = 0;
}

std::vector<double> OpBench::time_us(const std::function<void(int64_t)>& launch, int64_t launches) {
  wait_until_freed_is_cleared();
  for (int64_t i = 0; i < kWarmUps; ++i) launch(i);
  std::vector<std::unique_ptr<Event>> borders;
  for (int64_t i = 0; i <= std::min(launches, kLaunchesInFlight); ++i) {
    borders.push_back(parts_.device->make_event());
  }
  std::vector<double> times;
  while (std::ssize(times) < launches) {
    const auto count =
        static_cast<size_t>(std::min(launches - std::ssize(times), std::ssize(borders) - 1));
    if (is_asynchronous_) enqueue_copies(kBusyCopies);
    parts_.stream->record(*borders[0]);
    for (size_t i = 0; i < count; ++i) {
      launch(kWarmUps + std::ssize(times) + static_cast<int64_t>(i));
      parts_.stream->record(*borders[i + 1]);
    }
    parts_.stream->wait_on_host();
    for (size_t i = 0; i < count; ++i) {
      times.push_back(borders[i + 1]->ms_since(*borders[i]) * 1e3);
    }
  }
  return times;
}

double OpBench::time_copy_us(double bytes, int64_t launches) {
  const auto half = std::max<int64_t>(static_cast<int64_t>(bytes / 2) / 256 * 256, 256);
  const int64_t sets = std::clamp<int64_t>(kRotatedBytes / (2 * half) + 1, 2, kMostSets);
  const Buffer memory = parts_.device->allocate(2 * half * sets);
  char* const data = static_cast<char*>(memory.data());
  const std::vector<double> times = time_us(
      [&](int64_t i) {
        char* const at = data + i % sets * 2 * half;
        parts_.device->copy(*parts_.stream, at, at + half, half);
      },
      launches);
  freed_bytes_ += memory.bytes();
  return percentile(times, 0.5);
}

OpResult OpBench::run(const OpCase& op, int64_t launches) {
  OpResult result{.operation = op.operation,
                  .shape = op.shape,
                  .times_us = {},
                  .flops = op.flops,
                  .bytes = bytes_moved(op, parts_.io),
                  .worst = {},
                  .checked = {}};
  check(op, make_set(op, 0), result);

  std::vector<Set> sets;
  sets.push_back(make_set(op, 0));
  const int64_t set_bytes = bytes_of(sets.front());
  freed_bytes_ += set_bytes;  // of the one that was checked
  const int64_t count =
      std::clamp<int64_t>(kRotatedBytes / std::max<int64_t>(set_bytes, 1) + 1, 2, kMostSets);
  while (std::ssize(sets) < count) sets.push_back(make_set(op, std::ssize(sets)));
  std::vector<OpCall> calls;
  for (const Set& set : sets) {
    calls.push_back(call_of(set));
    if (op.prepare) op.prepare(calls.back());
  }
  result.times_us =
      time_us([&](int64_t i) { op.call(calls[static_cast<size_t>(i % count)]); }, launches);
  if (op.flops == 0) result.copy_us = time_copy_us(result.bytes, launches);
  freed_bytes_ += count * set_bytes;
  return result;
}

void OpBench::run_once(const OpCase& op, const std::function<void(const OpCall&)>& use) {
  const Set set = make_set(op, 0);
  const OpCall call = call_of(set);
  if (op.prepare) op.prepare(call);
  op.call(call);
  parts_.stream->wait_on_host();
  wait_until_freed_is_cleared();
  use(call);
  freed_bytes_ += bytes_of(set);
}

double OpBench::gemm_roof(double flops, int64_t launches) {
  const auto side =
      std::clamp<int64_t>(static_cast<int64_t>(std::cbrt(flops / 2)) / 256 * 256, 256, 8192);
  OpCase gemm{
      .operation = "linear_fwd",
      .shape = {},
      .tensors = {{.name = "x", .extents = {side, side}, .checked = {16, side}, .scale = 1},
                  {.name = "weight", .extents = {side, side}, .scale = 1},
                  {.name = "y", .extents = {side, side}, .checked = {16, side}}},
      .call =
          [](const OpCall& c) {
            c.ops.run(LinearFwd{
                .x = c[0], .weight = c[1], .bias = View(), .y = c[2], .pre_activation = View()});
          },
      .flops = 2.0 * static_cast<double>(side * side * side)};
  const double us = percentile(run(gemm, launches).times_us, 0.5);
  return us > 0 ? gemm.flops / us * 1e6 : 0;
}

}  // namespace bertha
