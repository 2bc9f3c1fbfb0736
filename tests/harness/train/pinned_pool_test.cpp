#include "harness/train/pinned_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "data/pipeline/synthetic_steps.h"
#include "harness/comm/solo_collectives.h"
#include "tests/harness/train/training_rig.h"
#include "tests/support/recording_device.h"

namespace bertha::testing {
namespace {

class CountingDevice final : public RecordingDevice {
 public:
  using RecordingDevice::RecordingDevice;

  Buffer allocate_pinned(int64_t bytes) override {
    ++allocated;
    const auto block = std::make_shared<Buffer>(RecordingDevice::allocate_pinned(bytes));
    return {block->data(), bytes, [this, block](void*) { ++freed; }};
  }

  std::atomic<int64_t> allocated{0};
  std::atomic<int64_t> freed{0};
};

class PinnedPoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> cpu_ = make_cpu_device(1);
  CountingDevice device_{*cpu_};
};

TEST_F(PinnedPoolTest, HandsOutABlockAgainThatIsFreeAndLargeEnough) {
  const HostAllocator allocate = make_pinned_pool(device_);
  std::shared_ptr<void> first = allocate(1000);
  const std::shared_ptr<void> second = allocate(1000);
  EXPECT_NE(first, second);
  const void* const address = first.get();
  first.reset();
  EXPECT_EQ(allocate(1024).get(), address);  // a power of two
  const std::shared_ptr<void> third = allocate(10);
  EXPECT_EQ(third.get(), address);
  EXPECT_EQ(device_.allocated, 2);
  const std::shared_ptr<void> larger = allocate(1025);
  EXPECT_EQ(device_.allocated, 3);
  EXPECT_EQ(device_.freed, 0);
}

TEST_F(PinnedPoolTest, BlocksMayOutliveIt) {
  HostAllocator allocate = make_pinned_pool(device_);
  std::shared_ptr<void> block = allocate(64);
  allocate(4096);
  allocate = nullptr;
  EXPECT_EQ(device_.freed, 0);
  block.reset();
  EXPECT_EQ(device_.freed, 2);
}

// Batches as training takes them: made ahead on a thread, uploaded, kept until they are copied.
TEST_F(PinnedPoolTest, TrainingNeitherAllocatesNorFreesStepByStep) {
  constexpr int64_t kSteps = 40;
  constexpr int64_t kMicroBatches = 2;
  // Two steps wait or are being made and one is trained on; a block may still be copied from.
  constexpr int64_t kMaxBlocks = 3 * kMicroBatches + 1;
  ModelConfig config = rig_model();
  config.vocab_size = 200;
  const std::unique_ptr<Collectives> alone = make_solo_collectives(*cpu_);
  TrainingRig rig(*cpu_, *alone, config);
  ModelParts parts = rig.parts();
  parts.device = &device_;
  Bert model(config, rig.table, {.tokens = 128, .seqs = 16, .masked = 64}, parts);
  model.bind(rig.optimizer.weights(), rig.optimizer.gradients());
  const auto pipeline = make_synthetic_pipeline({.max_seq_tokens = 16,
                                                 .max_masked_per_seq = 2,
                                                 .vocab_size = 200,
                                                 .global_batch_seqs = 8,
                                                 .micro_batches_per_step = kMicroBatches},
                                                {.num_steps = kSteps, .prefetch_steps = 2},
                                                make_pinned_pool(device_));
  while (const std::optional<StepBatch> batch = pipeline->next()) {
    train_step(*batch, {}, {.model = &model, .optimizer = &rig.optimizer, .timers = &rig.timers});
  }
  EXPECT_LE(device_.allocated, kMaxBlocks);
  EXPECT_EQ(device_.freed, 0);
}

}  // namespace
}  // namespace bertha::testing
