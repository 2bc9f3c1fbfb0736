#include <cmath>
#include <limits>

#include "kernels/base/tests/validation_checks.h"
#include "kernels/rows/row_ops.h"

namespace bertha {
namespace {

TEST(Validation, LayerNormOptionalFields) {
  const View f64_row(some_memory, DType::kF64, {kTokens});
  LayerNormFwd forward{.x = View(some_memory, DType::kF64, {kTokens, 3}),
                       .gamma = View(),
                       .beta = View(),
                       .y = View(some_memory, DType::kF64, {kTokens, 3}),
                       .mean = f64_row,
                       .rstd = f64_row};
  expect_accepted(forward);
  expect_refused(forward, &LayerNormFwd::mean, f32({kTokens}), {"mean", "want f64 [5]"});
  expect_refused(forward, &LayerNormFwd::rstd, View(), {"rstd", "want f64 [5]"});
  forward.mean = forward.rstd = View();
  forward.epsilon = 0.0;
  expect_accepted(forward);
  expect_refused(forward, &LayerNormFwd::epsilon, -1e-5, {"epsilon", "want 0 or more"});
  expect_refused(forward, &LayerNormFwd::epsilon, std::nan(""), {"epsilon", "finite"});
  forward.residual = forward.x;
  expect_refused<LayerNormFwd>(forward, [](auto&) {}, {"sum", "want f64 [5,3]"});
  forward.sum = forward.x;
  expect_refused<LayerNormFwd>(forward, [](auto&) {}, {"sum", "two buffers"});
}

TEST(Validation, LayerNormParametersAreF32NextTo16Bits) {
  const View rows(some_memory, DType::kBF16, {kTokens, 3});
  const View bf16(some_memory, DType::kBF16, {3});
  const LayerNormFwd forward{
      .x = rows, .gamma = f32({3}), .beta = f32({3}), .y = rows, .mean = View(), .rstd = View()};
  expect_accepted(forward);
  expect_refused(forward, &LayerNormFwd::beta, bf16, {"beta is bf16", "want f32 [3]"});
  expect_refused(forward, &LayerNormFwd::gamma, View(some_memory, DType::kF16, {3}),
                 {"gamma is f16", "want f32 [3]"});
  LayerNormBwd backward{.dy = rows,
                        .x = rows,
                        .mean = f32({kTokens}),
                        .rstd = f32({kTokens}),
                        .gamma = f32({3}),
                        .dx = rows,
                        .dgamma = f32({3}),
                        .dbeta = f32({3})};
  expect_accepted(backward);
  expect_refused(backward, &LayerNormBwd::dgamma, bf16, {"dgamma is bf16", "want f32 [3]"});
  backward.gamma = View();
  expect_accepted(backward);
}

TEST(Validation, Softmax) {
  char other[8];
  const SoftmaxFwd forward{.x = f32({2, 4, 3, 33}),
                           .bias = f32({1, 4, 1, 33}),
                           .mask = u8({2, 1, 1, 33}),
                           .y = f32({2, 4, 3, 33}),
                           .dropped = View(other, DType::kF32, {2, 4, 3, 33}),
                           .kept_mask = u8({24, 8}),
                           .dropout = dropout(0.1f)};
  expect_accepted(forward);
  const auto refused = [&](const std::function<void(SoftmaxFwd&)>& spoil,
                           std::initializer_list<const char*> words) {
    expect_refused<SoftmaxFwd>(forward, spoil, words);
  };
  refused([](auto& a) { a.x.dtype = DType::kI32; }, {"softmax_fwd", "x", "f64, f32, f16 or bf16"});
  refused([](auto& a) { a.x = f32({2, 0}); }, {"C", "at least 1"});
  refused([](auto& a) { a.y = f32({24, 33}); }, {"y", "[24,33]", "want f32 [2,4,3,33]"});
  refused([](auto& a) { a.bias = f32({1, 4, 1, 32}); }, {"bias", "or 1 for each"});
  refused([](auto& a) { a.mask = u8({2, 33}); }, {"mask", "or 1 for each"});
  refused([](auto& a) { a.mask.dtype = DType::kI32; }, {"mask", "want u8"});
  refused([](auto& a) { a.kept_mask = u8({24, 5}); }, {"kept_mask", "want u8 [24,8]"});
  refused([](auto& a) { a.dropped = a.y; }, {"dropped", "two buffers"});
  refused([](auto& a) { a.kind = SoftmaxKind::kLogSoftmax; }, {"dropout", "log softmax"});
  refused([](auto& a) { a.scale = std::numeric_limits<float>::infinity(); }, {"scale", "finite"});
  const SoftmaxBwd backward{
      .dy = f32({6, 33}), .y = f32({6, 33}), .kept_mask = View(), .dx = f32({6, 33})};
  expect_accepted(backward);
  expect_refused(backward, &SoftmaxBwd::dropout, dropout(0.5f),
                 {"softmax_bwd", "kept_mask", "want u8 [6,8]"});
  expect_refused(backward, &SoftmaxBwd::dx, f32({6, 32}), {"dx", "[6,33]"});
}

TEST(Validation, Prelu) {
  const PreluFwd forward{.x = f32({2, 3, 5}), .slope = f32({3}), .y = f32({2, 3, 5})};
  expect_accepted(forward);
  expect_refused(forward, &PreluFwd::x, f32({6, 5}), {"prelu_fwd", "x", "want 3 axes"});
  expect_refused(forward, &PreluFwd::slope, f32({5}), {"prelu_fwd", "slope", "want f32 [3]"});
  expect_refused(forward, &PreluFwd::y, f32({2, 5, 3}), {"prelu_fwd", "y"});
  const PreluBwd backward{.dy = f32({2, 3, 5}),
                          .x = f32({2, 3, 5}),
                          .slope = f32({3}),
                          .dx = f32({2, 3, 5}),
                          .dslope = f32({3})};
  expect_accepted(backward);
  expect_refused(backward, &PreluBwd::x, f32({2, 3, 4}), {"prelu_bwd", "x"});
  expect_refused(backward, &PreluBwd::slope, f32({1}), {"prelu_bwd", "slope"});
  expect_refused(backward, &PreluBwd::dx, f32({2, 3}), {"prelu_bwd", "dx"});
  expect_refused(backward, &PreluBwd::dslope, f32({1}), {"prelu_bwd", "dslope", "want f32 [3]"});
}

TEST(Validation, BatchNormRelu) {
  const BatchNormReluFwd forward{.x = f32({2, 3, 5}),
                                 .addend = View(),
                                 .gamma = f32({3}),
                                 .beta = f32({3}),
                                 .running_mean = f32({3}),
                                 .running_var = f32({3}),
                                 .y = f32({2, 3, 5}),
                                 .mask = u8({4}),
                                 .mean = f32({3}),
                                 .rstd = f32({3})};
  using Fwd = BatchNormReluFwd;
  expect_accepted(forward);
  expect_refused(forward, &Fwd::addend, f32({2, 3, 4}),
                 {"batch_norm_relu_fwd", "addend", "want f32 [2,3,5]"});
  expect_refused(forward, &Fwd::gamma, f32({5}), {"gamma"});
  expect_refused(forward, &Fwd::beta, f32({5}), {"beta"});
  expect_refused(forward, &Fwd::y, f32({2, 5, 3}), {"y is"});
  expect_refused(forward, &Fwd::mask, u8({3}), {"mask", "want u8 [4]"});
  expect_refused(forward, &Fwd::mean, f32({2}), {"mean"});
  expect_refused(forward, &Fwd::rstd, f32({2}), {"rstd"});
  expect_refused(forward, &Fwd::momentum, 1.5f, {"momentum", "1.5"});
  expect_refused(forward, &Fwd::epsilon, 0.0f, {"epsilon"});
  expect_refused(forward, &Fwd::running_var, View(), {"running_mean", "both or none"});
  Fwd inference = forward;
  inference.statistics = NormStatistics::kRunning;
  inference.mask = View();
  expect_accepted(inference);
  expect_refused(inference, &Fwd::running_mean, no_data({3}), {"running_mean", "no data"});

  alignas(8) static char other[8];
  const BatchNormReluBwd backward{.dy = f32({2, 3, 5}),
                                  .x = f32({2, 3, 5}),
                                  .mask = u8({4}),
                                  .mean = f32({3}),
                                  .rstd = f32({3}),
                                  .gamma = f32({3}),
                                  .dx = f32({2, 3, 5}),
                                  .daddend = View(other, DType::kF32, {2, 3, 5}),
                                  .dgamma = f32({3}),
                                  .dbeta = f32({3})};
  using Bwd = BatchNormReluBwd;
  expect_accepted(backward);
  expect_refused(backward, &Bwd::x, f32({2, 3, 4}), {"x is"});
  expect_refused(backward, &Bwd::mask, View(), {"mask", "want u8 [4]"});
  expect_refused(backward, &Bwd::mean, f32({4}), {"mean"});
  expect_refused(backward, &Bwd::rstd, f32({4}), {"rstd"});
  expect_refused(backward, &Bwd::gamma, f32({4}), {"gamma"});
  expect_refused(backward, &Bwd::dx, f32({2, 15}), {"dx is"});
  expect_refused(backward, &Bwd::daddend, f32({2, 3, 5}), {"daddend", "two buffers"});
  expect_refused(backward, &Bwd::dgamma, f32({4}), {"dgamma"});
  expect_refused(backward, &Bwd::dbeta, f32({4}), {"dbeta"});
}

}  // namespace
}  // namespace bertha
