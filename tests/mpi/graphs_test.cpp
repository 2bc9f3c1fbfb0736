// A training run whose passes are CUDA graphs, beside one in which the host launches every kernel.

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "data/pipeline/synthetic_steps.h"
#include "harness/train/evaluate.h"
#include "harness/train/session.h"
#include "harness/train/step.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

constexpr int64_t kSteps = 20;
constexpr int64_t kBatches = 5;  // of as many sizes, so that each occurs four times
constexpr int64_t kEvaluateEvery = 6;

Config small_run(Precision precision) {
  Config config;
  config.model = {.name = "small",
                  .layers = 3,
                  .hidden = 256,
                  .heads = 4,
                  .feed_forward = 512,
                  .vocab_size = 1000,
                  .max_positions = 128};
  config.data.max_seq_tokens = 128;
  config.data.max_masked_per_seq = 20;
  config.train.global_batch_seqs = int64_t{16} * testing::world().size();
  config.train.accumulation_steps = 2;
  config.train.max_steps = kSteps;
  config.train.precision = precision;
  if (precision == Precision::kFp16) config.optimizer.loss_scale = LossScaling::kDynamic;
  config.optimizer.base_learning_rate = 1e-3;
  config.optimizer.bucket_mib = 0.5;  // several, so that passes have several pieces
  config.eval.batch_seqs = 8;
  return config;
}

/// All bits that a run leaves behind, and the loss of every step.
struct Outcome {
  std::vector<float> weights;
  std::vector<uint64_t> losses;
  size_t graphs = 0;
};

Outcome trained(Config config, CudaGraphs graphs) {
  config.cuda.graphs = graphs;
  World& world = testing::world();
  Session session(config, world);
  session.initialize_weights();
  SyntheticSteps steps{.max_seq_tokens = config.data.max_seq_tokens,
                       .max_masked_per_seq = config.data.max_masked_per_seq,
                       .vocab_size = config.model.vocab_size,
                       .global_batch_seqs = config.train.global_batch_seqs,
                       .micro_batches_per_step = config.train.accumulation_steps,
                       .seed = 3,
                       .num_ranks = world.size()};
  steps.lengths.assign(static_cast<size_t>(config.data.max_seq_tokens + 1), 1);
  for (size_t t = 0; t < 4; ++t) steps.lengths[t] = 0;
  std::vector<StepBatch> batches;
  for (int64_t i = 0; i < kBatches; ++i) {
    const SyntheticPlan plan = plan_synthetic_step(steps, i);
    batches.push_back(make_synthetic_batch(steps, plan, world.rank(), session.batch_memory));
  }
  PhaseTimers timers(session.backend->device(), session.backend->stream());
  const StepSettings settings = step_settings(config, world, 1);
  Outcome out;
  for (int64_t step = 0; step < kSteps; ++step) {
    StepBatch& batch = batches[static_cast<size_t>(step % kBatches)];
    batch.step = step;
    train_step(
        batch, settings,
        {.model = session.model.get(), .optimizer = session.optimizer.get(), .timers = &timers});
    LossStats stats;
    session.backend->device().copy(session.backend->stream(), &stats, session.model->stats().data,
                                   sizeof(stats));
    session.backend->stream().wait_on_host();
    out.losses.push_back(std::bit_cast<uint64_t>(stats.mlm_loss_sum));
    out.losses.push_back(std::bit_cast<uint64_t>(stats.nsp_loss_sum));
    if (step % kEvaluateEvery == kEvaluateEvery - 1) {
      const EvalResult result = evaluate(*session.model, batches.front().micro_batches,
                                         session.parts(), session.backend->collectives());
      out.losses.push_back(std::bit_cast<uint64_t>(result.mlm_loss));
    }
  }
  const View master = session.optimizer->master();
  out.weights.resize(static_cast<size_t>(master.elements()));
  session.backend->device().copy(session.backend->stream(), out.weights.data(), master.data,
                                 master.bytes());
  session.backend->stream().wait_on_host();
  out.graphs = session.model->recorded_graphs();
  return out;
}

class Graphs : public ::testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    const Session session(small_run(Precision::kBf16), testing::world());
    if (!runs_sm90a_kernels(session.backend->device())) GTEST_SKIP() << "portable kernels run here";
  }
};

void expect_same_bits(const Config& config) {
  const Outcome one_by_one = trained(config, CudaGraphs::kOff);
  const Outcome as_graphs = trained(config, CudaGraphs::kAuto);
  EXPECT_EQ(one_by_one.graphs, 0u);
  // Sizes of some batches coincide. Of each there are forward, and backward that writes or adds.
  EXPECT_GE(as_graphs.graphs, 2u * kBatches);
  EXPECT_EQ(as_graphs.losses, one_by_one.losses);
  EXPECT_EQ(as_graphs.weights, one_by_one.weights);
}

TEST_P(Graphs, GiveTheBitsOfKernelsLaunchedOneByOne) { expect_same_bits(small_run(GetParam())); }

/// Copied heads of 20 and 100; heads of 80, which no persistent kernel has.
TEST_P(Graphs, GiveTheSameBitsWithHeadsOfAnySize) {
  if (GetParam() == Precision::kFp8) GTEST_SKIP() << "the same attention as bf16";
  for (const int64_t heads : {16, 4, 5}) {
    Config config = small_run(GetParam());
    config.model.heads = heads;
    config.model.hidden = heads == 16 ? 320 : 400;
    expect_same_bits(config);
  }
}

INSTANTIATE_TEST_SUITE_P(Precision, Graphs,
                         ::testing::Values(Precision::kBf16, Precision::kFp16, Precision::kFp8));

TEST(GraphsAreOff, WhereAttentionIsLaunchedByLengths) {
  Config config = small_run(Precision::kBf16);
  config.cuda.attention = CudaOptions::AttentionVariant::kGrouped;
  EXPECT_EQ(trained(config, CudaGraphs::kAuto).graphs, 0u);
}

TEST(GraphsAreOff, WherePortableKernelsRun) {
  Config config = small_run(Precision::kBf16);
  config.cuda.kernels = CudaKernels::kPortable;
  EXPECT_EQ(trained(config, CudaGraphs::kAuto).graphs, 0u);
}

}  // namespace
}  // namespace bertha
