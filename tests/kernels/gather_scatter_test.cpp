#include "kernels/ops/gather_scatter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/base/cpu/operations.h"
#include "kernels/base/tests/host_tensor.h"
#include "kernels/base/tests/run_on_cpu.h"

namespace bertha {
namespace {

/// Unique rows of [0, limit) in random order, every fifth replaced by -1.
HostTensor<int32_t> unique_indices(int64_t count, int64_t limit) {
  std::vector<int32_t> all(static_cast<size_t>(limit));
  std::iota(all.begin(), all.end(), 0);
  std::mt19937 engine(5);
  std::shuffle(all.begin(), all.end(), engine);
  HostTensor<int32_t> indices({count});
  for (int64_t i = 0; i < count; ++i) {
    indices[i] = i % 5 == 4 ? -1 : all[static_cast<size_t>(i)];
  }
  return indices;
}

constexpr int64_t kColumns = 19;

TEST(Rows, GatherCopiesTheNamedRowsAndZeroesPadding) {
  for (const int64_t count : {0, 1, 7, 33, 511}) {
    HostTensor<float> source = random_tensor({600, kColumns}, 1);
    HostTensor<int32_t> indices = unique_indices(count, 600);
    HostTensor<float> picked = garbage_tensor({count, kColumns});
    run_on_cpu(
        GatherRows{.source = source.view(), .indices = indices.view(), .picked = picked.view()}, 2);
    for (int64_t i = 0; i < picked.elements(); ++i) {
      const int64_t index = indices[i / kColumns];
      const float want = index < 0 ? 0.0f : source[index * kColumns + i % kColumns];
      ASSERT_EQ(picked[i], want) << "row " << i / kColumns << " of " << count;
    }
  }
}

TEST(Rows, ScatterAddsToTheNamedRowsOnly) {
  for (const int64_t count : {0, 1, 7, 33, 511}) {
    HostTensor<float> rows = random_tensor({count, kColumns}, 1);
    HostTensor<int32_t> indices = unique_indices(count, 600);
    HostTensor<float> target = random_tensor({600, kColumns}, 2);
    HostTensor<float> want = target;
    for (int64_t i = 0; i < rows.elements(); ++i) {
      const int64_t index = indices[i / kColumns];
      if (index >= 0) want[index * kColumns + i % kColumns] += rows[i];
    }
    run_on_cpu(
        ScatterAddRows{.rows = rows.view(), .indices = indices.view(), .target = target.view()}, 2);
    EXPECT_EQ(target.values, want.values) << count << " rows";
  }
}

TEST(Rows, RefuseAnIndexBeyondTheRows) {
  HostTensor<float> source = random_tensor({7, 4}, 1);
  HostTensor<float> picked = garbage_tensor({2, 4});
  HostTensor<int32_t> indices({2}, 6);
  WorkerPool pool(1);
  for (const int32_t wrong : {7, -2}) {
    indices[1] = wrong;
    EXPECT_THROW(run_cpu(pool, GatherRows{source.view(), indices.view(), picked.view()}), Error);
    EXPECT_THROW(run_cpu(pool, ScatterAddRows{picked.view(), indices.view(), source.view()}),
                 Error);
  }
}

}  // namespace
}  // namespace bertha
