#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// What the calls of one operation took together. The GEMMs of linear layers count apart by
/// shape: "linear_fwd 24576x3072x1024" is [T x N x K].
struct OperationTime {
  std::string name;
  int64_t calls = 0;
  double ms = 0;     // between events before and after each call, on the stream
  double flops = 0;  // of GEMMs, 2 per multiply-add; 0 where the shapes do not tell
  double bytes = 0;  // tensors read and written, each once per reading and writing; 0 for GEMMs
};

/// The operations of another Ops, each between two events on its stream. The stream's order and
/// its results stay as they are; the events keep small operations a little apart.
class TimedOps final : public Ops {
 public:
  /// `inner` is bound to `stream` of `device`; all three outlive this.
  TimedOps(Ops& inner, Device& device, Stream& stream)
      : inner_(inner), device_(device), stream_(stream) {}

  /// Sums since the last call over the operations that have finished, by falling time; those in
  /// flight count next time.
  std::vector<OperationTime> take_totals();

 private:
  struct Span {
    OperationTime cost;  // of one call, without its time
    std::unique_ptr<Event> begin;
    std::unique_ptr<Event> end;
  };

  void enqueue(AnyArgs any) override;
  std::unique_ptr<Event> record();
  void collect();

  Ops& inner_;
  Device& device_;
  Stream& stream_;
  std::deque<Span> spans_;                     // in stream order
  std::vector<std::unique_ptr<Event>> spare_;  // to be used again
  std::map<std::string, OperationTime> totals_;
};

}  // namespace bertha
