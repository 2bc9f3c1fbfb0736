#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "harness/model/bert.h"
#include "harness/optim/optimizer.h"
#include "harness/report/rank_times.h"
#include "kernels/collectives.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

/// Scalars of the steps since the last capture, over all ranks.
struct StepScalars {
  LossStats stats;
  LambState lamb;
  std::vector<RankTimes> ranks = {};  // [W] if they were gathered
};

/// Copies loss, accuracy, learning rate and counters to the host asynchronously: capture() enqueues
/// the reduction and the copies, poll() returns the values once they have arrived.
class StepProbe {
 public:
  StepProbe(const ModelParts& parts, Collectives& collectives);

  /// All ranks call it after the same step, after fetching or dropping the previous capture, and
  /// all or none pass their own times. Zeroes the model's statistics for the next steps.
  void capture(Bert& model, const Optimizer& optimizer, const std::optional<RankTimes>& times = {});
  bool is_pending() const { return arrived_ != nullptr; }
  std::optional<StepScalars> poll();
  /// Blocks: the host, until the capture has arrived.
  StepScalars wait();

 private:
  StepScalars take();

  ModelParts parts_;
  Collectives& collectives_;
  void gather(const RankTimes& own);

  struct Arrival {
    LossStats stats;
    LambState lamb;
  };
  Buffer pinned_;        // Arrival
  Buffer times_;         // f32 [W, kRankNumbers]
  Buffer pinned_times_;  // f32 [W, kRankNumbers]
  bool has_times_ = false;
  std::unique_ptr<Event> arrived_;
};

}  // namespace bertha
