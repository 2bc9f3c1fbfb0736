#include <limits>

#include "kernels/row_ops.h"
#include "tests/kernels/validation_checks.h"

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
  forward.residual = forward.x;
  expect_refused<LayerNormFwd>(forward, [](auto&) {}, {"sum", "want f64 [5,3]"});
  forward.sum = forward.x;
  expect_refused<LayerNormFwd>(forward, [](auto&) {}, {"sum", "two buffers"});
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

}  // namespace
}  // namespace bertha
