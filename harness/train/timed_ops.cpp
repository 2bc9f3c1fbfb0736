#include "harness/train/timed_ops.h"

#include <algorithm>
#include <utility>

namespace bertha {
namespace {

double bytes_of(std::initializer_list<View> views) {
  double sum = 0;
  for (const View& view : views) sum += static_cast<double>(view.bytes());
  return sum;
}

struct ProductShape {
  int64_t rows = 0;     // T
  int64_t outputs = 0;  // N
  int64_t inputs = 0;   // K
};

std::string name_of(const char* operation, const ProductShape& shape) {
  return concat(operation, " ", shape.rows, "x", shape.outputs, "x", shape.inputs);
}

double flops_of(const ProductShape& shape) {
  return 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.outputs) *
         static_cast<double>(shape.inputs);
}

}  // namespace

std::unique_ptr<Event> TimedOps::record() {
  std::unique_ptr<Event> event;
  if (spare_.empty()) {
    event = device_.make_event();
  } else {
    event = std::move(spare_.back());
    spare_.pop_back();
  }
  stream_.record(*event);
  return event;
}

void TimedOps::collect() {
  while (!spans_.empty() && spans_.front().end->is_done()) {
    Span& span = spans_.front();
    OperationTime& total = totals_[span.work.name];
    ++total.calls;
    total.ms += span.end->ms_since(*span.begin);
    total.flops += span.work.flops;
    total.bytes += span.work.bytes;
    spare_.push_back(std::move(span.begin));
    spare_.push_back(std::move(span.end));
    spans_.pop_front();
  }
}

std::vector<OperationTime> TimedOps::take_totals() {
  collect();
  std::vector<OperationTime> times;
  for (auto& [name, total] : totals_) {
    total.name = name;
    times.push_back(std::move(total));
  }
  totals_.clear();
  std::ranges::stable_sort(times, std::ranges::greater{}, &OperationTime::ms);
  return times;
}

void TimedOps::do_run(const LinearFwd& args) {
  const ProductShape shape{args.x.extent(0), args.weight.extent(0), args.weight.extent(1)};
  time({.name = name_of("linear_fwd", shape), .flops = flops_of(shape)},
       [&] { inner_->linear_fwd(args); });
}

void TimedOps::do_run(const LinearBwdData& args) {
  const ProductShape shape{args.dy.extent(0), args.weight.extent(0), args.weight.extent(1)};
  time({.name = name_of("linear_bwd_data", shape), .flops = flops_of(shape)},
       [&] { inner_->linear_bwd_data(args); });
}

void TimedOps::do_run(const LinearBwdWeight& args) {
  const ProductShape shape{args.dy.extent(0), args.dweight.extent(0), args.dweight.extent(1)};
  time({.name = name_of("linear_bwd_weight", shape), .flops = flops_of(shape)},
       [&] { inner_->linear_bwd_weight(args); });
}

// Its products depend on lengths that only the device knows.
void TimedOps::do_run(const AttentionFwd& args) {
  time({.name = "attention_fwd"}, [&] { inner_->attention_fwd(args); });
}

void TimedOps::do_run(const AttentionBwd& args) {
  time({.name = "attention_bwd"}, [&] { inner_->attention_bwd(args); });
}

// A row of the word table per token; the other tables are small and stay in caches.
void TimedOps::do_run(const EmbeddingFwd& args) {
  time({.name = "embedding_fwd", .bytes = bytes_of({args.sum, args.sum, args.y, args.mask})},
       [&] { inner_->embedding_fwd(args); });
}

void TimedOps::do_run(const EmbeddingBwd& args) {
  time({.name = "embedding_bwd",
        .bytes = bytes_of({args.dy, args.sum, args.mask, args.dy, args.dy})},
       [&] { inner_->embedding_bwd(args); });
}

void TimedOps::do_run(const ActivationBwd& args) {
  time({.name = "activation_bwd", .bytes = bytes_of({args.dy, args.saved, args.dx})},
       [&] { inner_->activation_bwd(args); });
}

void TimedOps::do_run(const ResidualLnFwd& args) {
  time({.name = "residual_ln_fwd",
        .bytes = bytes_of({args.x, args.residual, args.sum, args.y, args.mask})},
       [&] { inner_->residual_ln_fwd(args); });
}

void TimedOps::do_run(const ResidualLnBwd& args) {
  time({.name = "residual_ln_bwd",
        .bytes = bytes_of({args.dy, args.sum, args.mask, args.dresidual, args.dx})},
       [&] { inner_->residual_ln_bwd(args); });
}

