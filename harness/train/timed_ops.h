#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/report/run_records.h"
#include "kernels/base/device.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// The operations of another Ops, each between two events on its stream. Order and results do not
/// change; the events add small gaps between short operations.
class TimedOps final : public Ops {
 public:
  /// `inner` is bound to `stream` of `device`; all three outlive this.
  TimedOps(Ops& inner, Device& device, Stream& stream)
      : inner_(inner), device_(device), stream_(stream) {}

  /// Sums over the operations that have finished since the last call, longest time first;
  /// operations in flight count next time.
  std::vector<OperationTime> take_totals();

 private:
  struct Span {
    OperationTime cost;  // of one call; its time is not set
    std::unique_ptr<Event> begin;
    std::unique_ptr<Event> end;
  };

  void enqueue(AnyArgs any) override;
  std::unique_ptr<Event> record();
  void collect();

  Ops& inner_;
  Device& device_;
  Stream& stream_;
  std::deque<Span> spans_;  // in stream order
  std::vector<std::unique_ptr<Event>> free_events_;
  std::map<std::string, OperationTime> totals_;
};

}  // namespace bertha
