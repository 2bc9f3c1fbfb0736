#include "harness/train/timed_ops.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "kernels/ops.h"

namespace bertha {
namespace {

/// Name and cost of one call of an operation: FLOPs of GEMMs, bytes of tensors. Lengths that only
/// the device can read (attention) and a few scalars (lamb_prepare) are not counted.
template <class Args>
OperationTime cost_of(const Args&) {
  return {.name = Args::kName};
}

template <class Args>
OperationTime moves(const Args&, std::initializer_list<View> views) {
  OperationTime cost{.name = Args::kName};
  for (const View& view : views) cost.bytes += static_cast<double>(view.bytes());
  return cost;
}

/// A GEMM of [rows, inputs] by [inputs, outputs], named by its shape and by fp8 matrices.
template <class Args>
OperationTime multiplies(const Args&, const View& matrix, int64_t rows, int64_t outputs,
                         int64_t inputs) {
  return {.name = concat(Args::kName, is_fp8(matrix.dtype) ? " fp8 " : " ", rows, "x", outputs, "x",
                         inputs),
          .flops = 2.0 * static_cast<double>(rows) * static_cast<double>(outputs) *
                   static_cast<double>(inputs)};
}

OperationTime cost_of(const LinearFwd& a) {
  return multiplies(a, a.x, a.x.extent(0), a.weight.extent(0), a.weight.extent(1));
}
OperationTime cost_of(const LinearBwdData& a) {
  return multiplies(a, a.dy, a.dy.extent(0), a.dy.extent(1), a.dx.extent(1));
}
OperationTime cost_of(const LinearFwdQuantize& a) {
  const LinearFwd& gemm = a.linear;
  return multiplies(a, gemm.x, gemm.x.extent(0), gemm.weight.extent(0), gemm.weight.extent(1));
}
OperationTime cost_of(const LinearBwdDataQuantize& a) {
  const LinearBwdData& gemm = a.linear;
  return multiplies(a, gemm.dy, gemm.dy.extent(0), gemm.dy.extent(1), gemm.dx.extent(1));
}
OperationTime cost_of(const LinearBwdWeight& a) {
  const int64_t rows = a.dy.extent(is_fp8(a.dy.dtype) ? 1 : 0);
  return multiplies(a, a.dy, rows, a.dweight.extent(0), a.dweight.extent(1));
}

// A row of the word table per token; the other tables are small and remain in caches.
OperationTime cost_of(const EmbeddingFwd& a) { return moves(a, {a.sum, a.sum, a.y, a.mask}); }
OperationTime cost_of(const EmbeddingBwd& a) { return moves(a, {a.dy, a.sum, a.mask, a.dy, a.dy}); }
OperationTime cost_of(const ActivationBwd& a) { return moves(a, {a.dy, a.saved, a.dx}); }
OperationTime cost_of(const ResidualLnFwd& a) {
  return moves(a, {a.x, a.residual, a.sum, a.is_y_needed ? a.y : View(), a.mask, a.y_fp8.q});
}
OperationTime cost_of(const ResidualLnBwd& a) {
  return moves(a, {a.dy, a.sum, a.mask, a.dresidual, a.dx_fp8.q.has_data() ? a.dx_fp8.q : a.dx});
}
OperationTime cost_of(const LayerNormFwd& a) { return moves(a, {a.x, a.y}); }
OperationTime cost_of(const LayerNormBwd& a) { return moves(a, {a.dy, a.x, a.dx}); }
OperationTime cost_of(const GatherRows& a) { return moves(a, {a.picked, a.picked}); }
OperationTime cost_of(const ScatterAddRows& a) { return moves(a, {a.rows, a.rows, a.rows}); }
OperationTime cost_of(const CrossEntropy& a) {
  return moves(a, {a.logits, a.write_gradient ? a.logits : View()});
}
OperationTime cost_of(const SumOfSquares& a) { return moves(a, {a.values}); }
OperationTime cost_of(const ClipFactor& a) { return moves(a, {}); }
OperationTime cost_of(const ClipLocal& a) { return moves(a, {a.gradient, a.gradient}); }
OperationTime cost_of(const LambMoments& a) {
  return moves(a, {a.gradient, a.weight, a.m, a.m, a.v, a.v, a.update});
}
OperationTime cost_of(const LambApply& a) {
  return moves(a, {a.weight, a.weight, a.model_weight, a.update});
}
OperationTime cost_of(const LambStep& a) {
  return moves(a, {a.gradient, a.weight, a.weight, a.model_weight, a.m, a.m, a.v, a.v});
}
OperationTime cost_of(const AdamWStep& a) {
  return moves(a, {a.gradient, a.weight, a.weight, a.model_weight, a.m, a.m, a.v, a.v});
}
OperationTime cost_of(const Cast& a) { return moves(a, {a.from, a.to}); }
OperationTime cost_of(const Quantize& a) {
  OperationTime cost = moves(a, {a.x, a.derivative, a.q, a.transposed});
  cost.name += a.activation != Activation::kNone ? " gelu"
               : a.derivative.has_data()         ? " gelu gradient"
                                                 : concat(is_fp8(a.x.dtype) ? " fp8 [" : " [",
                                                  a.x.extent(0), ", ", a.x.extent(1), "]");
  return cost;
}
OperationTime cost_of(const QuantizeWeights& a) {
  OperationTime cost{.name = QuantizeWeights::kName};
  for (const Quantize& weight : a.weights) cost.bytes += cost_of(weight).bytes;
  return cost;
}
OperationTime cost_of(const Fill& a) { return moves(a, {a.values}); }

}  // namespace

void TimedOps::enqueue(AnyArgs any) {
  std::visit(
      [&](const auto* args) {
        std::unique_ptr<Event> begin = record();
        inner_.run(*args);
        spans_.push_back({.cost = cost_of(*args), .begin = std::move(begin), .end = record()});
      },
      any);
  collect();
}

std::unique_ptr<Event> TimedOps::record() {
  std::unique_ptr<Event> event;
  if (free_events_.empty()) {
    event = device_.make_event();
  } else {
    event = std::move(free_events_.back());
    free_events_.pop_back();
  }
  stream_.record(*event);
  return event;
}

void TimedOps::collect() {
  while (!spans_.empty() && spans_.front().end->is_done()) {
    Span& span = spans_.front();
    OperationTime& total = totals_[span.cost.name];
    ++total.calls;
    total.ms += span.end->ms_since(*span.begin);
    total.flops += span.cost.flops;
    total.bytes += span.cost.bytes;
    free_events_.push_back(std::move(span.begin));
    free_events_.push_back(std::move(span.end));
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

}  // namespace bertha
