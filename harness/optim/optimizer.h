#pragma once

#include <memory>
#include <vector>

#include "harness/config/config.h"
#include "harness/model/params.h"
#include "harness/optim/shard_plan.h"
#include "kernels/collectives.h"
#include "kernels/ops.h"

namespace bertha {

/// Sharded LAMB: reduce-scatter of gradients, update of this rank's shard, all-gather of weights.
/// Owns the flat weights and gradients of the model, and the shard's master weights and moments.
///
/// Gradients and weights are exchanged bucket by bucket on the stream of the collectives: the sum
/// of a bucket begins when backward has finished it, and forward waits only for the weights it is
/// about to use. The order of these calls is the same on every rank: gradients from the last bucket
/// to the first, weights from the first to the last.
///
/// Gradients are the model's part of the mean over all ranks, times the loss scale: the reduction
/// is a sum. With clip "before" a rank's part is limited to max_gradient_norm / ranks, which equals
/// the published limit of max_gradient_norm on the rank's own mean. The weight norm of the trust
/// ratio is that of the f32 master, as Baidu has it (NVIDIA measures the f16 copy). A weight decay
/// of zero does not switch the trust ratio off, as in the reference.
///
/// Letters   P = flat elements padded for the ranks, N = P / ranks.
/// Exact     bit for bit repeatable at one number of ranks, where the collectives are.
/// Errors    Error(kUsage) naming the key of the optimizer section that cannot be used.
class Optimizer {
 public:
  struct Parts {
    Device* device = nullptr;
    Stream* stream = nullptr;  // compute
    Ops* ops = nullptr;
    Collectives* collectives = nullptr;
    DType io = DType::kF32;  // of weights and gradients
  };

  Optimizer(const OptimizerConfig& config, int64_t schedule_steps, const ParamTable& table,
            Parts parts);
  ~Optimizer();

  /// io [P]: what the model reads. The compute stream waits for all weights in flight.
  View weights() const;
  View gradients() const;  // io [P]  what the model adds to
  View state() const;      // u8 [sizeof(LambState)]
  /// First elements of the buckets that ranks exchange, ascending; none on a single rank.
  std::vector<int64_t> bucket_begins() const;

  /// All weights from a flat f32 host buffer [table.elements]; moments and counters to zero.
  void set_weights(const float* flat);

  /// Gradients from this element to the end are complete in the order of the compute stream: the
  /// sums of the buckets there begin. Not needed, and without effect where a clip before the
  /// reduction has to see the whole gradient first.
  void gradients_final(int64_t from_element);
  /// One update in two halves, so that the caller can time communication and maths apart. Each is
  /// called once per step on every rank. Gradients are scratch afterwards: the next step overwrites
  /// them. An update with a gradient that is not finite changes nothing but state().
  void reduce_gradients();  // clip before (if asked), the sums that have not begun, global norm
  /// f64 [1]: of the reduced gradient, between the two halves. NaN makes it skip the update.
  View gradient_sum_of_squares() const;
  void update_weights();  // prepare, moments, norms over ranks, apply, all-gather
  /// What is enqueued on the compute stream from here on reads updated weights [0, end_element).
  void await_weights(int64_t end_element);
  /// Each value becomes the largest of all ranks, in the order of the compute stream. i32.
  void max_over_ranks(const View& values);

  // For checkpoints: this rank's shard, the elements of the flat buffer in shard_ranges().
  const std::vector<ShardRange>& shard_ranges() const;
  int64_t shard_elements() const;  // N
  View master() const;             // f32 [N]
  View m() const;                  // f32 [N]
  View v() const;                  // f32 [N]
  /// After master, m, v and state were filled from a checkpoint: all-gathers the model weights.
  void publish_master();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bertha
