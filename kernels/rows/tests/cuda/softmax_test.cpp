#include "kernels/rows/ops/softmax.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/tests/cuda/row_gpu.h"
#include "kernels/rows/tests/expect_near.h"
#include "kernels/rows/tests/softmax_case.h"

namespace bertha::testing {
namespace {

constexpr uint32_t kSite = 5;

/// What is applied to scores [B, A, Q, C].
struct Fusion {
  SoftmaxKind kind = SoftmaxKind::kSoftmax;
  float scale = 1.0f;
  float probability = 0.0f;
  bool has_bias = false;  // [1, A, Q, 1] or [1, A, Q, C], by turns
  bool has_mask = false;  // [B, 1, 1, C]
};

constexpr Fusion kFusions[] = {
    {},
    {.kind = SoftmaxKind::kLogSoftmax},
    {.scale = 0.375f, .probability = 0.3f, .has_bias = true, .has_mask = true},
    {.scale = 2.0f, .has_mask = true},
    {.probability = 0.1f},
    {.kind = SoftmaxKind::kLogSoftmax, .scale = 0.375f, .has_bias = true, .has_mask = true}};

HostTensor<double> wide(const HostTensor<float>& values) {
  HostTensor<double> same;
  same.extents = values.extents;
  same.values = values.doubles();
  return same;
}

double unit_of(DType io) { return io == DType::kF64 ? rounding(io) : rounding(DType::kF32); }

/// The same scores through the CPU backend in f64 and through the GPU in `io`. `offset` elements
/// lie between an aligned address and the first of every io tensor.
void expect_same_as_cpu(DType io, HostTensor<float> x, const Fusion& fusion, int64_t offset = 0) {
  const std::vector<int64_t> extents = x.extents;
  const int64_t columns = extents[3];
  const int64_t rows = extents[0] * extents[1] * extents[2];
  const int64_t bias_columns = columns % 2 == 0 ? columns : 1;
  x = rounded_to(io, x);
  HostTensor<float> bias =
      rounded_to(io, random_tensor({1, extents[1], extents[2], bias_columns}, 2));
  HostTensor<uint8_t> mask({extents[0], 1, 1, columns});
  for (int64_t i = 0; i < mask.elements(); ++i) mask[i] = i % 5 != 2 ? 1 : 0;
  HostTensor<float> dy =
      rounded_to(io, random_tensor({extents[0], extents[1], extents[2], columns}, 3));
  HostTensor<uint8_t> kept({rows, softmax_mask_columns(columns) / 8});
  HostTensor<uint64_t> random = random_state(99, 1234);
  const HostTensor<float> garbage = garbage_tensor({extents[0], extents[1], extents[2], columns});
  const std::string what =
      concat(name(io), " [", rows, ",", columns, "] kind ", static_cast<int>(fusion.kind),
             " scale ", fusion.scale, " dropout ", fusion.probability, " offset ", offset);

  const auto on_gpu = [&](const HostTensor<float>& values) {
    return DeviceTensor(gpu(), io, values, offset);
  };
  const DeviceTensor x_on = on_gpu(x), bias_on = on_gpu(bias), dy_on = on_gpu(dy);
  const DeviceTensor y_on = on_gpu(garbage), dropped_on = on_gpu(garbage), dx_on = on_gpu(garbage);
  const DeviceTensor mask_on(gpu(), mask), kept_on(gpu(), kept), random_on(gpu(), random);
  const SoftmaxFwd on{
      .x = x_on.view(),
      .bias = fusion.has_bias ? bias_on.view() : View(),
      .mask = fusion.has_mask ? mask_on.view() : View(),
      .y = y_on.view(),
      .dropped = dropped_on.view(),
      .kept_mask = kept_on.view(),
      .kind = fusion.kind,
      .scale = fusion.scale,
      .dropout = {.random = random_on.view(), .probability = fusion.probability, .site = kSite}};
  gpu().run(on);

  HostTensor<double> x_at = wide(x), bias_at = wide(bias), dy_at = wide(dy);
  HostTensor<double> y_at = wide(garbage), dropped_at = y_at, dx_at = y_at;
  SoftmaxFwd at = on;
  at.x = x_at.view();
  if (fusion.has_bias) at.bias = bias_at.view();
  if (fusion.has_mask) at.mask = mask.view();
  at.y = y_at.view();
  at.dropped = dropped_at.view();
  at.kept_mask = kept.view();
  at.dropout.random = random.view();
  cpu().run(at);
  const double tolerance = tolerance::device_softmax(rounding(io), unit_of(io), columns);
  expect_near(y_on.numbers(), y_at.values, tolerance, "y " + what);
  if (fusion.probability > 0) {
    EXPECT_EQ(kept_on.values<uint8_t>().values, kept.values) << what;
    // Twice: the factor's rounding, and values up to 1 / (1 - p) of those of y.
    expect_near(dropped_on.numbers(), dropped_at.values, 2 * tolerance, "dropped " + what);
  }

  const SoftmaxBwd back{.dy = dy_on.view(),
                        .y = on.y,
                        .kept_mask = on.kept_mask,
                        .dx = dx_on.view(),
                        .kind = fusion.kind,
                        .scale = fusion.scale,
                        .dropout = on.dropout};
  gpu().run(back);
  y_at.values = y_on.numbers();  // of the same rounding
  SoftmaxBwd back_at = back;
  back_at.dy = dy_at.view();
  back_at.y = y_at.view();
  back_at.kept_mask = kept.view();
  back_at.dx = dx_at.view();
  back_at.dropout.random = random.view();
  cpu().run(back_at);
  // Terms of the sum are up to 2 / (1 - p) < 3, and log softmax multiplies its rounding by exp(y).
  expect_near(dx_on.numbers(), dx_at.values, 4 * tolerance, "dx " + what);
}

TEST(GpuSoftmax, SmallShapesMatchTheCpu) {
  for (const DType io : kFloatingTypes) {
    for (const int64_t columns : {1,   2,   15,  17,  31,  32,  33,  41,  66,  77,  81,  96,  100,
                                  127, 129, 159, 161, 191, 200, 257, 258, 264, 287, 289, 319, 376,
                                  377, 384, 508, 513, 514, 543, 544, 545, 575, 577, 640, 1025}) {
      for (const int64_t batch : {0, 1, 3}) {
        for (const Fusion& fusion : kFusions) {
          expect_same_as_cpu(io, random_tensor({batch, 2, 3, columns}, 1), fusion);
        }
      }
    }
  }
}

TEST(GpuSoftmax, WideRowsMatchTheCpu) {
  for (const DType io : kFloatingTypes) {
    // In clusters from 65,536 on, with dropout up to twice that; f32 in shared memory, or nowhere.
    for (const int64_t columns : {776, 1000, 1024, 1026, 1503, 2056, 5000, 5001, 8187, 8192, 16384,
                                  16385, 16512, 30522, 57000, 65529, 65536, 130001}) {
      for (const Fusion& fusion : kFusions) {
        expect_same_as_cpu(io, random_tensor({1, 1, 3, columns}, 1), fusion);
      }
    }
  }
}

TEST(GpuSoftmax, ManyRowsMatchTheCpu) {
  // More than the 64 blocks of each of 132 SMs take in one turn: 8 or 4 rows a block.
  expect_same_as_cpu(DType::kBF16, random_tensor({1, 1, 70'001, 200}, 1), {.probability = 0.1f});
  expect_same_as_cpu(DType::kF32, random_tensor({3, 1, 15'001, 264}, 1), {.has_mask = true});
  expect_same_as_cpu(DType::kF16, random_tensor({1, 1, 70'001, 200}, 1), {});
  expect_same_as_cpu(DType::kF16, random_tensor({1, 1, 20'001, 33}, 1), {});
  for (const DType io : {DType::kF16, DType::kBF16}) {
    for (const Fusion& fusion : {kFusions[0], kFusions[1]}) {
      expect_same_as_cpu(io, random_tensor({1, 1, 2'001, 129}, 1), fusion);
      expect_same_as_cpu(io, random_tensor({1, 1, 2'001, 513}, 1), fusion);
    }
  }
  expect_same_as_cpu(DType::kF16, random_tensor({1, 1, 501, 2048}, 1), {});
}

TEST(GpuSoftmax, AddressesNeedNoAlignment) {
  for (const DType io : kFloatingTypes) {
    for (const int64_t columns : {8, 33, 512, 513, 1024, 2048}) {
      for (const int64_t offset : {1, 2}) {
        for (const Fusion& fusion : kFusions) {
          expect_same_as_cpu(io, random_tensor({2, 2, 3, columns}, 1), fusion, offset);
        }
      }
    }
  }
}

TEST(GpuSoftmax, ExtremeRowsMatchTheCpu) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const DType io : kFloatingTypes) {
    for (const int64_t columns : {1, 2, 33, 256, 513, 1024, 1025, 2048, 30522}) {
      HostTensor<float> x = random_tensor({1, 1, 10, columns}, 1);
      for (int64_t i = 0; i < columns; ++i) {
        x[columns + i] += 10000.0f;
        x[2 * columns + i] -= 10000.0f;
        x[3 * columns + i] = -7.5f;
        if (i % 2 == 0) x[4 * columns + i] = -inf;
        x[5 * columns + i] = -inf;
        if (i == columns / 2) x[6 * columns + i] = std::nanf("");
        if (i == columns / 2) x[7 * columns + i] = inf;
        x[8 * columns + i] = i == columns - 1 ? std::nanf("") : -inf;
        // Warps that see nothing but minus infinity beside such that see very small numbers.
        x[9 * columns + i] = i < columns / 2 ? -inf : x[9 * columns + i] - 10000.0f;
      }
      expect_same_as_cpu(io, x, {});
      expect_same_as_cpu(io, x, {.kind = SoftmaxKind::kLogSoftmax});
      expect_same_as_cpu(io, x, {.probability = 0.3f});
    }
  }
}

TEST(GpuSoftmax, IsTheSameInEveryRun) {
  const DeviceTensor x(gpu(), DType::kBF16, random_tensor({500, 30522}, 1));
  std::vector<float> before;
  for (int run = 0; run < 2; ++run) {
    const DeviceTensor y(gpu(), DType::kBF16, garbage_tensor({500, 30522}));
    gpu().run(SoftmaxFwd{.x = x.view(),
                         .bias = View(),
                         .mask = View(),
                         .y = y.view(),
                         .dropped = View(),
                         .kept_mask = View()});
    const std::vector<float> now = y.floats().values;
    if (run > 0) {
      EXPECT_EQ(now, before);
    }
    before = now;
  }
}

}  // namespace
}  // namespace bertha::testing
