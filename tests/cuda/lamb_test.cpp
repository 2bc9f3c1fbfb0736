#include "kernels/ops/lamb.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/reductions.h"
#include "tests/cuda/lamb_shard_gpu.h"

namespace bertha::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

enum class Clip { kAfter, kBefore };

/// One update by the operations of a backend, on a shard of its memory.
template <class AnyShard>
void run_step(Ops& ops, AnyShard& shard, const View& clip_factor, Clip clip) {
  const View gradient = shard.gradient_view();
  constexpr double kMaxNorm = 3.0;
  LambPrepare prepare = shard.prepare_args();
  prepare.rules.schedule = {.base = 0.02, .warmup_steps = 2, .total_steps = 9};
  prepare.rules.loss_scale = {.dynamic = true, .growth_interval_steps = 2};
  prepare.rules.beta_1 = 0.8;
  prepare.rules.beta_2 = 0.97;
  prepare.rules.max_gradient_norm = clip == Clip::kAfter ? kMaxNorm : 0.0;
  prepare.rules.spikes = SpikeRule::kSkip;
  LambMoments moments = shard.moments_args();
  moments.rules.beta_1 = 0.8;
  moments.rules.beta_2 = 0.97;
  moments.rules.epsilon = 1e-3;
  moments.rules.weight_decay = 0.05;
  if (clip == Clip::kBefore) {
    ops.run(SumOfSquares{.values = gradient, .result = prepare.gradient_sum_of_squares});
    ops.run(ClipFactor{.gradient_sum_of_squares = prepare.gradient_sum_of_squares,
                       .state = prepare.state,
                       .factor = clip_factor,
                       .max_gradient_norm = kMaxNorm});
    ops.run(ClipLocal{.gradient = gradient, .factor = clip_factor});
  }
  ops.run(SumOfSquares{.values = gradient, .result = prepare.gradient_sum_of_squares});
  ops.run(prepare);
  ops.run(moments);
  ops.run(shard.apply_args());
}

void step_cpu(Shard& shard, Clip clip) {
  float factor = 0.0f;
  run_step(*cpu().ops, shard, View(&factor, DType::kF32, {1}), clip);
}

void step_gpu(GpuShard& on_gpu, const std::vector<float>& gradient, Clip clip) {
  on_gpu.set_gradient(gradient);
  const DeviceTensor factor(gpu(), DType::kF32, HostTensor<float>({1}));
  run_step(*gpu().ops, on_gpu, factor.view(), clip);
}

/// 5 between the segments, so that a stray write shows.
Shard marked_shard() {
  Shard shard = ragged_shard();
  for (auto* values : {&shard.m, &shard.v, &shard.update, &shard.model_weight}) {
    std::vector<float> marked(values->size(), 5.0f);
    for (const LambSegment& segment : shard.segments) {
      std::fill(marked.begin() + segment.begin, marked.begin() + segment.end, 0.0f);
    }
    *values = marked;
  }
  shard.state.loss_scale = 8.0f;
  return shard;
}

