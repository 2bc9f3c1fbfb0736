#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/ops/lamb.h"
#include "tests/cuda/lamb_shard_gpu.h"

namespace bertha::testing {
namespace {

constexpr int64_t kPads[] = {0, 1, 2};  // elements past an aligned address

std::string trace(const Shard& shard, DType io, int64_t pad) {
  return concat(name(io), ", ", shard.weight.size(), " elements, ", pad,
                " elements past an aligned address");
}

/// The masters, rounded once; 5 between the segments, as before the update.
std::vector<float> rounded_masters(const GpuShard& on_gpu) {
  const std::vector<float> weight = on_gpu.read_weight();
  HostTensor<float> masters({on_gpu.elements}, 5.0f);
  for (const LambSegment& segment : on_gpu.segments) {
    std::copy(weight.begin() + segment.begin, weight.begin() + segment.end,
              masters.values.begin() + segment.begin);
  }
  return rounded_to(on_gpu.io, masters).values;
}

TEST(CudaAdamW, EqualsTheCpu) {
  for (Shard shard : adamw_shards()) {
    const Shard start = shard;
    for (const DType io : kIoTypes) {
      for (const int64_t pad : kPads) {
        SCOPED_TRACE(trace(shard, io, pad));
        shard = start;
        shard.gradient = rounded_to(io, tensor_of(start.gradient)).values;
        GpuShard on_gpu(shard, io, pad);
        gpu().ops->run(on_gpu.adamw_args());
        cpu().ops->run(shard.adamw_args());
        expect_near(on_gpu.read_m(), shard.m, "m");
        expect_near(on_gpu.read_v(), shard.v, "v");
        expect_near(on_gpu.read_weight(), shard.weight, "w");
        EXPECT_EQ(on_gpu.read_model_weight(), rounded_masters(on_gpu));
      }
    }
  }
}

TEST(CudaAdamW, HasTheBitsOfLambsTwoOperationsWithARatioOf1) {
  for (const Shard& shard : adamw_shards()) {
    const std::vector<LambSegment> segments = without_decay(shard.segments);
    for (const DType io : kIoTypes) {
      for (const int64_t pad : kPads) {
        SCOPED_TRACE(trace(shard, io, pad));
        GpuShard one_pass(shard, io, pad);
        GpuShard two_passes(shard, io, pad);
        LambMoments moments = two_passes.moments_args();
        moments.rules = kAdamWRules;
        LambApply apply = two_passes.apply_args();
        apply.segments = segments;
        gpu().ops->run(one_pass.adamw_args());
        gpu().ops->run(moments);
        gpu().ops->run(apply);
        EXPECT_EQ(one_pass.read_weight(), two_passes.read_weight());
        EXPECT_EQ(one_pass.read_m(), two_passes.read_m());
        EXPECT_EQ(one_pass.read_v(), two_passes.read_v());
        EXPECT_EQ(one_pass.read_model_weight(), two_passes.read_model_weight());
      }
    }
  }
}

TEST(CudaAdamW, ASkippedStepOnlyCopiesTheWeights) {
  for (Shard shard : adamw_shards()) {
    std::fill(shard.gradient.begin(), shard.gradient.end(),
              std::numeric_limits<float>::quiet_NaN());
    shard.state.skip = 1;
    for (const DType io : kIoTypes) {
      for (const int64_t pad : kPads) {
        SCOPED_TRACE(trace(shard, io, pad));
        GpuShard on_gpu(shard, io, pad);
        gpu().ops->run(on_gpu.adamw_args());
        EXPECT_EQ(on_gpu.read_weight(), shard.weight);
        EXPECT_EQ(on_gpu.read_m(), shard.m);
        EXPECT_EQ(on_gpu.read_v(), shard.v);
        EXPECT_EQ(on_gpu.read_model_weight(), rounded_masters(on_gpu));
      }
    }
  }
}

}  // namespace
}  // namespace bertha::testing
