#include <limits>

#include "kernels/base/tests/validation_checks.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gather_scatter.h"
#include "kernels/ops/linear_quantize.h"
#include "kernels/ops/residual_ln.h"
#include "kernels/rows/ops/layer_norm.h"

namespace bertha {
namespace {

EmbeddingFwd embedding_fwd() {
  return {.word_ids = i32({kTokens}),
          .position_ids = i32({kTokens}),
          .segment_ids = i32({kTokens}),
          .word_table = f32({100, kHidden}),
          .position_table = f32({50, kHidden}),
          .segment_table = f32({2, kHidden}),
          .gamma = f32({kHidden}),
          .beta = f32({kHidden}),
          .sum = f32({kTokens, kHidden}),
          .y = f32({kTokens, kHidden}),
          .mean = f32({kTokens}),
          .rstd = f32({kTokens}),
          .mask = u8({kTokens, kHidden / 8}),
          .dropout = dropout(0.1f)};
}

/// The fields of a forward pass with a LayerNorm, in every operation that has one.
template <class Forward>
void expect_norm_checked(const Forward& good) {
  const View wrong = f32({9});
  expect_refused(good, &Forward::gamma, wrong, {"gamma", "[9]"});
  expect_refused(good, &Forward::beta, wrong, {"beta", "[9]"});
  expect_refused(good, &Forward::mean, wrong, {"mean", "[9]"});
  expect_refused(good, &Forward::rstd, wrong, {"rstd", "[9]"});
  expect_refused(good, &Forward::epsilon, -0.25f, {"epsilon"});
}

template <class Backward>
void expect_norm_backward_checked(const Backward& good) {
  const View wrong = f32({9});
  expect_refused(good, &Backward::mean, wrong, {"mean", "[9]"});
  expect_refused(good, &Backward::rstd, wrong, {"rstd", "[9]"});
  expect_refused(good, &Backward::gamma, wrong, {"gamma", "[9]"});
  expect_refused(good, &Backward::dgamma, wrong, {"dgamma", "[9]"});
  expect_refused(good, &Backward::dbeta, wrong, {"dbeta", "[9]"});
}

TEST(Validation, EmbeddingFwd) {
  using Args = EmbeddingFwd;
  expect_accepted(embedding_fwd());
  expect_refused(embedding_fwd(), &Args::word_table, f32({100, 8}),
                 {"embedding_fwd", "word_table", "f32 [100,8]", "want f32 [100,16]"});
  expect_refused(embedding_fwd(), &Args::word_ids, f32({kTokens}),
                 {"word_ids", "f32 [5]", "want i32 [5]"});
  expect_refused(embedding_fwd(), &Args::y, f32({kTokens, 12}), {"H", "12", "multiple of 8"});
  expect_refused(embedding_fwd(), &Args::mean, no_data({kTokens}), {"mean", "no data"});
  expect_norm_checked(embedding_fwd());
  expect_refused(embedding_fwd(), &Args::epsilon, 0.0f, {"epsilon", "above 0"});
}

TEST(Validation, EmbeddingBwd) {
  using Args = EmbeddingBwd;
  const Args good{.dy = f32({kTokens, kHidden}),
                  .word_ids = i32({kTokens}),
                  .position_ids = i32({kTokens}),
                  .segment_ids = i32({kTokens}),
                  .rows_by_word = i32({kTokens}),
                  .sum = f32({kTokens, kHidden}),
                  .mean = f32({kTokens}),
                  .rstd = f32({kTokens}),
                  .mask = u8({kTokens, kHidden / 8}),
                  .gamma = f32({kHidden}),
                  .dword_table = f32({100, kHidden}),
                  .dposition_table = f32({50, kHidden}),
                  .dsegment_table = f32({2, kHidden}),
                  .dgamma = f32({kHidden}),
                  .dbeta = f32({kHidden}),
                  .dropout = dropout(0.1f)};
  expect_accepted(good);
  expect_refused(good, &Args::dsegment_table, f32({2}),
                 {"embedding_bwd", "dsegment_table", "want 2 axes"});
  expect_norm_backward_checked(good);
}

TEST(Validation, Dropout) {
  using Args = EmbeddingFwd;
  for (const float wrong : {1.0f, -0.1f, std::numeric_limits<float>::quiet_NaN()}) {
    expect_refused(embedding_fwd(), &Args::dropout, dropout(wrong),
                   {"dropout.probability", "[0, 1)"});
  }
  expect_refused<Args>(embedding_fwd(),
                       [](Args& a) { a.dropout.random = View(nullptr, DType::kU64, {2}); },
                       {"dropout.random", "no data"});
  Args without = embedding_fwd();
  without.dropout = {.random = View(), .probability = 0.0f};
  expect_accepted(without);
}

TEST(Validation, LinearFwd) {
  using Args = LinearFwd;
  const Args good{.x = f32({kTokens, 7}),
                  .weight = f32({3, 7}),
                  .bias = f32({3}),
                  .y = f32({kTokens, 3}),
                  .pre_activation = f32({kTokens, 3}),
                  .activation = Activation::kGeluTanh};
  expect_accepted(good);
  expect_refused(good, &Args::weight, f32({3, 8}),
                 {"linear_fwd", "weight", "f32 [3,8]", "want f32 [3,7]"});
  expect_refused(good, &Args::pre_activation, View(), {"pre_activation"});
  expect_refused(good, &Args::activation, Activation::kTanh, {"pre_activation", "want no data"});
  const View bytes(some_memory, DType::kU8, {kTokens, 3});
  expect_refused(good, &Args::derivative, bytes, {"pre_activation", "with derivative"});
  Args in_bytes = good;
  in_bytes.pre_activation = View();
  in_bytes.derivative = bytes;
  expect_accepted(in_bytes);
  expect_refused(in_bytes, &Args::activation, Activation::kTanh, {"derivative", "without a GELU"});
  expect_refused(in_bytes, &Args::derivative, f32({kTokens, 3}),
                 {"derivative", "f32 [5,3]", "want u8 [5,3]"});
  expect_refused<Args>(good, [](Args& a) { a.x.dtype = DType::kF64; },
                       {"x", "f64", "f32, f16 or bf16"});
  expect_refused<Args>(good, [](Args& a) { a.y.dtype = DType::kBF16; },
                       {"y", "bf16 [5,3]", "want f32 [5,3]"});
}

TEST(Validation, LinearBackward) {
  const LinearBwdData data{.dy = f32({kTokens, 3}),
                           .weight = f32({3, 7}),
                           .saved = f32({kTokens, 7}),
                           .dx = f32({kTokens, 7}),
                           .activation = Activation::kTanh};
  expect_accepted(data);
  expect_refused(data, &LinearBwdData::accumulate, Accumulate::kYes,
                 {"linear_bwd_data", "accumulate"});
  expect_refused(data, &LinearBwdData::activation, Activation::kNone, {"saved", "want no data"});
  LinearBwdData with_bias = data;
  with_bias.dbias_below = f32({7});
  with_bias.accumulate_dbias = Accumulate::kYes;
  expect_accepted(with_bias);
  expect_refused(with_bias, &LinearBwdData::dbias_below, f32({3}),
                 {"linear_bwd_data", "dbias_below", "[3]", "want f32 [7]"});
  const View bytes(some_memory, DType::kU8, {kTokens, 7});
  expect_refused(data, &LinearBwdData::derivative, bytes, {"derivative", "with an activation"});
  LinearBwdData in_bytes = data;
  in_bytes.saved = View();
  in_bytes.derivative = bytes;
  in_bytes.activation = Activation::kNone;
  expect_accepted(in_bytes);
  expect_refused(in_bytes, &LinearBwdData::accumulate, Accumulate::kYes,
                 {"accumulate", "with a derivative"});
  expect_refused(in_bytes, &LinearBwdData::derivative, View(some_memory, DType::kU8, {kTokens, 6}),
                 {"derivative", "u8 [5,6]", "want u8 [5,7]"});
  const LinearBwdWeight weight{
      .dy = f32({kTokens, 3}), .x = f32({kTokens, 7}), .dweight = f32({3, 7}), .dbias = View()};
  expect_accepted(weight);
  expect_refused(weight, &LinearBwdWeight::x, f32({4, 7}),
                 {"linear_bwd_weight", "x", "[4,7]", "want f32 [5,7]"});
  const ActivationBwd activation{.dy = f32({kTokens, 3}),
                                 .saved = f32({kTokens, 3}),
                                 .dx = f32({kTokens, 3}),
                                 .activation = Activation::kTanh};
  expect_accepted(activation);
  expect_refused(activation, &ActivationBwd::activation, Activation::kNone,
                 {"activation_bwd", "activation", "gelu or tanh"});
}

TEST(Validation, LinearThenQuantize) {
  alignas(16) static char other_memory[4096];
  const auto check = [&](const auto& both, auto field, const char* name) {
    expect_accepted(both);
    auto apart = both;
    apart.quantize.x.data = other_memory;
    expect_refused(apart, &decltype(apart)::quantize, apart.quantize, {name, "the same memory"});
    apart.linear.*field = f32({kTokens, 4});
    expect_refused(apart, &decltype(apart)::quantize, both.quantize, {"want f32"});
  };
  const Quantize quantize{.x = f32({kTokens, 3}),
                          .scale = View(),
                          .q = View(),
                          .transposed = View(),
                          .amax = f32({1}),
                          .saturated = View()};
  check(LinearFwdQuantize{.linear = {.x = f32({kTokens, 7}),
                                     .weight = f32({3, 7}),
                                     .bias = View(),
                                     .y = f32({kTokens, 3}),
                                     .pre_activation = View()},
                          .quantize = quantize},
        &LinearFwd::y, "linear_fwd_quantize");
  check(LinearBwdDataQuantize{.linear = {.dy = f32({kTokens, 7}),
                                         .weight = f32({7, 3}),
                                         .saved = View(),
                                         .dx = f32({kTokens, 3})},
                              .quantize = quantize},
        &LinearBwdData::dx, "linear_bwd_data_quantize");
}

View fp8(std::initializer_list<int64_t> extents) {
  return View(some_memory, DType::kE4M3, extents);
}

TEST(Validation, LinearOfFp8) {
  const View e5m2(some_memory, DType::kE5M2, {kTokens, 3});
  const LinearFwd forward{.x = fp8({kTokens, 7}),
                          .weight = fp8({3, 7}),
                          .bias = f32({3}),
                          .y = f32({kTokens, 3}),
                          .pre_activation = View(),
                          .x_inverse_scale = f32({1}),
                          .weight_inverse_scale = f32({1})};
  expect_accepted(forward);
  expect_refused(forward, &LinearFwd::weight, f32({3, 7}),
                 {"linear_fwd", "weight", "f32 but x is e4m3", "want e4m3 or e5m2"});
  expect_refused(forward, &LinearFwd::x, f32({kTokens, 7}),
                 {"x_inverse_scale", "for a matrix of f32", "want no data"});
  expect_refused(forward, &LinearFwd::x_inverse_scale, View(), {"x_inverse_scale"});
  expect_refused(forward, &LinearFwd::weight_inverse_scale, f32({2}),
                 {"weight_inverse_scale", "f32 [2]", "want f32 [1]"});
  expect_refused(forward, &LinearFwd::y, fp8({kTokens, 3}), {"y", "e4m3", "f32, f16 or bf16"});
  const LinearBwdData data{.dy = e5m2,
                           .weight = fp8({7, 3}),
                           .saved = View(),
                           .dx = f32({kTokens, 7}),
                           .dy_inverse_scale = f32({1}),
                           .weight_inverse_scale = f32({1})};
  expect_accepted(data);
  expect_refused(data, &LinearBwdData::weight, View(some_memory, DType::kE5M2, {7, 3}),
                 {"linear_bwd_data", "weight", "e5m2 and dy is too", "want e4m3"});
  expect_refused(data, &LinearBwdData::weight, fp8({3, 7}),
                 {"linear_bwd_data", "weight", "[3,7]", "want e4m3 [3,3]"});
  const LinearBwdWeight weight{.dy = View(some_memory, DType::kE5M2, {3, kTokens}),
                               .x = fp8({7, kTokens}),
                               .dweight = f32({3, 7}),
                               .dbias = View(),
                               .dy_inverse_scale = f32({1}),
                               .x_inverse_scale = f32({1})};
  expect_accepted(weight);
  expect_refused(weight, &LinearBwdWeight::dbias, f32({3}),
                 {"linear_bwd_weight", "dbias", "with fp8", "want no data"});
  expect_refused(weight, &LinearBwdWeight::x, fp8({kTokens, 7}),
                 {"linear_bwd_weight", "x", "[5,7]"});
}

AttentionFwd attention_fwd(std::span<const SequenceGroup> groups) {
  return {.qkv = f32({9, 3, 2, 8}),
          .cu_seqlens = i32({4}),
          .out = f32({9, 2, 8}),
          .lse = f32({2, 9}),
          .mask = u8({9, 2, 512 / 8}),
          .groups = groups,
          .dropout = dropout(0.1f),
          .max_seq_tokens = 512};
}

TEST(Validation, AttentionShapes) {
  using Args = AttentionFwd;
  const SequenceGroup all{
      .num_seqs = 3, .num_tokens = 8, .longest_seq_tokens = 4, .bucket_tokens = 128};
  const std::vector<SequenceGroup> groups = {all};
  expect_accepted(attention_fwd(groups));
  expect_refused(attention_fwd(groups), &Args::qkv, f32({9, 2, 2, 8}),
                 {"attention_fwd", "qkv", "want f32 [9,3,2,8]"});
  expect_refused(attention_fwd(groups), &Args::lse, f32({9, 2}), {"lse", "want f32 [2,9]"});
  expect_refused(attention_fwd(groups), &Args::max_seq_tokens, 48,
                 {"max_seq_tokens", "48", "multiple of 32"});
  const std::vector<SequenceGroup> long_group = {
      {.num_seqs = 3, .num_tokens = 8, .longest_seq_tokens = 40, .bucket_tokens = 128}};
  expect_refused<Args>(attention_fwd(long_group),
                       [](Args& a) {
                         a.max_seq_tokens = 32;
                         a.mask = u8({9, 2, 4});
                       },
                       {"longest_seq_tokens", "40", "at most 32"});
  expect_refused(attention_fwd(groups), &Args::mask, View(), {"mask"});
  expect_refused(attention_fwd(groups), &Args::scale, -1.0f, {"scale"});
  const AttentionBwd backward{.dout = f32({9, 2, 8}),
                              .qkv = f32({9, 3, 2, 8}),
                              .out = f32({9, 2, 8}),
                              .lse = f32({2, 9}),
                              .mask = View(),
                              .cu_seqlens = i32({4}),
                              .dqkv = f32({9, 3, 2, 8}),
                              .dbias = View(),
                              .groups = groups,
                              .dropout = dropout(0.0f)};
  expect_accepted(backward);
  expect_refused(backward, &AttentionBwd::dqkv, f32({9, 2, 8}),
                 {"attention_bwd", "dqkv", "want f32 [9,3,2,8]"});
  expect_refused(backward, &AttentionBwd::dbias, f32({3, 2, 8}),
                 {"attention_bwd", "dbias", "want f32 [48]"});
  AttentionBwd rounds = backward;
  rounds.dqkv_fp8 = {.q = fp8({9, 48}),
                     .scale = f32({1}),
                     .amax = f32({1}),
                     .saturated = View(some_memory, DType::kI64, {1})};
  expect_accepted(rounds);
  const auto refused = [&](View Fp8Result::*field, const View& wrong,
                           std::initializer_list<const char*> words) {
    expect_refused<AttentionBwd>(
        rounds, [&](AttentionBwd& a) { a.dqkv_fp8.*field = wrong; }, words);
  };
  refused(&Fp8Result::q, fp8({9, 16}), {"attention_bwd", "dqkv_fp8", "want e4m3 [9,48]"});
  refused(&Fp8Result::q, f32({9, 48}), {"dqkv_fp8", "f32", "want e4m3 or e5m2"});
  refused(&Fp8Result::scale, View(), {"attention_bwd", "dqkv_fp8"});
  refused(&Fp8Result::live_rows, f32({1}), {"attention_bwd", "dqkv_fp8", "want i32 [1]"});
}

TEST(Validation, AttentionGroupsCoverAllSequencesInOrder) {
  const SequenceGroup first{
      .num_seqs = 2, .num_tokens = 6, .longest_seq_tokens = 4, .bucket_tokens = 128};
  const SequenceGroup second{.first_seq = 2,
                             .num_seqs = 1,
                             .first_token = 6,
                             .num_tokens = 2,
                             .longest_seq_tokens = 2,
                             .bucket_tokens = 128};
  const auto refused = [](const std::vector<SequenceGroup>& groups,
                          std::initializer_list<const char*> words) {
    expect_refused<AttentionFwd>(
        attention_fwd(groups), [](AttentionFwd&) {}, words);
  };
  const std::vector<SequenceGroup> whole = {first, second};
  expect_accepted(attention_fwd(whole));
  refused({first}, {"groups", "cover 2 sequences", "all 3"});
  refused({second, first}, {"groups", "continue at sequence 2", "want sequence 0"});
  SequenceGroup too_long = first;
  too_long.longest_seq_tokens = 129;
  refused({too_long, second}, {"groups.bucket_tokens", "128", "at least 129"});
  SequenceGroup beyond = second;
  beyond.num_tokens = 4;
  beyond.longest_seq_tokens = 4;
  refused({first, beyond}, {"num_tokens", "10", "at most 9"});
}

TEST(Validation, ResidualLn) {
  const ResidualLnFwd forward{.x = f32({kTokens, kHidden}),
                              .bias = f32({kHidden}),
                              .residual = f32({kTokens, kHidden}),
                              .gamma = f32({kHidden}),
                              .beta = f32({kHidden}),
                              .sum = f32({kTokens, kHidden}),
                              .y = f32({kTokens, kHidden}),
                              .mean = f32({kTokens}),
                              .rstd = f32({kTokens}),
                              .mask = u8({kTokens, kHidden / 8}),
                              .dropout = dropout(0.1f)};
  expect_accepted(forward);
  expect_norm_checked(forward);
  expect_refused(forward, &ResidualLnFwd::epsilon, 0.0f, {"epsilon", "above 0"});
  expect_refused(forward, &ResidualLnFwd::is_y_needed, false, {"is_y_needed", "y_fp8"});
  expect_refused<ResidualLnFwd>(forward, [](auto& a) { a.residual_norm.mean = f32({kTokens}); },
                                {"residual_norm.rstd"});
  expect_refused(forward, &ResidualLnFwd::residual, f32({4, kHidden}),
                 {"residual_ln_fwd", "residual", "[4,16]", "want f32 [5,16]"});
  char other[8];
  const ResidualLnBwd backward{.dy = f32({kTokens, kHidden}),
                               .sum = f32({kTokens, kHidden}),
                               .mean = f32({kTokens}),
                               .rstd = f32({kTokens}),
                               .mask = u8({kTokens, kHidden / 8}),
                               .gamma = f32({kHidden}),
                               .dresidual = View(other, DType::kF32, {kTokens, kHidden}),
                               .dx = f32({kTokens, kHidden}),
                               .dgamma = f32({kHidden}),
                               .dbeta = f32({kHidden}),
                               .dbias = f32({kHidden}),
                               .dropout = dropout(0.1f)};
  expect_accepted(backward);
  expect_norm_backward_checked(backward);
  expect_refused<ResidualLnBwd>(backward, [](auto& a) { a.dx.data = a.dresidual.data; },
                                {"residual_ln_bwd", "dx", "two buffers"});
}

TEST(Validation, LayerNorm) {
  const LayerNormFwd forward{.x = f32({kTokens, 3}),
                             .gamma = f32({3}),
                             .beta = f32({3}),
                             .y = f32({kTokens, 3}),
                             .mean = f32({kTokens}),
                             .rstd = f32({kTokens})};
  expect_accepted(forward);
  expect_norm_checked(forward);
  expect_refused(forward, &LayerNormFwd::beta, f32({4}),
                 {"layer_norm_fwd", "beta", "want f32 [3]"});
  expect_refused(forward, &LayerNormFwd::x, f32({kTokens, 0}), {"C", "at least 1"});
  const LayerNormBwd backward{.dy = f32({kTokens, 3}),
                              .x = f32({kTokens, 3}),
                              .mean = f32({kTokens}),
                              .rstd = f32({kTokens}),
                              .gamma = f32({3}),
                              .dx = f32({kTokens, 3}),
                              .dgamma = f32({3}),
                              .dbeta = f32({3})};
  expect_accepted(backward);
  expect_norm_backward_checked(backward);
  expect_refused(backward, &LayerNormBwd::rstd, f32({4}),
                 {"layer_norm_bwd", "rstd", "want f32 [5]"});
}

TEST(Validation, Rows) {
  const GatherRows gather{.source = f32({kTokens, 3}), .indices = i32({2}), .picked = f32({2, 3})};
  expect_accepted(gather);
  expect_refused(gather, &GatherRows::indices, i32({3}),
                 {"gather_rows", "indices", "want i32 [2]"});
  const ScatterAddRows scatter{
      .rows = f32({2, 3}), .indices = i32({2}), .target = f32({kTokens, 3})};
  expect_accepted(scatter);
  expect_refused(scatter, &ScatterAddRows::target, f32({kTokens, 4}),
                 {"scatter_add_rows", "target", "want f32 [5,3]"});
}

TEST(Validation, CrossEntropy) {
  const CrossEntropy good{.logits = f32({kTokens, 8}),
                          .labels = i32({kTokens}),
                          .gradient_scale = f32({1}),
                          .loss_sum = View(some_memory, DType::kF64, {1}),
                          .correct = View(some_memory, DType::kI64, {1}),
                          .rows_counted = View(some_memory, DType::kI64, {1}),
                          .classes = 7};
  expect_accepted(good);
  expect_refused(good, &CrossEntropy::classes, 9, {"cross_entropy", "classes", "9", "at most 8"});
  expect_refused(good, &CrossEntropy::classes, 0, {"classes", "at least 1"});
  expect_refused<CrossEntropy>(good, [](auto& a) { a.loss_sum.dtype = DType::kF32; },
                               {"loss_sum", "want f64 [1]"});
}

TEST(Validation, Elementwise) {
  const Cast cast{.from = f32({4}), .to = View(some_memory, DType::kBF16, {2, 2})};
  expect_accepted(cast);
  expect_refused(cast, &Cast::to, f32({5}), {"cast", "to", "as many elements"});
  expect_refused(cast, &Cast::from, i32({4}), {"from", "i32"});
  expect_refused<Fill>(Fill{.values = View(some_memory, DType::kU8, {4})}, [](auto&) {},
                       {"fill", "u8"});
  const GradientScale scale{
      .denominator = View(some_memory, DType::kI64, {1}), .state = View(), .target = f32({1})};
  expect_accepted(scale);
  expect_refused(scale, &GradientScale::state, View(some_memory, DType::kU8, {4}),
                 {"gradient_scale", "state", "u8 [4]"});
}

TEST(Validation, NoElementsNeedNoData) {
  expect_accepted(GatherRows{.source = f32({kTokens, 3}),
                             .indices = View(nullptr, DType::kI32, {0}),
                             .picked = no_data({0, 3})});
}

}  // namespace
}  // namespace bertha