std::vector<float> gradient_of(DType io, uint32_t seed, float deviation) {
  HostTensor<float> values({40'000});
  fill_random(values.values, seed, deviation);
  return rounded_to(io, values).values;
}

/// Counters and the loss scale exactly, the rest to f32.
void expect_same_state(const LambState& found, const LambState& want) {
  EXPECT_EQ(found.successful_steps, want.successful_steps);
  EXPECT_EQ(found.skipped_steps, want.skipped_steps);
  EXPECT_EQ(found.skips_in_a_row, want.skips_in_a_row);
  EXPECT_EQ(found.steps_since_growth, want.steps_since_growth);
  EXPECT_EQ(found.loss_scale, want.loss_scale);
  EXPECT_EQ(found.skip, want.skip);
  EXPECT_EQ(found.spikes, want.spikes);
  EXPECT_EQ(found.norms_seen, want.norms_seen);
  EXPECT_FLOAT_EQ(found.usual_log_norm, want.usual_log_norm);
  EXPECT_FLOAT_EQ(found.learning_rate, want.learning_rate);
  EXPECT_FLOAT_EQ(found.gradient_norm, want.gradient_norm);
  EXPECT_FLOAT_EQ(found.gradient_multiplier, want.gradient_multiplier);
  EXPECT_FLOAT_EQ(found.bias_correction_1, want.bias_correction_1);
  EXPECT_FLOAT_EQ(found.bias_correction_2, want.bias_correction_2);
}

void expect_same_shard(const GpuShard& on_gpu, const Shard& want) {
  expect_near(on_gpu.read_m(), want.m, "m");
  expect_near(on_gpu.read_v(), want.v, "v");
  expect_near(on_gpu.read_update(), want.update, "u");
  expect_near(on_gpu.read_weight(), want.weight, "w");
  const std::vector<double> norms = on_gpu.read_norms();
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_NEAR(norms[i], want.norms[i], tolerance::kLambDevice * want.norms[i]) << i;
  }
  expect_same_state(on_gpu.read_state(), want.state);
}

/// The model's weights are the masters, rounded once, and untouched between the segments.
void expect_rounded_copy(const GpuShard& on_gpu) {
  const std::vector<float> model = on_gpu.read_model_weight();
  HostTensor<float> masters({static_cast<int64_t>(model.size())}, 5.0f);
  const std::vector<float> weight = on_gpu.read_weight();
  for (const LambSegment& segment : on_gpu.segments) {
    std::copy(weight.begin() + segment.begin, weight.begin() + segment.end,
              masters.values.begin() + segment.begin);
  }
  EXPECT_EQ(model, rounded_to(on_gpu.io, masters).values);
}

TEST(CudaLamb, SixStepsOfRaggedSegmentsEqualTheCpu) {
  for (const DType io : kIoTypes) {
    for (const int64_t pad : {0, 1, 2}) {
      SCOPED_TRACE(concat(name(io), ", ", pad, " elements past an aligned address"));
      Shard shard = marked_shard();
      GpuShard on_gpu(shard, io, pad);
      for (uint32_t step = 1; step <= 6; ++step) {
        shard.gradient = gradient_of(io, 100 + step, step == 3 ? 0.01f : 2.0f);
        step_gpu(on_gpu, shard.gradient, Clip::kAfter);
        step_cpu(shard, Clip::kAfter);
        expect_same_shard(on_gpu, shard);
        expect_rounded_copy(on_gpu);
      }
    }
  }
}

TEST(CudaLamb, ClippingBeforeTheReductionEqualsTheCpu) {
  Shard shard = marked_shard();
  GpuShard on_gpu(shard, DType::kF32);
  for (uint32_t step = 1; step <= 4; ++step) {
    shard.gradient = gradient_of(DType::kF32, 200 + step, step == 2 ? 0.01f : 2.0f);
    step_gpu(on_gpu, shard.gradient, Clip::kBefore);
    step_cpu(shard, Clip::kBefore);
    expect_near(on_gpu.read_gradient(), shard.gradient, "gradient");
    expect_same_shard(on_gpu, shard);
  }
}

TEST(CudaLamb, AGradientThatIsNotFiniteChangesOnlyTheStateAndTheNorms) {
  for (const DType io : kIoTypes) {
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      Shard shard = marked_shard();
      GpuShard on_gpu(shard, io);
      shard.gradient = gradient_of(io, 6, 1.0f);
      step_gpu(on_gpu, shard.gradient, Clip::kAfter);
      step_cpu(shard, Clip::kAfter);
      const std::vector<float> w = on_gpu.read_weight();
      const std::vector<float> m = on_gpu.read_m();
      const std::vector<float> v = on_gpu.read_v();
      const std::vector<float> u = on_gpu.read_update();
      shard.gradient[777] = bad;
      step_gpu(on_gpu, shard.gradient, Clip::kAfter);
      step_cpu(shard, Clip::kAfter);
      EXPECT_EQ(on_gpu.read_weight(), w);
      EXPECT_EQ(on_gpu.read_m(), m);
      EXPECT_EQ(on_gpu.read_v(), v);
      EXPECT_EQ(on_gpu.read_update(), u);
      EXPECT_EQ(on_gpu.read_norms(), std::vector<double>(14, 0.0));
      EXPECT_EQ(on_gpu.read_state().skip, 1);
      EXPECT_EQ(on_gpu.read_state().loss_scale, 4.0f);
      EXPECT_EQ(on_gpu.read_state().learning_rate, shard.state.learning_rate);
      EXPECT_EQ(on_gpu.read_state().skipped_steps, 1);
      expect_rounded_copy(on_gpu);
    }
  }
}

