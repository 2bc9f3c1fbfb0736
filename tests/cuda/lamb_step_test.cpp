#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cuda/lamb_chunks.h"
#include "kernels/ops/lamb.h"
#include "tests/cuda/lamb_shard_gpu.h"

namespace bertha::testing {
namespace {

/// Tensors of more chunks than a GPU has blocks for among smaller ones; one lies in two segments,
/// around another.
Shard shard_with_large_tensors() {
  constexpr int64_t kLarge = 700 * kLambChunkElements;  // blocks of an H200: 528
  const int64_t sizes[] = {3, kLarge, 500 * kLambChunkElements + 5, 70'000, kLarge + 8, 9000, 64};
  const int64_t tensors[] = {0, 1, 2, 3, 4, 3, 5};
  Shard shard(2 * kLarge + 600 * kLambChunkElements, 7);
  int64_t begin = 2;
  for (size_t i = 0; i < std::size(sizes); ++i) {
    shard.segments.push_back(
        {.tensor = tensors[i], .begin = begin, .end = begin + sizes[i], .decay = tensors[i] != 5});
    begin += sizes[i] + 6;
  }
  return before_fifth_update(shard);
}

void expect_same_bits(const GpuShard& found, const GpuShard& want) {
  EXPECT_TRUE(found.read_weight() == want.read_weight());
  EXPECT_TRUE(found.read_model_weight() == want.read_model_weight());
  EXPECT_TRUE(found.read_m() == want.read_m());
  EXPECT_TRUE(found.read_v() == want.read_v());
  EXPECT_EQ(found.read_norms(), want.read_norms());
}

/// One update by LambStep, and by the two operations that it replaces.
void expect_bits_of_two_operations(const Shard& shard, DType io, int64_t pad) {
  SCOPED_TRACE(concat(name(io), ", ", shard.weight.size(), " elements, ", pad,
                      " past an aligned address, skip ", shard.state.skip));
  GpuShard one(shard, io, pad);
  GpuShard two(shard, io, pad);
  for (int update = 0; update < 2; ++update) {
    LambMoments moments = two.moments_args();
    moments.rules = kAdamWRules;
    gpu().ops->run(moments);
    gpu().ops->run(two.apply_args());
    gpu().ops->run(one.step_args());
    expect_same_bits(one, two);
  }
}

TEST(CudaLambStep, HasTheBitsOfItsTwoOperations) {
  for (const Shard& shard : adamw_shards()) {
    for (const DType io : kIoTypes) {
      for (const int64_t pad : {0, 1, 2}) expect_bits_of_two_operations(shard, io, pad);
    }
  }
}

TEST(CudaLambStep, HasTheirBitsInTensorsWithMoreChunksThanBlocks) {
  const Shard shard = shard_with_large_tensors();
  expect_bits_of_two_operations(shard, DType::kBF16, 0);
  expect_bits_of_two_operations(shard, DType::kF32, 1);
}

TEST(CudaLambStep, ASkippedStepOnlyCopiesTheWeightsAndClearsTheNorms) {
  for (Shard shard : adamw_shards()) {
    std::fill(shard.gradient.begin(), shard.gradient.end(),
              std::numeric_limits<float>::quiet_NaN());
    shard.state.skip = 1;
    expect_bits_of_two_operations(shard, DType::kBF16, 0);
    GpuShard on_gpu(shard, DType::kF32);
    gpu().ops->run(on_gpu.step_args());
    EXPECT_EQ(on_gpu.read_weight(), shard.weight);
    EXPECT_EQ(on_gpu.read_m(), shard.m);
    EXPECT_EQ(on_gpu.read_norms(), std::vector<double>(shard.norms.size(), 0.0));
  }
}

TEST(CudaLambStep, ARankWithoutElementsHasZeroNorms) {
  const Shard shard(0, 700);
  GpuShard on_gpu(shard, DType::kF16);
  gpu().ops->run(on_gpu.step_args());
  EXPECT_EQ(on_gpu.read_norms(), std::vector<double>(1400, 0.0));
}

}  // namespace
}  // namespace bertha::testing
