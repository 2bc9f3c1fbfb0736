#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/bench/op_case.h"
#include "kernels/base/device.h"

namespace bertha {

struct OpResult {
  std::string operation;
  std::string shape = {};
  std::string kernels = {};           // "grouped", if there are several kinds; otherwise ""
  std::vector<double> times_us = {};  // one launch each
  double flops = 0;                   // per launch; 0 = bound by memory
  double bytes = 0;                   // per launch
  double copy_us = 0;                 // median of a plain copy that moves as many bytes
  double error = 0;                   // largest difference from the reference over the allowed one
  std::string worst = {};             // the result that contains this difference
  std::string checked = {};           // what was compared
};

/// The part of OpBench that does not depend on the set of operations: operands in device memory,
/// their comparison with the reference's, and timing.
class OpBenchBase {
 protected:
  /// The tensors of a case.
  struct Operands {
    std::vector<Buffer> memory;
    std::vector<View> views;
    int64_t bytes = 0;
  };

  OpBenchBase(Device& device, Stream& stream, DType io, int reference_threads);

  /// Operands of different numbers contain different values.
  Operands make_operands(const std::vector<BenchTensor>& tensors, int64_t number);
  /// At least two, which together exceed the caches.
  std::vector<Operands> make_rotating_operands(const std::vector<BenchTensor>& tensors);
  /// The checked part of `full`, for the reference. Clears the rest of tensors that require it.
  Operands make_checked_operands(const std::vector<BenchTensor>& tensors, const Operands& full);
  void compare(const std::vector<BenchTensor>& tensors, const Operands& full,
               const Operands& checked, OpResult& result);
  void wait_until_freed_is_cleared();
  std::vector<double> time_us(const std::function<void(int64_t)>& launch, int64_t launches);
  double time_copy_us(double bytes, int64_t launches);

  Device& device_;
  Stream& stream_;
  const DType io_;
  const std::unique_ptr<Device> reference_device_;
  const std::unique_ptr<Stream> reference_stream_;
  int64_t freed_bytes_ = 0;  // since the last wait

 private:
  void fill(const BenchTensor& tensor, const View& view, int64_t number);
  const Buffer& pool(double scale, DType dtype);
  void enqueue_copies(int count);

  std::map<std::pair<double, DType>, Buffer> pools_;
  Buffer busy_;
  bool is_asynchronous_ = false;
};

/// Runs operations of `Set` on a backend. Each runs once at full size, is compared with the CPU
/// backend on its leading rows, then is timed by events around every launch. Operands rotate from
/// launch to launch and together exceed the caches. Timing waits until the driver has cleared
/// memory freed here.
///
/// Random    The same numbers in every process.
/// Errors    Error(kMemory).
template <class Set>
class OpBench : private OpBenchBase {
 public:
  using Call = BenchCall<Set>;
  using Case = BenchCase<Set>;

  struct Parts {
    Device* device = nullptr;
    Stream* stream = nullptr;  // the stream that ops is bound to
    Set* ops = nullptr;
    std::unique_ptr<Set> (*make_reference)(Device&, Stream&) = nullptr;  // on a CPU device
    DType io = DType::kF32;
    int reference_threads = 1;
  };
  explicit OpBench(const Parts& parts)
      : OpBenchBase(*parts.device, *parts.stream, parts.io, parts.reference_threads),
        ops_(*parts.ops),
        reference_ops_(parts.make_reference(*reference_device_, *reference_stream_)) {}

  /// Blocks: the host, until `launches` have been timed.
  OpResult run(const Case& op, int64_t launches) {
    OpResult result{.operation = op.operation,
                    .shape = op.shape,
                    .flops = op.flops,
                    .bytes = bytes_moved(op.tensors, io_)};
    check(op, result);
    const std::vector<Operands> rotating = make_rotating_operands(op.tensors);
    std::vector<Call> calls;
    for (const Operands& operands : rotating) {
      calls.push_back(call_of(op, operands));
      if (op.prepare) op.prepare(calls.back());
    }
    result.times_us = time_us(
        [&](int64_t i) { op.call(calls[static_cast<size_t>(i) % calls.size()]); }, launches);
    if (op.flops == 0) result.copy_us = time_copy_us(result.bytes, launches);
    for (const Operands& operands : rotating) freed_bytes_ += operands.bytes;
    return result;
  }

  /// Runs the operation once at full size, after its preparation, and calls `use` with its tensors,
  /// which stay in device memory until `use` returns.
  void run_once(const Case& op, const std::function<void(const Call&)>& use) {
    const Operands operands = make_operands(op.tensors, 0);
    const Call call = call_of(op, operands);
    run_prepared(op, call);
    stream_.wait_on_host();
    wait_until_freed_is_cleared();
    use(call);
    freed_bytes_ += operands.bytes;
  }

 private:
  Call call_of(const Case& op, const Operands& operands) const {
    return {
        .ops = ops_, .described = op.tensors, .tensors = operands.views, .extent = Extent::kFull};
  }
  static void run_prepared(const Case& op, const Call& call) {
    if (op.prepare) op.prepare(call);
    op.call(call);
  }
  void check(const Case& op, OpResult& result) {
    const Operands full = make_operands(op.tensors, 0);
    const Operands checked = make_checked_operands(op.tensors, full);
    run_prepared(op, call_of(op, full));
    run_prepared(op, {.ops = *reference_ops_,
                      .described = op.tensors,
                      .tensors = checked.views,
                      .extent = Extent::kChecked});
    compare(op.tensors, full, checked, result);
    freed_bytes_ += full.bytes;
  }

  Set& ops_;
  const std::unique_ptr<Set> reference_ops_;
};

/// Half a unit in the last place of a number in [1, 2).
double rounding_unit(DType dtype);

}  // namespace bertha
