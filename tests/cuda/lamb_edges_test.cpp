#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/base/tests/tolerance.h"
#include "kernels/cuda/lamb_chunks.h"
#include "tests/cuda/lamb_shard_gpu.h"

namespace bertha::testing {
namespace {

TEST(CudaLamb, ChunksTileTheSegmentsInTensorOrder) {
  const std::vector<LambSegment> segments{{.tensor = 3, .begin = 7, .end = 20'000},
                                          {.tensor = 1, .begin = 20'000, .end = 20'000},
                                          {.tensor = 1, .begin = 20'001, .end = 20'002},
                                          {.tensor = 3, .begin = 24'576, .end = 32'768}};
  std::vector<std::vector<int64_t>> found;
  for (const LambChunk& chunk : make_lamb_chunks(segments)) {
    found.push_back({chunk.tensor, chunk.begin, chunk.begin + chunk.elements});
  }
  EXPECT_EQ(found, (std::vector<std::vector<int64_t>>{{1, 20'001, 20'002},
                                                      {3, 7, 8192},
                                                      {3, 8192, 16'384},
                                                      {3, 16'384, 20'000},
                                                      {3, 24'576, 32'768}}));
}

TEST(CudaLamb, NormsAreOverwrittenAndZeroForTensorsWithoutASegment) {
  Shard shard(10, 3);
  shard.segments = {{.tensor = 2, .begin = 1, .end = 4}};
  shard.weight = {9, 1, 2, 2, 9, 9, 9, 9, 9, 9};
  shard.state.gradient_multiplier = 0.0f;
  GpuShard on_gpu(shard, DType::kF32);
  LambMoments moments = on_gpu.moments_args();
  moments.rules.weight_decay = 0.5;
  for (int i = 0; i < 2; ++i) {
    gpu().ops->run(moments);
    EXPECT_EQ(on_gpu.read_norms(), (std::vector<double>{0, 0, 0, 0, 9.0, 2.25}));
  }
}

TEST(CudaLamb, ARankWithoutElementsContributesZeroNorms) {
  const Shard shard(0, 700);
  GpuShard on_gpu(shard, DType::kF16);
  gpu().ops->run(on_gpu.moments_args());
  gpu().ops->run(on_gpu.apply_args());
  EXPECT_EQ(on_gpu.read_norms(), std::vector<double>(1400, 0.0));
}

TEST(CudaLamb, SegmentsOfOneTensorNeedNotBeNeighbours) {
  Shard shard(60'000, 2);
  shard.segments = {{.tensor = 1, .begin = 0, .end = 20'000},
                    {.tensor = 0, .begin = 20'000, .end = 40'000},
                    {.tensor = 1, .begin = 40'000, .end = 60'000}};
  std::fill(shard.weight.begin(), shard.weight.end(), 1.0f);
  std::fill(shard.weight.begin() + 20'000, shard.weight.begin() + 40'000, 2.0f);
  shard.state.gradient_multiplier = 0.0f;
  GpuShard on_gpu(shard, DType::kBF16);
  LambMoments moments = on_gpu.moments_args();
  moments.rules.weight_decay = 1.0;
  gpu().ops->run(moments);
  EXPECT_EQ(on_gpu.read_norms(), (std::vector<double>{80'000, 80'000, 40'000, 40'000}));
}

TEST(CudaLamb, TheTrustRatioNeedsDecayAndBothNorms) {
  for (const TrustRatioCase& c : kTrustRatioCases) {
    Shard shard = trust_ratio_shard(c);
    GpuShard on_gpu(shard, DType::kF32);
    gpu().ops->run(on_gpu.apply_args());
    EXPECT_FLOAT_EQ(on_gpu.read_weight()[0], 10.0f - 0.5f * c.ratio);
    EXPECT_EQ(on_gpu.read_model_weight(), on_gpu.read_weight());
  }
}

/// Clips a gradient by the operations of a backend.
void clip(Ops& ops, const View& gradient, const View& sum, const View& state, const View& factor,
          double limit) {
  ops.run(ClipFactor{.gradient_sum_of_squares = sum,
                     .state = state,
                     .factor = factor,
                     .max_gradient_norm = limit});
  ops.run(ClipLocal{.gradient = gradient, .factor = factor});
}

TEST(CudaClipLocal, RoundsOnceAndStartsAtAnyElement) {
  for (const DType io : kIoTypes) {
    for (const int64_t count : {0, 1, 7, 33, 511, 100'003}) {
      for (const int64_t pad : {0, 1, 3}) {
        for (const double limit : {1.0, 100.0, 0.0}) {
          Shard shard(count, 1);
          HostTensor<float> gradient({count});
          fill_random(gradient.values, 9, 3.0f);
          shard.gradient = rounded_to(io, gradient).values;
          shard.sum = 2500.0;
          shard.state.loss_scale = 10.0f;  // the norm is 5
          GpuShard on_gpu(shard, io, pad);
          const DeviceTensor factor(gpu(), DType::kF32, HostTensor<float>({1}));
          clip(*gpu().ops, on_gpu.gradient_view(), on_gpu.sum_view(), on_gpu.state_view(),
               factor.view(), limit);
          float on_cpu = 0.0f;
          clip(*cpu().ops, Shard::of(shard.gradient), shard.sum_view(), shard.state_view(),
               View(&on_cpu, DType::kF32, {1}), limit);
          EXPECT_EQ(factor.floats()[0], on_cpu);
          EXPECT_EQ(on_gpu.read_gradient(), rounded_to(io, tensor_of(shard.gradient)).values)
              << name(io) << " " << count << " " << pad << " " << limit;
        }
      }
    }
  }
}

TEST(CudaClipLocal, LeavesAGradientThatIsNotFiniteAsItIs) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Shard shard(2, 1);
  shard.gradient = {kInf, 40.0f};
  shard.sum = std::numeric_limits<double>::infinity();
  GpuShard on_gpu(shard, DType::kF32);
  const DeviceTensor factor(gpu(), DType::kF32, HostTensor<float>({1}));
  clip(*gpu().ops, on_gpu.gradient_view(), on_gpu.sum_view(), on_gpu.state_view(), factor.view(),
       1.0);
  EXPECT_EQ(factor.floats()[0], 1.0f);
  EXPECT_EQ(on_gpu.read_gradient(), (std::vector<float>{kInf, 40.0f}));
}

}  // namespace
}  // namespace bertha::testing
