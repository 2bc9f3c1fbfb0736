#include "kernels/bench/gain_cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/bench/case_parts.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/gather_scatter.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/reductions.h"

namespace bertha {
namespace {

using Call = std::function<void(const OpCall&)>;

constexpr int64_t kOnesColumns = 8;  // of the GEMM that sums columns: one vector of 16 bits

/// A tensor of which a reference would see the first row only.
BenchTensor tensor(const char* name, const std::vector<int64_t>& extents, double scale) {
  std::vector<int64_t> first = extents;
  first.front() = 1;
  return {.name = name, .extents = extents, .checked = first, .scale = scale};
}

BenchTensor f32(BenchTensor made, DType dtype = DType::kF32) {
  made.io = false;
  made.dtype = dtype;
  return made;
}

BenchTensor vector(const char* name, int64_t columns, double scale) {
  return {.name = name, .extents = {columns}, .scale = scale};
}

GainCase pair(const char* row, const std::vector<BenchTensor>& tensors, Call off, Call on) {
  const auto full = [](Call call) -> Call {
    return [call = std::move(call)](const OpCall& c) {
      if (c.extent == Extent::kFull) call(c);
    };
  };
  const OpCase op{.operation = row, .shape = {}, .tensors = tensors, .call = {}};
  GainCase made{.row = row, .off = op, .on = op};
  made.off.call = full(std::move(off));
  made.on.call = full(std::move(on));
  return made;
}

/// sums [N, 8] = matrix^T * ones: column sums in one pass, as other programs do it.
void sum_columns(const OpCall& c, const View& matrix, const View& ones, const View& sums) {
  c.ops.run(LinearBwdWeight{.dy = matrix, .x = ones, .dweight = sums, .dbias = View()});
}

GainCase bias_epilogue(const BenchModel& m, int64_t t) {
  const double spread = 2 / std::sqrt(static_cast<double>(m.hidden));
  GainCase made = pair(
      "bias-epilogue",
      {tensor("x", {t, m.hidden}, 2), tensor("weight", {m.feed_forward, m.hidden}, spread),
       vector("bias", m.feed_forward, 1), tensor("y", {t, m.feed_forward}, 0),
       tensor("pre_activation", {t, m.feed_forward}, 0)},
      [](const OpCall& c) {
        c.ops.run(LinearFwd{
            .x = c[0], .weight = c[1], .bias = View(), .y = c[4], .pre_activation = View()});
        // A bias and a GELU read and write as much as these.
        c.ops.run(Cast{.from = c[4], .to = c[3]});
        c.ops.run(Cast{.from = c[3], .to = c[4]});
      },
      [](const OpCall& c) {
        c.ops.run(LinearFwd{.x = c[0],
                            .weight = c[1],
                            .bias = c[2],
                            .y = c[3],
                            .pre_activation = c[4],
                            .activation = Activation::kGeluTanh});
      });
  made.calls_per_layer = 1;
  return made;
}

/// The data gradient of the second feed-forward layer, with what it fuses.
LinearBwdData feed_forward_gradient(const OpCall& c, Activation below, bool bias) {
  return {.dy = c[0],
          .weight = c[1],
          .saved = below == Activation::kNone ? View() : c[2],
          .dx = c[3],
          .dbias_below = bias ? c[4] : View(),
          .activation = below};
}

std::vector<BenchTensor> feed_forward_tensors(const BenchModel& m, int64_t t) {
  const double spread = 1 / std::sqrt(static_cast<double>(m.hidden));
  return {tensor("dy", {t, m.hidden}, 1),
          tensor("weight", {m.hidden, m.feed_forward}, spread),
          tensor("saved", {t, m.feed_forward}, 4),
          tensor("dx", {t, m.feed_forward}, 0),
          vector("dbias", m.feed_forward, 0),
          tensor("ones", {t, kOnesColumns}, 1),
          tensor("sums", {m.feed_forward, kOnesColumns}, 0)};
}

GainCase gradient_epilogue(const BenchModel& m, int64_t t, bool bias) {
  GainCase made = pair(
      bias ? "dbias-epilogue" : "dgelu-epilogue", feed_forward_tensors(m, t),
      [bias](const OpCall& c) {
        const View& dx = c[3];
        c.ops.run(
            feed_forward_gradient(c, bias ? Activation::kGeluTanh : Activation::kNone, false));
        if (bias) {
          sum_columns(c, dx, c[5], c[6]);
        } else {
          c.ops.run(ActivationBwd{.dy = dx, .saved = c[2], .dx = dx});
        }
      },
      [bias](const OpCall& c) {
        c.ops.run(feed_forward_gradient(c, Activation::kGeluTanh, bias));
      });
  made.results = {3};
  made.calls_per_layer = 1;
  return made;
}

std::vector<int32_t> counting(int64_t count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// The data gradient of the QKV layer, which adds to that of the residual.
GainCase addto(const BenchModel& m, int64_t t) {
  const double spread = 1 / std::sqrt(3.0 * static_cast<double>(m.hidden));
  const auto gradient = [](const OpCall& c, const View& dx, Accumulate accumulate) {
    c.ops.run(LinearBwdData{
        .dy = c[0], .weight = c[1], .saved = View(), .dx = dx, .accumulate = accumulate});
  };
  GainCase made = pair(
      "addto",
      {tensor("dy", {t, 3 * m.hidden}, 1), tensor("weight", {3 * m.hidden, m.hidden}, spread),
       tensor("dx", {t, m.hidden}, 1), tensor("product", {t, m.hidden}, 0),
       ids("indices", counting(t), 1)},
      [gradient](const OpCall& c) {
        gradient(c, c[3], Accumulate::kNo);
        c.ops.run(ScatterAddRows{.rows = c[3], .indices = c[4], .target = c[2]});
      },
      [gradient](const OpCall& c) { gradient(c, c[2], kAdd); });
  made.results = {2};
  made.calls_per_layer = 2;
  return made;
}

GainCase residual_ln(const BenchModel& m, int64_t t) {
  std::vector<OpCase> fused;  // forward, backward
  add_residual_ln({t, 1, m.hidden}, m.hidden_dropout, fused);
  std::vector<BenchTensor> tensors = fused.back().tensors;
  for (BenchTensor& made : tensors) made.is_result = false;
  tensors[1].scale = 0;  // the separate operations add no bias
  const size_t more = tensors.size();
  tensors.push_back(ids("indices", counting(t), 1));
  tensors.push_back(tensor("ones", {t, kOnesColumns}, 1));
  tensors.push_back(tensor("sums", {m.hidden, kOnesColumns}, 0));
  const auto separate = [more](const OpCall& c) {
    c.ops.run(Cast{.from = c[0], .to = c[5]});  // reads and writes as much as dropout
    c.ops.run(ScatterAddRows{.rows = c[5], .indices = c[more], .target = c[2]});
    c.ops.run(LayerNormFwd{
        .x = c[2], .gamma = c[3], .beta = c[4], .y = c[6], .mean = c[7], .rstd = c[8]});
    c.ops.run(LayerNormBwd{.dy = c[11],
                           .x = c[2],
                           .mean = c[7],
                           .rstd = c[8],
                           .gamma = c[3],
                           .dx = c[12],
                           .dgamma = c[14],
                           .dbeta = c[15],
                           .accumulate = kAdd});
    c.ops.run(Cast{.from = c[12], .to = c[13]});
    sum_columns(c, c[13], c[more + 1], c[more + 2]);
  };
  GainCase made = pair("residual-ln", tensors, separate, [fused](const OpCall& c) {
    for (const OpCase& op : fused) op.call(c);
  });
  if (m.hidden_dropout == 0) made.results = {6, 12, 13, 14, 15};
  made.calls_per_layer = 2;
  return made;
}

/// Norm of the gradient and both halves of LAMB.
GainCase lamb_flat(const BenchModel& m, std::span<const LambSegment> given) {
  const std::vector<LambSegment> all(given.begin(), given.end());
  const auto flat = [&](const char* name, double scale) {
    return tensor(name, {m.parameters}, scale);
  };
  const auto call = [](const OpCall& c, std::span<const LambSegment> segments, int64_t first,
                       int64_t begin, int64_t count, Accumulate accumulate) {
    const auto part = [&](size_t i) { return c[i].rows(begin, count); };
    const View norms = c[5].rows(first, std::ssize(segments));
    c.ops.run(SumOfSquares{.values = part(0), .result = c[8], .accumulate = accumulate});
    c.ops.run(LambMoments{.gradient = part(0),
                          .weight = part(1),
                          .m = part(2),
                          .v = part(3),
                          .update = part(4),
                          .norms = norms,
                          .state = c[6],
                          .segments = segments});
    c.ops.run(LambApply{.weight = part(1),
                        .model_weight = part(7),
                        .update = part(4),
                        .norms = norms,
                        .state = c[6],
                        .segments = segments});
  };
  GainCase made = pair(
      "lamb-flat",
      {flat("gradient", 0.01), f32(flat("weight", 0.05)), f32(flat("m", 0)), f32(flat("v", 0)),
       f32(flat("update", 0)), f32(tensor("norms", {std::ssize(all), 2}, 0), DType::kF64),
       lamb_state(), flat("model_weight", 0), f32(vector("sum", 1, 0), DType::kF64)},
      [call, all](const OpCall& c) {
        for (const LambSegment& segment : all) {
          const LambSegment alone{.end = segment.end - segment.begin, .decay = segment.decay};
          call(c, std::span(&alone, 1), segment.tensor, segment.begin, alone.end, kAdd);
        }
      },
      [call, all, n = m.parameters](const OpCall& c) { call(c, all, 0, 0, n, Accumulate::kNo); });
  made.results = {1, 7};
  made.calls_per_step = 1;
  return made;
}

/// The sequences of one group as a batch of their own, as far as attention reads it.
BenchBatch batch_of(const BenchBatch& all, SequenceGroup group) {
  BenchBatch made;
  made.name = all.name;
  made.tokens = group.num_tokens;
  made.word_ids.resize(static_cast<size_t>(group.num_tokens));
  for (int64_t b = 0; b <= group.num_seqs; ++b) {
    made.cu_seqlens.push_back(all.cu_seqlens[static_cast<size_t>(group.first_seq + b)] -
                              static_cast<int32_t>(group.first_token));
  }
  group.first_seq = group.first_token = 0;
  made.groups = {group};
  return made;
}

/// Both directions of attention; off: a call per group, one after the other on the one stream.
GainCase attention_streams(const BenchModel& m, const BenchBatch& batch) {
  const auto both_of = [&](const BenchBatch& some, std::vector<BenchTensor>& tensors) -> Call {
    const std::vector<OpCase> both = attention_cases(m, some, m.attention_dropout);
    const size_t first = tensors.size();
    for (BenchTensor made : both.back().tensors) {
      made.is_result = false;
      tensors.push_back(std::move(made));
    }
    return [=, count = tensors.size() - first](const OpCall& c) {
      const OpCall own{.ops = c.ops,
                       .row_ops = c.row_ops,
                       .tensors = c.tensors.subspan(first, count),
                       .extent = c.extent};
      for (const OpCase& op : both) op.call(own);
    };
  };
  std::vector<BenchTensor> tensors;
  const Call all = both_of(batch, tensors);
  std::vector<Call> groups;
  for (const SequenceGroup& group : batch.groups) {
    groups.push_back(both_of(batch_of(batch, group), tensors));
  }
  GainCase made = pair(
      "attention-streams", tensors,
      [groups](const OpCall& c) {
        for (const Call& call : groups) call(c);
      },
      all);
  made.calls_per_layer = 1;
  return made;
}

}  // namespace

std::vector<GainCase> make_gain_cases(const BenchModel& model, const BenchBatch& batch,
                                      std::span<const LambSegment> tensors) {
  const int64_t t = batch.rows();
  return {attention_streams(model, batch),
          bias_epilogue(model, t),
          gradient_epilogue(model, t, false),
          gradient_epilogue(model, t, true),
          addto(model, t),
          residual_ln(model, t),
          lamb_flat(model, tensors)};
}

// The bound of OpBench, row by row: the sum of roundings at random grows as the root of their
// number, and each is half a unit in the last place of the row's largest sum or less.
double disagreement(OpBench& bench, const GainCase& made) {
  const auto off = bench.values_after(made.off, made.results);
  const auto on = bench.values_after(made.on, made.results);
  double worst = 0;
  for (size_t r = 0; r < made.results.size(); ++r) {
    const int64_t rows = made.on.tensors[made.results[r]].extents[0];
    const auto columns = static_cast<size_t>(std::ssize(on[r].values) / rows);
    const bool is_written = std::ranges::any_of(on[r].values, [](float v) { return v != 0; });
    if (!is_written) worst = HUGE_VAL;
    for (int64_t row = 0; row < rows; ++row) {
      const size_t begin = static_cast<size_t>(row) * columns;
      double largest = 0;
      double difference = 0;
      for (size_t i = begin; i < begin + columns; ++i) {
        const double found = on[r].values[i];
        const double apart = std::abs(found - off[r].values[i]);
        largest = std::max(largest, std::abs(found));
        difference = std::isnan(apart) ? HUGE_VAL : std::max(difference, apart);
      }
      if (difference == 0) continue;
      const int64_t additions =
          made.additions.empty() ? 0 : made.additions[static_cast<size_t>(row)];
      const double allowed = additions <= 1 ? 0
                                            : 4 * (std::sqrt(static_cast<double>(additions)) + 1) *
                                                  rounding_unit(on[r].dtype) * largest;
      worst = std::max(worst, allowed > 0 ? difference / allowed : HUGE_VAL);
    }
  }
  return worst;
}

}  // namespace bertha
