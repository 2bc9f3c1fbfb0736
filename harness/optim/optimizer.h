#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "harness/config/config.h"
#include "harness/model/params.h"
#include "harness/optim/shard_plan.h"
#include "kernels/collectives.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// Sharded LAMB or AdamW: reduce-scatter of gradients, update of this rank's shard, all-gather of
/// weights. Owns flat weights and gradients of the model, master weights and moments of the shard.
///
/// Gradients are summed and weights gathered bucket by bucket on the stream of the collectives: the
/// sum of a bucket begins when backward has finished it, and forward waits only for the weights
/// that it uses next. The order of these calls is the same on every rank: gradients from the last
/// bucket to the first, weights from the first to the last.
///
/// Gradients are the model's part of the mean over all ranks, times the loss scale: the reduction
/// is a sum. With clip "before" a rank's part is limited to max_gradient_norm / ranks, which equals
/// the published limit of max_gradient_norm on the rank's own mean. The weight norm of the trust
/// ratio is computed from the f32 master, as Baidu does it (NVIDIA measures the f16 copy). A weight
/// decay of zero does not switch the trust ratio off, as in the reference.
///
/// Letters   P = flat elements padded for the shards, N = P / shards, X = ShardPlan::norm_rows.
/// Exact     repeatable bit for bit with the same number of ranks and shards, if the collectives
///           are.
class Optimizer {
 public:
  struct Parts {
    Device* device = nullptr;
    Stream* stream = nullptr;  // compute
    Ops* ops = nullptr;
    Collectives* collectives = nullptr;
    DType io = DType::kF32;  // dtype of weights and gradients
  };

  Optimizer(const OptimizerConfig& config, int64_t schedule_steps, const ParamTable& table,
            Parts parts);
  ~Optimizer();

  /// io [P]: the weights that the model reads. Makes the compute stream wait for weights in flight.
  View weights() const;
  View gradients() const { return gradients_; }  // io [P]  the model adds to them
  View state() const { return state_; }          // u8 [sizeof(LambState)]
  /// First elements of the buckets that ranks sum and gather, ascending; none on a single rank.
  std::vector<int64_t> bucket_begins() const;

  /// Sets all weights from a flat f32 host buffer [table.elements], and moments and counters to
  /// zero.
  void set_weights(const float* flat);

  /// Call when gradients from this element to the end are complete in the order of the compute
  /// stream: begins the sums of the buckets there or, with a clip before the reduction, which needs
  /// the norm of the whole gradient first, adds their squares and sends copies ahead. Optional:
  /// reduce_gradients() begins the remaining sums.
  void gradients_final(int64_t from_element);
  /// One update in two halves, so that the caller can time communication and math separately. Every
  /// rank calls each once per step. Gradients are undefined afterwards: the next step overwrites
  /// them. A skipped update (a gradient that is not finite, or a spike if those are skipped)
  /// changes only state().
  void reduce_gradients();  // clip before the reduction (optional), remaining sums, global norm
  /// f64 [1]: of the reduced gradient, valid between the two halves. NaN makes the update be
  /// skipped.
  View gradient_sum_of_squares() const { return sum_of_squares_; }
  void update_weights();  // prepare; update, with norms over shards for LAMB; all-gather
  /// Makes later work on the compute stream see updated weights [0, end_element).
  void await_weights(int64_t end_element) const;
  /// Replaces each i32 value by the maximum over all ranks, in the order of the compute stream.
  void max_over_ranks(const View& values);

  // For checkpoints: this rank's shard, the elements of the flat buffer in shard_ranges(). Several
  // ranks may have the same shard; see Collectives.
  int shard() const { return parts_.collectives->shard(); }
  int shard_count() const { return parts_.collectives->shard_count(); }
  bool is_first_of_shard() const { return parts_.collectives->is_first_of_shard(); }
  const std::vector<ShardRange>& shard_ranges() const { return plan_.ranges; }
  int64_t shard_elements() const { return plan_.shard_elements; }  // N
  View master() const { return master_; }                          // f32 [N]
  View m() const { return m_; }                                    // f32 [N]
  View v() const { return v_; }                                    // f32 [N]
  /// All-gathers the model weights after master, m, v and state were loaded from a checkpoint.
  void publish_master();

 private:
  bool is_lamb() const { return config_.name == OptimizerName::kLamb; }
  /// A single shard is the flat buffer itself.
  bool is_sharded() const { return shard_count() > 1; }
  /// Whether the update has two parts, with a sum of the tensors' norms over shards in between.
  bool sums_norms() const { return is_lamb() && is_sharded(); }
  View take(DType dtype, std::initializer_list<int64_t> extents);
  View slice_of(const View& shard, const Bucket& bucket) const;
  /// This rank's part of a bucket in the flat buffer.
  View own_slot_of(const View& flat, const Bucket& bucket) const;
  std::vector<LambSegment> segments_of(const Bucket& bucket) const;

  void clear_moments_and_state();
  void add_squares(int64_t from_element);
  void find_clip_factor();
  void reduce_scaled_buckets();
  void reduce_buckets(int64_t from_element);
  void sum_over_shards(const View& values);
  void gather_bucket(size_t bucket);
  void gather_all_buckets();
  void advance_moments();
  void update_slice(const Bucket& bucket, std::span<const LambSegment> segments);
  void update_and_gather();

  Parts parts_;
  OptimizerConfig config_;
  LambPrepareRules rules_;
  LambMomentsRules moments_rules_;
  ShardPlan plan_;
  int64_t table_elements_;
  std::vector<Buffer> buffers_;                            // memory of the following views
  View weights_;                                           // io [P]
  View gradients_;                                         // io [P]
  View master_;                                            // f32 [N]
  View m_;                                                 // f32 [N]
  View v_;                                                 // f32 [N]
  View update_;                                            // f32 [N]  if sums_norms()
  View gradient_shard_;                                    // io [N]
  View norms_;                                             // f64 [X, 2]  LAMB only
  View sum_of_squares_;                                    // f64 [1]
  View clip_factor_;                                       // f32 [1]
  View state_;                                             // u8 [sizeof(LambState)]
  std::vector<std::vector<LambSegment>> bucket_segments_;  // by slice, if there are several shards
  std::unique_ptr<Event> computed_;
  std::unique_ptr<Event> communicated_;
  std::vector<std::unique_ptr<Event>> gathered_;  // weights of each bucket gathered
  std::unique_ptr<ScaledSums> scaled_sums_;  // for the clip; null: it is applied before the sums
  // Each of these numbers n refers to buckets 0 .. n - 1.
  size_t unreduced_buckets_;        // whose sums have not begun in this step
  size_t unsquared_buckets_;        // whose squares are not in this rank's norm yet
  mutable size_t awaited_buckets_;  // for whose weights the compute stream already waits
};

}  // namespace bertha
