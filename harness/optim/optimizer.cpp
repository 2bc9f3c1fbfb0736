#include "harness/optim/optimizer.h"

#include <algorithm>
#include <span>

#include "harness/optim/lamb_settings.h"

namespace bertha {
namespace {

/// `later` runs only after what `earlier` holds now; each is a Stream or Collectives.
template <class Earlier, class Later>
void order(Earlier& earlier, Later& later, Event& event) {
  earlier.record(event);
  later.wait_for(event);
}

}  // namespace

struct Optimizer::Impl {
  Impl(const OptimizerConfig& config_in, int64_t schedule_steps, const ParamTable& table,
       Parts parts_in);

  View weights() const { return View(weights_buffer.data(), parts.io, {plan.flat_elements}); }
  View gradients() const { return View(gradients_buffer.data(), parts.io, {plan.flat_elements}); }
  View state() const {
    return View(state_buffer.data(), DType::kU8, {static_cast<int64_t>(sizeof(LambState))});
  }
  View shard_f32(const Buffer& buffer) const {
    return View(buffer.data(), DType::kF32, {plan.shard_elements});
  }
  /// A single shard is the flat buffer itself.
  bool is_sharded() const { return parts.collectives->shard_count() > 1; }
  View gradient_shard() const {
    return View(is_sharded() ? gradient_shard_buffer.data() : gradients_buffer.data(), parts.io,
                {plan.shard_elements});
  }
  View bucket_of(const View& flat, const Bucket& bucket) const {
    return flat.rows(bucket.begin, bucket.elements);
  }
  View slice_of(const View& shard, const Bucket& bucket) const {
    const int64_t shards = parts.collectives->shard_count();
    return shard.rows(bucket.begin / shards, bucket.elements / shards);
  }
  /// This rank's part of a bucket, where it lies in the flat buffer.
  View own_slot_of(const View& flat, const Bucket& bucket) const {
    const int64_t elements = bucket.elements / parts.collectives->shard_count();
    return bucket_of(flat, bucket).rows(parts.collectives->shard() * elements, elements);
  }
  View norms() const { return View(norms_buffer.data(), DType::kF64, {plan.norm_rows, 2}); }
  View sum_of_squares() const { return View(sum_buffer.data(), DType::kF64, {1}); }
  View clip_factor() const { return View(factor_buffer.data(), DType::kF32, {1}); }

  void clear_moments_and_state();
  bool clips_before() const { return settings.clip == ClipPoint::kBeforeReduction; }
  void add_squares(int64_t from_element);
  void find_clip_factor();
  void reduce_scaled_buckets();
  void reduce_buckets(int64_t from_element);
  void sum_over_shards(const View& values);
  void all_reduce_max(const View& values);
  std::vector<LambSegment> segments_of(const Bucket& bucket) const;
  void gather_bucket(size_t bucket);
  void gather_all_buckets();
  void await_weights(int64_t end_element);
  void prepare();
  void advance_moments();
  void apply(const View& master, const View& update, const View& model_weights,
             std::span<const LambSegment> segments);
  void apply_and_gather();

