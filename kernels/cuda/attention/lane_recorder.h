#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "kernels/base/lane_span.h"
#include "kernels/base/sequence_group.h"

namespace bertha {

/// Takes the times of the groups of the attention that ran last, by events on their lanes. For
/// benchmarks: the events cost some microseconds each.
class LaneRecorder {
 public:
  /// An attention begins on `stream`; what was recorded before is forgotten.
  void start(cudaStream_t stream);
  /// The kernels of `group` follow on the stream of `lane`, up to end().
  void begin(int lane, cudaStream_t stream, const SequenceGroup& group);
  void end(cudaStream_t stream);

  /// In the order of begin(). Blocks: the host, until the recorded work has finished.
  std::vector<LaneSpan> spans() const;

 private:
  using Event = std::unique_ptr<CUevent_st, void (*)(cudaEvent_t)>;
  struct Timed {
    LaneSpan span;
    Event begin;
    Event end;
  };
  static Event record(cudaStream_t stream);

  Event start_{nullptr, nullptr};
  std::vector<Timed> groups_;
};

}  // namespace bertha