void TimedOps::do_run(const LayerNormFwd& args) {
  time({.name = "layer_norm_fwd", .bytes = bytes_of({args.x, args.y})},
       [&] { inner_->layer_norm_fwd(args); });
}

void TimedOps::do_run(const LayerNormBwd& args) {
  time({.name = "layer_norm_bwd", .bytes = bytes_of({args.dy, args.x, args.dx})},
       [&] { inner_->layer_norm_bwd(args); });
}

void TimedOps::do_run(const SoftmaxFwd& args) {
  time({.name = "softmax_fwd", .bytes = bytes_of({args.x, args.y, args.dropped, args.kept_mask})},
       [&] { inner_->softmax_fwd(args); });
}

void TimedOps::do_run(const SoftmaxBwd& args) {
  time({.name = "softmax_bwd", .bytes = bytes_of({args.dy, args.y, args.kept_mask, args.dx})},
       [&] { inner_->softmax_bwd(args); });
}

void TimedOps::do_run(const GatherRows& args) {
  time({.name = "gather_rows", .bytes = bytes_of({args.picked, args.picked})},
       [&] { inner_->gather_rows(args); });
}

void TimedOps::do_run(const ScatterAddRows& args) {
  time({.name = "scatter_add_rows", .bytes = bytes_of({args.rows, args.rows, args.rows})},
       [&] { inner_->scatter_add_rows(args); });
}

void TimedOps::do_run(const CrossEntropy& args) {
  const View written = args.write_gradient ? args.logits : View();
  time({.name = "cross_entropy", .bytes = bytes_of({args.logits, written})},
       [&] { inner_->cross_entropy(args); });
}

void TimedOps::do_run(const SumOfSquares& args) {
  time({.name = "sum_of_squares", .bytes = bytes_of({args.values})},
       [&] { inner_->sum_of_squares(args); });
}

void TimedOps::do_run(const ClipLocal& args) {
  time({.name = "clip_local", .bytes = bytes_of({args.gradient, args.gradient})},
       [&] { inner_->clip_local(args); });
}

void TimedOps::do_run(const LambPrepare& args) {
  time({.name = "lamb_prepare"}, [&] { inner_->lamb_prepare(args); });
}

void TimedOps::do_run(const LambMoments& args) {
  time({.name = "lamb_moments",
        .bytes =
            bytes_of({args.gradient, args.weight, args.m, args.m, args.v, args.v, args.update})},
       [&] { inner_->lamb_moments(args); });
}

void TimedOps::do_run(const LambApply& args) {
  time({.name = "lamb_apply",
        .bytes = bytes_of({args.weight, args.weight, args.model_weight, args.update})},
       [&] { inner_->lamb_apply(args); });
}

void TimedOps::do_run(const Cast& args) {
  time({.name = "cast", .bytes = bytes_of({args.from, args.to})}, [&] { inner_->cast(args); });
}

void TimedOps::do_run(const Fill& args) {
  time({.name = "fill", .bytes = bytes_of({args.values})}, [&] { inner_->fill(args); });
}

void TimedOps::do_run(const Scale& args) {
  time({.name = "scale", .bytes = bytes_of({args.values, args.values})},
       [&] { inner_->scale(args); });
}

void TimedOps::do_run(const GradientScale& args) {
  time({.name = "gradient_scale"}, [&] { inner_->gradient_scale(args); });
}

void TimedOps::do_run(const PreluFwd& args) {
  time({.name = "prelu_fwd", .bytes = bytes_of({args.x, args.y})},
       [&] { inner_->prelu_fwd(args); });
}

void TimedOps::do_run(const PreluBwd& args) {
  time({.name = "prelu_bwd", .bytes = bytes_of({args.dy, args.x, args.dx})},
       [&] { inner_->prelu_bwd(args); });
}

void TimedOps::do_run(const BatchNormReluFwd& args) {
  // The batch's statistics want x once more.
  const View again = args.statistics == NormStatistics::kBatch ? args.x : View();
  time({.name = "batch_norm_relu_fwd",
        .bytes = bytes_of({args.x, again, args.addend, args.y, args.mask})},
       [&] { inner_->batch_norm_relu_fwd(args); });
}

void TimedOps::do_run(const BatchNormReluBwd& args) {
  const View again = args.statistics == NormStatistics::kBatch ? args.x : View();
  time({.name = "batch_norm_relu_bwd",
        .bytes = bytes_of(
            {args.dy, args.x, args.mask, args.dy, again, args.mask, args.dx, args.daddend})},
       [&] { inner_->batch_norm_relu_bwd(args); });
}

}  // namespace bertha
