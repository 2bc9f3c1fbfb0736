#pragma once

#include <memory>
#include <optional>

#include "harness/model/bert.h"
#include "harness/optim/optimizer.h"
#include "kernels/collectives.h"

namespace bertha {

/// What a step's scalars were, over all ranks.
struct StepScalars {
  LossStats stats;
  LambState lamb;
};

/// Brings loss, accuracy, learning rate and counters of a step to the host without making it wait:
/// capture() enqueues the reduction and the copies, poll() returns them once they have arrived.
class StepProbe {
 public:
  StepProbe(const ModelParts& parts, Collectives& collectives);

  /// All ranks call it after the same step, with the previous capture taken or dropped.
  void capture(const Bert& model, const Optimizer& optimizer);
  bool is_pending() const { return arrived_ != nullptr; }
  std::optional<StepScalars> poll();
  /// Blocks: the host, until the capture has arrived.
  StepScalars wait();

 private:
  StepScalars take();

  ModelParts parts_;
  Collectives& collectives_;
  Buffer pinned_;
  std::unique_ptr<Event> arrived_;
};

}  // namespace bertha
