#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bench/op_case.h"
#include "kernels/device.h"

namespace bertha {

struct OpResult {
  std::string operation;
  std::string shape;
  std::string kernels = {};      // "grouped", where there are several kinds; "" elsewhere
  std::vector<double> times_us;  // one launch each
  double flops = 0;              // per launch; 0 = bound by memory
  double bytes = 0;              // per launch
  double copy_us = 0;            // median of a plain copy that moves as many bytes
  double error = 0;              // largest difference from the reference over the allowed one
  std::string worst;             // the result that it is in
  std::string checked;           // what was compared
};

/// Runs operations on a backend. Each runs once at full size, is compared with the CPU backend on
/// its leading rows, then is timed by events around every launch. Operands rotate from launch to
/// launch and together exceed the caches. Timing waits until the driver has cleared memory freed
/// here.
///
/// Random    The same numbers in every process.
/// Errors    Error(kMemory).
class OpBench {
 public:
  struct Parts {
    Device* device = nullptr;
    Stream* stream = nullptr;  // the one that ops is bound to
    Ops* ops = nullptr;
    // For cases of RowOps: the operations, and what makes the reference's.
    RowOps* row_ops = nullptr;
    std::unique_ptr<RowOps> (*make_reference_row_ops)(Device&, Stream&) = nullptr;
    DType io = DType::kF32;
    int reference_threads = 1;
  };
  explicit OpBench(const Parts& parts);

  /// Blocks: the host, until `launches` have been timed.
  OpResult run(const OpCase& op, int64_t launches);

  /// Runs the operation once at full size, after its preparation, and calls `use` with its tensors,
  /// which stay in device memory until `use` returns.
  void run_once(const OpCase& op, const std::function<void(const OpCall&)>& use);

  /// FLOP/s of one large square GEMM, median. `flops` sizes it.
  double gemm_roof(double flops, int64_t launches);

 private:
  struct Set {
    std::vector<Buffer> memory;
    std::vector<View> views;
  };

  static int64_t bytes_of(const Set& set);
  Set make_set(const OpCase& op, int64_t number);
  void fill(const BenchTensor& tensor, const View& view, int64_t number);
  void repeat(const View& view, int64_t bytes);
  void empty_beyond(const OpCase& op, const Set& set);
  void check(const OpCase& op, const Set& set, OpResult& result);
  void compare(const BenchTensor& tensor, const View& found, const View& wanted, OpResult& result);
  OpCall call_of(const Set& set);
  const Buffer& pool(double scale, DType dtype);
  std::vector<char> download(const View& view, int64_t bytes);
  void enqueue_copies(int count);
  void wait_until_freed_is_cleared();
  std::vector<double> time_us(const std::function<void(int64_t)>& launch, int64_t launches);
  double time_copy_us(double bytes, int64_t launches);

  Parts parts_;
  std::unique_ptr<Device> reference_device_;
  std::unique_ptr<Stream> reference_stream_;
  std::unique_ptr<Ops> reference_ops_;
  std::unique_ptr<RowOps> reference_row_ops_;
  std::map<std::pair<double, DType>, Buffer> pools_;
  Buffer busy_;
  int64_t freed_bytes_ = 0;  // since the last wait
  bool is_asynchronous_ = false;
};

/// Half a unit in the last place of a number in [1, 2).
double rounding_unit(DType dtype);

}  // namespace bertha
