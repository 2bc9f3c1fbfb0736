#include "harness/optim/optimizer.h"

#include <algorithm>

#include "harness/optim/lamb_settings.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/reductions.h"

namespace bertha {
namespace {

/// Makes future work of `later` wait for the present work of `earlier`; each is a Stream or
/// Collectives.
template <class Earlier, class Later>
void order(Earlier& earlier, Later& later, Event& event) {
  earlier.record(event);
  later.wait_for(event);
}

View bucket_of(const View& flat, const Bucket& bucket) {
  return flat.rows(bucket.begin, bucket.elements);
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, int64_t schedule_steps, const ParamTable& table,
                     Parts parts)
    : parts_(parts),
      config_(config),
      rules_(lamb_prepare_rules(config, schedule_steps)),
      moments_rules_{.beta_1 = config.beta_1,
                     .beta_2 = config.beta_2,
                     .epsilon = config.epsilon,
                     .weight_decay = config.weight_decay},
      plan_(make_shard_plan(table,
                            {.shard = shard(),
                             .shards = shard_count(),
                             .bucket_elements = bucket_elements(config.bucket_mib, parts.io)})),
      table_elements_(table.elements),
      unreduced_buckets_(plan_.buckets.size()),
      unsquared_buckets_(plan_.buckets.size()),
      awaited_buckets_(plan_.buckets.size()) {
  Device& device = *parts.device;
  gradients_ = take(parts.io, {plan_.flat_elements});
  buffers_.push_back(parts.collectives->allocate_shared(device, gradients_.bytes()));
  weights_ = View(buffers_.back().data(), parts.io, {plan_.flat_elements});
  for (View* view : {&master_, &m_, &v_}) *view = take(DType::kF32, {shard_elements()});
  gradient_shard_ = is_sharded() ? take(parts.io, {shard_elements()}) : gradients_;
  if (is_sharded()) {
    for (const Bucket& bucket : plan_.buckets) bucket_segments_.push_back(segments_of(bucket));
  }
  if (is_lamb()) norms_ = take(DType::kF64, {plan_.norm_rows, 2});
  if (sums_norms()) update_ = take(DType::kF32, {shard_elements()});
  sum_of_squares_ = take(DType::kF64, {1});
  clip_factor_ = take(DType::kF32, {1});
  state_ = take(DType::kU8, {static_cast<int64_t>(sizeof(LambState))});
  if (clips_before_reduction(config_)) {
    scaled_sums_ = parts.collectives->make_scaled_sums(device, gradients_.bytes());
  }
  computed_ = device.make_event();
  communicated_ = device.make_event();
  for (size_t i = 0; i < plan_.buckets.size(); ++i) gathered_.push_back(device.make_event());
  clear_moments_and_state();
}

Optimizer::~Optimizer() = default;

View Optimizer::take(DType dtype, std::initializer_list<int64_t> extents) {
  buffers_.push_back(parts_.device->allocate(View(nullptr, dtype, extents).bytes()));
  return {buffers_.back().data(), dtype, extents};
}

View Optimizer::slice_of(const View& shard, const Bucket& bucket) const {
  return shard.rows(bucket.begin / shard_count(), bucket.elements / shard_count());
}

View Optimizer::own_slot_of(const View& flat, const Bucket& bucket) const {
  const int64_t elements = bucket.elements / shard_count();
  return bucket_of(flat, bucket).rows(shard() * elements, elements);
}

void Optimizer::clear_moments_and_state() {
  parts_.ops->run(Fill{.values = m_});
  parts_.ops->run(Fill{.values = v_});
  const LambState fresh{.loss_scale = initial_loss_scale(config_)};
  parts_.device->copy(*parts_.stream, state_.data, &fresh, sizeof(fresh));
  parts_.stream->wait_on_host();
}

/// For a clip before the reduction: adds the squares of this rank's own gradient to
/// sum_of_squares_, bucket by bucket as backward finishes them, always from the last bucket to the
/// first, so that the sum has the same bits in every run. Collectives with scaled sums also receive
/// the bucket now, unclipped, and apply the factor when they sum.
void Optimizer::add_squares(int64_t from_element) {
  while (unsquared_buckets_ > 0 && plan_.buckets[unsquared_buckets_ - 1].begin >= from_element) {
    const bool is_first = unsquared_buckets_ == plan_.buckets.size();
    const View bucket = bucket_of(gradients_, plan_.buckets[--unsquared_buckets_]);
    if (scaled_sums_) {
      order(*parts_.stream, *parts_.collectives, *computed_);
      scaled_sums_->send_ahead(bucket);
    }
    parts_.ops->run(SumOfSquares{.values = bucket,
                                 .result = sum_of_squares_,
                                 .accumulate = is_first ? Accumulate::kNo : Accumulate::kYes});
  }
}

// The model computes the mean over all ranks, so a rank has its part g_r / W of it, and the
// reduction is a plain sum. Published codes clip the mean g_r of each rank to max before averaging
// over W ranks, which limits the part to max / W.
void Optimizer::find_clip_factor() {
  parts_.ops->run(
      ClipFactor{.gradient_sum_of_squares = sum_of_squares_,
                 .state = state_,
                 .factor = clip_factor_,
                 .max_gradient_norm = config_.max_gradient_norm / parts_.collectives->size()});
}

void Optimizer::reduce_scaled_buckets() {
  std::vector<ScatterSum> sums;
  for (size_t i = plan_.buckets.size(); i > 0; --i) {
    const Bucket& bucket = plan_.buckets[i - 1];
    sums.push_back({bucket_of(gradients_, bucket), slice_of(gradient_shard_, bucket)});
  }
  order(*parts_.stream, *parts_.collectives, *computed_);
  scaled_sums_->reduce_scatter(sums, clip_factor_);
}

/// Replaces this rank's value for its shard by the sum over all shards, with the same bits on every
/// rank.
void Optimizer::sum_over_shards(const View& values) {
  if (!is_first_of_shard()) parts_.ops->run(Fill{.values = values});
  order(*parts_.stream, *parts_.collectives, *computed_);
  parts_.collectives->all_reduce_sum(values);
  order(*parts_.collectives, *parts_.stream, *communicated_);
}

void Optimizer::max_over_ranks(const View& values) {
  order(*parts_.stream, *parts_.collectives, *computed_);
  parts_.collectives->all_reduce_max(values);
  order(*parts_.collectives, *parts_.stream, *communicated_);
}

/// Begins the remaining sums of the buckets from this element on; with a clip before the reduction,
/// a bucket is clipped while the previous one is being summed.
void Optimizer::reduce_buckets(int64_t from_element) {
  while (unreduced_buckets_ > 0 && plan_.buckets[unreduced_buckets_ - 1].begin >= from_element) {
    const Bucket& bucket = plan_.buckets[--unreduced_buckets_];
    const View gradient = bucket_of(gradients_, bucket);
    if (clips_before_reduction(config_)) {
      parts_.ops->run(ClipLocal{.gradient = gradient, .factor = clip_factor_});
    }
    order(*parts_.stream, *parts_.collectives, *computed_);
    parts_.collectives->reduce_scatter_sum(gradient, slice_of(gradient_shard_, bucket));
  }
}

/// The segments of the bucket's slice, counted from its start. With several shards, all segments
/// end within it.
std::vector<LambSegment> Optimizer::segments_of(const Bucket& bucket) const {
  const int64_t begin = bucket.begin / shard_count();
  const int64_t end = begin + bucket.elements / shard_count();
  std::vector<LambSegment> segments;
  for (LambSegment segment : plan_.segments) {
    if (segment.begin < begin || segment.begin >= end) continue;
    segment.begin -= begin;
    segment.end -= begin;
    segments.push_back(segment);
  }
  return segments;
}

void Optimizer::gather_bucket(size_t i) {
  const Bucket& bucket = plan_.buckets[i];
  parts_.collectives->all_gather(own_slot_of(weights_, bucket), bucket_of(weights_, bucket));
  parts_.collectives->record(*gathered_[i]);
}

void Optimizer::gather_all_buckets() {
  order(*parts_.stream, *parts_.collectives, *computed_);
  for (size_t i = 0; i < plan_.buckets.size(); ++i) gather_bucket(i);
  awaited_buckets_ = 0;
}

void Optimizer::await_weights(int64_t end_element) const {
  while (awaited_buckets_ < plan_.buckets.size() &&
         plan_.buckets[awaited_buckets_].begin < end_element) {
    parts_.stream->wait_for(*gathered_[awaited_buckets_++]);
  }
}

void Optimizer::advance_moments() {
  parts_.ops->run(LambMoments{.gradient = gradient_shard_,
                              .weight = master_,
                              .m = m_,
                              .v = v_,
                              .update = update_,
                              .norms = norms_,
                              .state = state_,
                              .segments = plan_.segments,
                              .rules = moments_rules_});
}

/// The second part of LAMB's update in several shards, or else the whole update, for this rank's
/// slice of a bucket.
void Optimizer::update_slice(const Bucket& bucket, std::span<const LambSegment> segments) {
  if (sums_norms()) {
    return parts_.ops->run(LambApply{.weight = slice_of(master_, bucket),
                                     .model_weight = own_slot_of(weights_, bucket),
                                     .update = slice_of(update_, bucket),
                                     .norms = norms_,
                                     .state = state_,
                                     .segments = segments});
  }
  const auto run = [&](auto step) {
    step.gradient = slice_of(gradient_shard_, bucket);
    step.weight = slice_of(master_, bucket);
    step.model_weight = own_slot_of(weights_, bucket);
    step.m = slice_of(m_, bucket);
    step.v = slice_of(v_, bucket);
    if constexpr (requires { step.norms; }) step.norms = norms_;
    step.state = state_;
    step.segments = segments;
    step.rules = moments_rules_;
    parts_.ops->run(step);
  };
  is_lamb() ? run(LambStep{}) : run(AdamWStep{});
}

/// With shards, the weights of a bucket are gathered while the next ones are computed.
void Optimizer::update_and_gather() {
  if (!is_sharded()) {
    update_slice({.begin = 0, .elements = plan_.flat_elements}, plan_.segments);
    gather_all_buckets();
    return;
  }
  for (size_t i = 0; i < plan_.buckets.size(); ++i) {
    update_slice(plan_.buckets[i], bucket_segments_[i]);
    order(*parts_.stream, *parts_.collectives, *computed_);
    gather_bucket(i);
  }
  awaited_buckets_ = 0;
}

View Optimizer::weights() const {
  await_weights(plan_.flat_elements);
  return weights_;
}

std::vector<int64_t> Optimizer::bucket_begins() const {
  std::vector<int64_t> begins;
  if (parts_.collectives->size() == 1) return begins;
  for (const Bucket& bucket : plan_.buckets) begins.push_back(bucket.begin);
  return begins;
}

void Optimizer::set_weights(const float* flat) {
  clear_moments_and_state();
  parts_.ops->run(Fill{.values = master_});
  for (const ShardRange& range : shard_ranges()) {
    const int64_t live = std::min(range.elements, table_elements_ - range.flat_begin);
    if (live <= 0) continue;  // padding
    parts_.device->copy(*parts_.stream, master_.rows(range.shard_begin, live).data,
                        flat + range.flat_begin, live * size_bytes(DType::kF32));
  }
  parts_.stream->wait_on_host();
  publish_master();
}

void Optimizer::publish_master() {
  await_weights(plan_.flat_elements);  // they are still being written until then
  for (const Bucket& bucket : plan_.buckets) {
    parts_.ops->run(Cast{.from = slice_of(master_, bucket), .to = own_slot_of(weights_, bucket)});
  }
  gather_all_buckets();
}

void Optimizer::gradients_final(int64_t from_element) {
  clips_before_reduction(config_) ? add_squares(from_element) : reduce_buckets(from_element);
}

void Optimizer::reduce_gradients() {
  if (clips_before_reduction(config_)) {
    add_squares(0);
    find_clip_factor();
  }
  scaled_sums_ ? reduce_scaled_buckets() : reduce_buckets(0);
  unreduced_buckets_ = unsquared_buckets_ = plan_.buckets.size();
  order(*parts_.collectives, *parts_.stream, *communicated_);
  parts_.ops->run(SumOfSquares{.values = gradient_shard_, .result = sum_of_squares_});
  sum_over_shards(sum_of_squares_);
}

void Optimizer::update_weights() {
  parts_.ops->run(
      LambPrepare{.state = state_, .gradient_sum_of_squares = sum_of_squares_, .rules = rules_});
  if (sums_norms()) {
    advance_moments();
    sum_over_shards(norms_);
  }
  update_and_gather();
}

}  // namespace bertha
