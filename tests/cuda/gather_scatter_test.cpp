#include "kernels/ops/gather_scatter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/cuda/gpu.h"

namespace bertha::testing {
namespace {

constexpr int64_t kSourceRows = 700;
constexpr std::pair<int64_t, int64_t> kShapes[] = {{0, 8},   {1, 1},      {7, 3},    {33, 24},
                                                   {511, 5}, {100, 1024}, {64, 264}, {5, 4104}};

/// Unique rows in no order, every fourth a -1.
HostTensor<int32_t> unique_rows(int64_t count) {
  std::vector<int32_t> all(kSourceRows);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937(7));
  HostTensor<int32_t> rows({count});
  for (int64_t i = 0; i < count; ++i) rows[i] = i % 4 == 3 ? -1 : all[static_cast<size_t>(i)];
  return rows;
}

TEST(CudaRows, GatherCopiesAndZeroesPadding) {
  for (const DType io : kIoTypes) {
    for (const auto& [count, columns] : kShapes) {
      const HostTensor<float> source = rounded_to(io, random_tensor({kSourceRows, columns}, 1));
      const HostTensor<int32_t> indices = unique_rows(count);
      const DeviceTensor source_on(gpu(), io, source);
      const DeviceTensor indices_on(gpu(), indices);
      const DeviceTensor picked(gpu(), io, garbage_tensor({count, columns}));
      gpu().ops->run(GatherRows{
          .source = source_on.view(), .indices = indices_on.view(), .picked = picked.view()});
      HostTensor<float> want({count, columns});
      for (int64_t i = 0; i < count * columns; ++i) {
        const int64_t row = indices[i / columns];
        want[i] = row < 0 ? 0.0f : source[row * columns + i % columns];
      }
      EXPECT_EQ(picked.floats().values, want.values) << name(io) << " " << count << "," << columns;
    }
  }
}

TEST(CudaRows, ScatterAddsWithOneRounding) {
  for (const DType io : kIoTypes) {
    for (const auto& [count, columns] : kShapes) {
      const HostTensor<float> rows = rounded_to(io, random_tensor({count, columns}, 1));
      const HostTensor<float> before = rounded_to(io, random_tensor({kSourceRows, columns}, 2));
      const HostTensor<int32_t> indices = unique_rows(count);
      const DeviceTensor rows_on(gpu(), io, rows);
      const DeviceTensor indices_on(gpu(), indices);
      const DeviceTensor target(gpu(), io, before);
      gpu().ops->run(ScatterAddRows{
          .rows = rows_on.view(), .indices = indices_on.view(), .target = target.view()});
      HostTensor<float> want = before;
      for (int64_t i = 0; i < count * columns; ++i) {
        const int64_t row = indices[i / columns];
        if (row >= 0) want[row * columns + i % columns] += rows[i];
      }
      EXPECT_EQ(target.floats().values, rounded_to(io, want).values)
          << name(io) << " " << count << "," << columns;
    }
  }
}

TEST(CudaRows, RowsThatBeginAnywhereAreTheSame) {
  // An odd first row of an odd width is aligned to no more than an element.
  const HostTensor<float> source = rounded_to(DType::kBF16, random_tensor({9, 15}, 1));
  const DeviceTensor source_on(gpu(), DType::kBF16, source);
  HostTensor<int32_t> indices({2});
  indices.values = {4, 0};
  const DeviceTensor indices_on(gpu(), indices);
  const DeviceTensor picked(gpu(), DType::kBF16, HostTensor<float>({3, 15}, 5.0f));
  gpu().ops->run(GatherRows{.source = source_on.view().rows(1, 8),
                            .indices = indices_on.view(),
                            .picked = picked.view().rows(1, 2)});
  const HostTensor<float> got = picked.floats();
  for (int64_t i = 0; i < 15; ++i) {
    EXPECT_EQ(got[i], 5.0f);
    EXPECT_EQ(got[15 + i], source[5 * 15 + i]);
    EXPECT_EQ(got[30 + i], source[15 + i]);
  }
}

}  // namespace
}  // namespace bertha::testing
