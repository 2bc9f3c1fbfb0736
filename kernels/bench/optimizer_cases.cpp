#include <algorithm>

#include "kernels/bench/case_parts.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/reductions.h"

namespace bertha {
namespace {

constexpr int64_t kCheckedElements = 65536;  // in each flat buffer

}  // namespace

BenchTensor lamb_state() {
  LambState state{.learning_rate = 1e-3f};
  state.successful_steps = 1;
  state.gradient_multiplier = 0.5f;
  state.bias_correction_1 = 0.1f;
  state.bias_correction_2 = 0.001f;
  return {.name = "state",
          .extents = {static_cast<int64_t>(sizeof(state))},
          .io = false,
          .dtype = DType::kU8,
          .bytes = bytes_of(std::vector<LambState>{state})};
}

// Norms are per tensor: the reference computes the first two tensors.
void add_optimizer(const BenchModel& m, std::vector<OpCase>& cases) {
  const int64_t n = m.parameters;
  const int64_t checked = std::min(kCheckedElements, n / 4 / 64 * 64);
  const std::vector<LambSegment> segments{
      {.tensor = 0, .begin = 0, .end = checked / 2},
      {.tensor = 1, .begin = checked / 2, .end = checked, .decay = false},
      {.tensor = 2, .begin = checked, .end = n / 2},
      {.tensor = 3, .begin = n / 2, .end = n}};
  const auto flat = [&](const char* name, double scale, double passes, bool result) {
    return BenchTensor{.name = name,
                       .extents = {n},
                       .checked = {checked},
                       .io = false,
                       .scale = scale,
                       .passes = passes,
                       .is_result = result,
                       .terms = 128};
  };
  const auto flat_io = [&](const char* name, double scale, double passes, bool result) {
    BenchTensor tensor = flat(name, scale, passes, result);
    tensor.io = true;
    return tensor;
  };
  const BenchTensor norms{.name = "norms",
                          .extents = {4, 2},
                          .checked = {2, 2},
                          .io = false,
                          .dtype = DType::kF64,
                          .is_result = true,
                          .terms = checked};
  const std::string shape = concat(n, " parameters");

  BenchTensor values = flat_io("values", 1, 1, false);
  values.is_empty_beyond = true;
  cases.push_back({.operation = "sum_of_squares",
                   .shape = shape,
                   .tensors = {values, scalar_sum("result", DType::kF64)},
                   .call = [](const OpCall& c) {
                     c.ops.run(SumOfSquares{.values = c["values"], .result = c["result"]});
                   }});
  const auto spans = [segments](Extent extent) {
    return std::span(segments).first(extent == Extent::kFull ? 4 : 2);
  };
  const auto moments = [spans](const OpCall& c) {
    c.ops.run(LambMoments{.gradient = c["gradient"],
                          .weight = c["weight"],
                          .m = c["m"],
                          .v = c["v"],
                          .update = c["update"],
                          .norms = c["norms"],
                          .state = c["state"],
                          .segments = spans(c.extent)});
  };
  cases.push_back({.operation = "lamb_moments",
                   .shape = shape,
                   .tensors = {flat_io("gradient", 0.01, 1, false), flat("weight", 0.05, 1, false),
                               flat("m", 0, 2, true), flat("v", 0, 2, true),
                               flat("update", 0, 1, true), norms, lamb_state()},
                   .call = moments,
                   .prepare = moments});
  BenchTensor norms_in = norms;
  norms_in.is_result = false;
  norms_in.bytes = bytes_of(std::vector<double>{4, 9, 16, 25, 4, 9, 16, 25});
  cases.push_back({.operation = "lamb_apply",
                   .shape = shape,
                   .tensors = {flat("weight", 0.05, 2, true), flat_io("model_weight", 0, 1, true),
                               flat("update", 1, 1, false), norms_in, lamb_state()},
                   .call = [spans](const OpCall& c) {
                     c.ops.run(LambApply{.weight = c["weight"],
                                         .model_weight = c["model_weight"],
                                         .update = c["update"],
                                         .norms = c["norms"],
                                         .state = c["state"],
                                         .segments = spans(c.extent)});
                   }});
  // Tensors of at most BERT-large's largest but the embeddings, so that most have fewer chunks than
  // the GPU has blocks.
  constexpr int64_t kTensorElements = int64_t{1} << 22;
  std::vector<LambSegment> tensors(segments.begin(), segments.begin() + 2);
  for (int64_t begin = checked; begin < n; begin += kTensorElements) {
    tensors.push_back({.tensor = std::ssize(tensors),
                       .begin = begin,
                       .end = std::min(begin + kTensorElements, n)});
  }
  BenchTensor step_norms = norms;
  step_norms.extents = {std::ssize(tensors), 2};
  const auto step = [tensors](const OpCall& c) {
    c.ops.run(LambStep{.gradient = c["gradient"],
                       .weight = c["weight"],
                       .model_weight = c["model_weight"],
                       .m = c["m"],
                       .v = c["v"],
                       .norms = c["norms"],
                       .state = c["state"],
                       .segments = std::span(tensors).first(
                           c.extent == Extent::kFull ? tensors.size() : size_t{2})});
  };
  cases.push_back({.operation = "lamb_step",
                   .shape = shape,
                   .tensors = {flat_io("gradient", 0.01, 1, false), flat("weight", 0.05, 2, true),
                               flat_io("model_weight", 0, 1, true), flat("m", 0, 2, true),
                               flat("v", 0, 2, true), step_norms, lamb_state()},
                   .call = step,
                   .prepare = step});
  const auto adamw = [spans](const OpCall& c) {
    c.ops.run(AdamWStep{.gradient = c["gradient"],
                        .weight = c["weight"],
                        .model_weight = c["model_weight"],
                        .m = c["m"],
                        .v = c["v"],
                        .state = c["state"],
                        .segments = spans(c.extent)});
  };
  cases.push_back({.operation = "adamw_step",
                   .shape = shape,
                   .tensors = {flat_io("gradient", 0.01, 1, false), flat("weight", 0.05, 2, true),
                               flat_io("model_weight", 0, 1, true), flat("m", 0, 2, true),
                               flat("v", 0, 2, true), lamb_state()},
                   .call = adamw,
                   .prepare = adamw});
}

}  // namespace bertha