TEST(CudaLamb, TheModelCopyFollowsTheMastersOfASkippedStep) {
  Shard shard = marked_shard();
  shard.state.skip = 1;
  GpuShard on_gpu(shard, DType::kBF16);
  gpu().ops->run(on_gpu.apply_args());
  EXPECT_EQ(on_gpu.read_weight(), shard.weight);
  expect_rounded_copy(on_gpu);
}

TEST(CudaLamb, TheLossScaleGrowsAndBacksOffAsOnTheCpu) {
  Shard shard = marked_shard();
  GpuShard on_gpu(shard, DType::kF32);
  const std::vector<float> good = gradient_of(DType::kF32, 7, 1.0f);
  std::vector<float> bad = good;
  bad[5] = kInfinity;
  std::vector<float> scales;
  for (const bool is_good : {true, true, true, false, true, true, false, false, true, true}) {
    shard.gradient = is_good ? good : bad;
    step_gpu(on_gpu, shard.gradient, Clip::kAfter);
    step_cpu(shard, Clip::kAfter);
    const LambState state = on_gpu.read_state();
    EXPECT_EQ(state.loss_scale, shard.state.loss_scale);
    EXPECT_EQ(state.steps_since_growth, shard.state.steps_since_growth);
    EXPECT_EQ(state.skips_in_a_row, shard.state.skips_in_a_row);
    EXPECT_EQ(state.successful_steps, shard.state.successful_steps);
    scales.push_back(state.loss_scale);
  }
  EXPECT_EQ(scales, (std::vector<float>{8, 16, 16, 8, 8, 16, 8, 4, 4, 8}));
}

TEST(CudaLamb, SkipsTheSpikesThatTheCpuSkips) {
  Shard shard = marked_shard();
  GpuShard on_gpu(shard, DType::kF32);
  const std::vector<float> usual = gradient_of(DType::kF32, 8, 1.0f);
  const std::vector<float> high = gradient_of(DType::kF32, 9, 20.0f);
  constexpr int kSteps = 40, kSpikeStep = 36;
  for (int step = 0; step < kSteps; ++step) {
    // The loss scale grows meanwhile; gradients arrive multiplied by it.
    shard.gradient = step == kSpikeStep ? high : usual;
    for (float& value : shard.gradient) value *= shard.state.loss_scale;
    step_gpu(on_gpu, shard.gradient, Clip::kAfter);
    step_cpu(shard, Clip::kAfter);
    EXPECT_EQ(on_gpu.read_state().skip, step == kSpikeStep ? 1 : 0) << step;
  }
  EXPECT_EQ(shard.state.spikes, 1);
  expect_same_state(on_gpu.read_state(), shard.state);
}

TEST(CudaLamb, HasTheSameBitsAtEveryRun) {
  const auto run = [](std::vector<double>& norms) {
    Shard shard(1'000'000, 3);
    shard.segments = {{.tensor = 2, .begin = 5, .end = 700'001},
                      {.tensor = 0, .begin = 700'001, .end = 700'100},
                      {.tensor = 1, .begin = 700'100, .end = 1'000'000, .decay = false}};
    fill_random(shard.weight, 1, 0.5f);
    GpuShard on_gpu(shard, DType::kBF16);
    for (uint32_t step = 1; step <= 3; ++step) {
      fill_random(shard.gradient, step, 1.0f);
      step_gpu(on_gpu, shard.gradient, Clip::kAfter);
    }
    norms = on_gpu.read_norms();
    return on_gpu.read_weight();
  };
  std::vector<double> first_norms;
  const std::vector<float> first = run(first_norms);
  for (int i = 0; i < 3; ++i) {
    std::vector<double> norms;
    EXPECT_EQ(run(norms), first);
    EXPECT_EQ(norms, first_norms);
  }
}

}  // namespace
}  // namespace bertha::testing