  Parts parts;
  LambSettings settings;
  OptimizerConfig config;
  ShardPlan plan;
  int64_t table_elements;
  Buffer weights_buffer;                                  // io [P]
  Buffer gradients_buffer;                                // io [P]
  Buffer master_buffer;                                   // f32 [N]
  Buffer m_buffer;                                        // f32 [N]
  Buffer v_buffer;                                        // f32 [N]
  Buffer update_buffer;                                   // f32 [N]
  Buffer gradient_shard_buffer;                           // io [N]  where there are several shards
  Buffer norms_buffer;                                    // f64 [X, 2]
  Buffer sum_buffer;                                      // f64 [1]
  Buffer factor_buffer;                                   // f32 [1]
  Buffer state_buffer;                                    // u8 [sizeof(LambState)]
  std::vector<std::vector<LambSegment>> bucket_segments;  // by slice of several shards
  std::unique_ptr<Event> computed;
  std::unique_ptr<Event> communicated;
  std::vector<std::unique_ptr<Event>> gathered;  // the weights of each bucket
  bool sums_are_scaled = false;                  // by the clip, in the sum itself
  size_t unreduced_buckets;                      // the first ones: not summed in this step yet
  size_t unsquared_buckets;                      // the first ones: not in the local norm yet
  size_t awaited_buckets;                        // the first ones: no wait for their weights left
};

Optimizer::Impl::Impl(const OptimizerConfig& config_in, int64_t schedule_steps,
                      const ParamTable& table, Parts parts_in)
    : parts(parts_in),
      settings(make_lamb_settings(config_in, schedule_steps)),
      config(config_in),
      plan(make_shard_plan(table,
                           {.shard = parts.collectives->shard(),
                            .shards = parts.collectives->shard_count(),
                            .bucket_elements = bucket_elements(config.bucket_mib, parts.io)})),
      table_elements(table.elements),
      unreduced_buckets(plan.buckets.size()),
      unsquared_buckets(plan.buckets.size()),
      awaited_buckets(plan.buckets.size()) {
  Device& device = *parts.device;
  const int64_t shard_bytes = plan.shard_elements * size_bytes(DType::kF32);
  weights_buffer =
      parts.collectives->allocate_shared(device, plan.flat_elements * size_bytes(parts.io));
  gradients_buffer = device.allocate(plan.flat_elements * size_bytes(parts.io));
  master_buffer = device.allocate(shard_bytes);
  m_buffer = device.allocate(shard_bytes);
  v_buffer = device.allocate(shard_bytes);
  update_buffer = device.allocate(shard_bytes);
  if (is_sharded()) {
    gradient_shard_buffer = device.allocate(plan.shard_elements * size_bytes(parts.io));
    for (const Bucket& bucket : plan.buckets) bucket_segments.push_back(segments_of(bucket));
  }
  norms_buffer = device.allocate(plan.norm_rows * 2 * size_bytes(DType::kF64));
  sum_buffer = device.allocate(size_bytes(DType::kF64));
  factor_buffer = device.allocate(size_bytes(DType::kF32));
  state_buffer = device.allocate(sizeof(LambState));
  if (clips_before()) {
    sums_are_scaled = parts.collectives->prepare_scaled_sums(device, gradients_buffer.bytes());
  }
  computed = device.make_event();
  communicated = device.make_event();
  for (size_t i = 0; i < plan.buckets.size(); ++i) gathered.push_back(device.make_event());
  clear_moments_and_state();
}

void Optimizer::Impl::clear_moments_and_state() {
  parts.ops->run(Fill{.values = shard_f32(m_buffer)});
  parts.ops->run(Fill{.values = shard_f32(v_buffer)});
  const LambState fresh{.loss_scale = settings.initial_loss_scale};
  parts.device->copy(*parts.stream, state_buffer.data(), &fresh, sizeof(fresh));
  parts.stream->wait_on_host();
}

/// Of this rank's own gradient, as backward finishes it; in one order, so in the same bits. What
/// can be sent before the clip is known is sent.
void Optimizer::Impl::add_squares(int64_t from_element) {
  while (unsquared_buckets > 0 && plan.buckets[unsquared_buckets - 1].begin >= from_element) {
    const bool is_first = unsquared_buckets == plan.buckets.size();
    const View bucket = bucket_of(gradients(), plan.buckets[--unsquared_buckets]);
    if (sums_are_scaled) {
      order(*parts.stream, *parts.collectives, *computed);
      parts.collectives->send_ahead(bucket);
    }
    parts.ops->run(SumOfSquares{.values = bucket,
                                .result = sum_of_squares(),
                                .accumulate = is_first ? Accumulate::kNo : Accumulate::kYes});
  }
}

// The model forms the mean over all ranks, so a rank holds its part g_r / W of it, and the
// reduction is a plain sum. Published codes clip the mean g_r of each rank to max before they
// average over W ranks; for the part that is a limit of max / W.
void Optimizer::Impl::find_clip_factor() {
  parts.ops->run(
      ClipFactor{.gradient_sum_of_squares = sum_of_squares(),
                 .state = state(),
                 .factor = clip_factor(),
                 .max_gradient_norm = settings.max_gradient_norm / parts.collectives->size()});
}

void Optimizer::Impl::reduce_scaled_buckets() {
  std::vector<ScatterSum> sums;
  for (size_t i = plan.buckets.size(); i > 0; --i) {
    const Bucket& bucket = plan.buckets[i - 1];
    sums.push_back({bucket_of(gradients(), bucket), slice_of(gradient_shard(), bucket)});
  }
  order(*parts.stream, *parts.collectives, *computed);
  parts.collectives->reduce_scatter_scaled(sums, clip_factor());
}

/// What this rank has found of its shard becomes the sum over all shards, in the same bits on every
/// rank.
void Optimizer::Impl::sum_over_shards(const View& values) {
  if (!parts.collectives->is_first_of_shard()) parts.ops->run(Fill{.values = values});
  order(*parts.stream, *parts.collectives, *computed);
  parts.collectives->all_reduce_sum(values);
  order(*parts.collectives, *parts.stream, *communicated);
}

void Optimizer::Impl::all_reduce_max(const View& values) {
  order(*parts.stream, *parts.collectives, *computed);
  parts.collectives->all_reduce_max(values);
  order(*parts.collectives, *parts.stream, *communicated);
}

/// A bucket is clipped while the one before it is being summed.
void Optimizer::Impl::reduce_buckets(int64_t from_element) {
  while (unreduced_buckets > 0 && plan.buckets[unreduced_buckets - 1].begin >= from_element) {
    const Bucket& bucket = plan.buckets[--unreduced_buckets];
    const View gradient = bucket_of(gradients(), bucket);
    if (clips_before()) {
      parts.ops->run(ClipLocal{.gradient = gradient, .factor = clip_factor()});
    }
    order(*parts.stream, *parts.collectives, *computed);
    parts.collectives->reduce_scatter_sum(gradient, slice_of(gradient_shard(), bucket));
  }
}

/// Those of the bucket's slice, counted from its start. With several shards none reaches beyond it.
std::vector<LambSegment> Optimizer::Impl::segments_of(const Bucket& bucket) const {
  const int64_t begin = bucket.begin / parts.collectives->shard_count();
  const int64_t end = begin + bucket.elements / parts.collectives->shard_count();
  std::vector<LambSegment> segments;
  for (LambSegment segment : plan.segments) {
    if (segment.begin < begin || segment.begin >= end) continue;
    segment.begin -= begin;
    segment.end -= begin;
    segments.push_back(segment);
  }
  return segments;
}

void Optimizer::Impl::gather_bucket(size_t i) {
  const Bucket& bucket = plan.buckets[i];
  parts.collectives->all_gather(own_slot_of(weights(), bucket), bucket_of(weights(), bucket));
  parts.collectives->record(*gathered[i]);
}

void Optimizer::Impl::gather_all_buckets() {
  order(*parts.stream, *parts.collectives, *computed);
  for (size_t i = 0; i < plan.buckets.size(); ++i) gather_bucket(i);
  awaited_buckets = 0;
}

void Optimizer::Impl::await_weights(int64_t end_element) {
  while (awaited_buckets < plan.buckets.size() &&
         plan.buckets[awaited_buckets].begin < end_element) {
    parts.stream->wait_for(*gathered[awaited_buckets++]);
  }
}

void Optimizer::Impl::prepare() {
  const bool clips_here = settings.clip == ClipPoint::kAfterReduction;
  parts.ops->run(
      LambPrepare{.state = state(),
                  .gradient_sum_of_squares = sum_of_squares(),
                  .rules = {.schedule = settings.schedule,
                            .loss_scale = settings.loss_scale,
                            .beta_1 = config.beta_1,
                            .beta_2 = config.beta_2,
                            .max_gradient_norm = clips_here ? settings.max_gradient_norm : 0.0,
                            .spikes = settings.spikes}});
}

void Optimizer::Impl::advance_moments() {
  parts.ops->run(LambMoments{.gradient = gradient_shard(),
                             .weight = shard_f32(master_buffer),
                             .m = shard_f32(m_buffer),
                             .v = shard_f32(v_buffer),
                             .update = shard_f32(update_buffer),
                             .norms = norms(),
                             .state = state(),
                             .segments = plan.segments,
                             .rules = {.beta_1 = config.beta_1,
                                       .beta_2 = config.beta_2,
                                       .epsilon = config.epsilon,
                                       .weight_decay = config.weight_decay}});
}

void Optimizer::Impl::apply(const View& master, const View& update, const View& model_weights,
                            std::span<const LambSegment> segments) {
  parts.ops->run(LambApply{.weight = master,
                           .model_weight = model_weights,
                           .update = update,
                           .norms = norms(),
                           .state = state(),
                           .segments = segments,
                           .trust_ratio = config.trust_ratio});
}

/// The weights of a bucket are exchanged while those of the next ones are computed.
void Optimizer::Impl::apply_and_gather() {
  const View master = shard_f32(master_buffer);
  const View update = shard_f32(update_buffer);
  if (!is_sharded()) {
    apply(master, update, weights(), plan.segments);
    gather_all_buckets();
    return;
  }
  for (size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    apply(slice_of(master, bucket), slice_of(update, bucket), own_slot_of(weights(), bucket),
          bucket_segments[i]);
    order(*parts.stream, *parts.collectives, *computed);
    gather_bucket(i);
  }
  awaited_buckets = 0;
}

Optimizer::Optimizer(const OptimizerConfig& config, int64_t schedule_steps, const ParamTable& table,
                     Parts parts)
    : impl_(std::make_unique<Impl>(config, schedule_steps, table, parts)) {}

Optimizer::~Optimizer() = default;

View Optimizer::weights() const {
  impl_->await_weights(impl_->plan.flat_elements);
  return impl_->weights();
}
View Optimizer::gradients() const { return impl_->gradients(); }
View Optimizer::state() const { return impl_->state(); }
std::vector<int64_t> Optimizer::bucket_begins() const {
  std::vector<int64_t> begins;
  if (impl_->parts.collectives->size() == 1) return begins;
  for (const Bucket& bucket : impl_->plan.buckets) begins.push_back(bucket.begin);
  return begins;
}
int Optimizer::shard() const { return impl_->parts.collectives->shard(); }
int Optimizer::shard_count() const { return impl_->parts.collectives->shard_count(); }
bool Optimizer::is_first_of_shard() const { return impl_->parts.collectives->is_first_of_shard(); }
const std::vector<ShardRange>& Optimizer::shard_ranges() const { return impl_->plan.ranges; }
int64_t Optimizer::shard_elements() const { return impl_->plan.shard_elements; }
View Optimizer::master() const { return impl_->shard_f32(impl_->master_buffer); }
View Optimizer::m() const { return impl_->shard_f32(impl_->m_buffer); }
View Optimizer::v() const { return impl_->shard_f32(impl_->v_buffer); }

void Optimizer::set_weights(const float* flat) {
  impl_->clear_moments_and_state();
  impl_->parts.ops->run(Fill{.values = master()});
  for (const ShardRange& range : shard_ranges()) {
    const int64_t live = std::min(range.elements, impl_->table_elements - range.flat_begin);
    if (live <= 0) continue;  // padding
    impl_->parts.device->copy(*impl_->parts.stream, master().rows(range.shard_begin, live).data,
                              flat + range.flat_begin, live * size_bytes(DType::kF32));
  }
  impl_->parts.stream->wait_on_host();
  publish_master();
}

void Optimizer::publish_master() {
  impl_->await_weights(impl_->plan.flat_elements);  // they are still being written until then
  for (const Bucket& bucket : impl_->plan.buckets) {
    impl_->parts.ops->run(Cast{.from = impl_->slice_of(master(), bucket),
                               .to = impl_->own_slot_of(impl_->weights(), bucket)});
  }
  impl_->gather_all_buckets();
}

void Optimizer::gradients_final(int64_t from_element) {
  impl_->clips_before() ? impl_->add_squares(from_element) : impl_->reduce_buckets(from_element);
}

void Optimizer::reduce_gradients() {
  if (impl_->clips_before()) {
    impl_->add_squares(0);
    impl_->find_clip_factor();
  }
  impl_->sums_are_scaled ? impl_->reduce_scaled_buckets() : impl_->reduce_buckets(0);
  impl_->unreduced_buckets = impl_->unsquared_buckets = impl_->plan.buckets.size();
  order(*impl_->parts.collectives, *impl_->parts.stream, *impl_->communicated);
  impl_->parts.ops->run(
      SumOfSquares{.values = impl_->gradient_shard(), .result = impl_->sum_of_squares()});
  impl_->sum_over_shards(impl_->sum_of_squares());
}

void Optimizer::update_weights() {
  impl_->prepare();
  impl_->advance_moments();
  impl_->sum_over_shards(impl_->norms());
  impl_->apply_and_gather();
}

void Optimizer::await_weights(int64_t end_element) { impl_->await_weights(end_element); }

View Optimizer::gradient_sum_of_squares() const { return impl_->sum_of_squares(); }

void Optimizer::max_over_ranks(const View& values) { impl_->all_reduce_max(values); }

}  // namespace bertha
