#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "data/pipeline/pipeline.h"
#include "tests/data/example_data.h"
#include "tests/support/thread_world.h"

namespace bertha {
namespace {

constexpr SampleLimits kLimits{.max_seq_tokens = 64, .max_masked_per_seq = 10, .vocab_size = 500};

/// Another transport, whose `sum` number kHeld returns only when it may.
class HeldTransport final : public Transport {
 public:
  struct Outside {
    std::promise<void> is_inside;
    std::shared_future<void> may_return;
    std::atomic<bool> is_gone = false;
  };
  static constexpr int kHeld = 2;

  HeldTransport(Transport& inner, Outside& outside) : inner_(inner), outside_(outside) {}
  ~HeldTransport() override { outside_.is_gone = true; }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::vector<int64_t> all_gather(std::span<const int64_t> mine) override {
    return inner_.all_gather(mine);
  }
  std::vector<int64_t> sum(std::span<const int64_t> mine) override {
    std::vector<int64_t> sums = inner_.sum(mine);
    if (++sums_ == kHeld) {
      outside_.is_inside.set_value();
      outside_.may_return.wait();
    }
    return sums;
  }
  std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) override {
    return inner_.all_gather_bytes(mine);
  }
  std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::byte>> outgoing, std::span<const int64_t> bytes) override {
    return inner_.all_to_all_bytes(outgoing, bytes);
  }

 private:
  Transport& inner_;
  Outside& outside_;
  int sums_ = 0;
};

TEST(AbandonedPipeline, ThreadThatIsLeftBehindInACallKeepsTheTransport) {
  const TempFolder folder;
  const std::string shard = folder.path("part_0.hdf5");
  write_shard(shard, ShardLayout::kVariableLength, example_samples(40, 1, kLimits), kLimits);
  const PipelineOptions options{
      .shards = {shard}, .limits = kLimits, .global_batch_seqs = 4, .num_steps = {}};
  ThreadWorld world(2);
  std::promise<void> may_return;
  HeldTransport::Outside outside;
  outside.may_return = may_return.get_future().share();
  std::thread other([&] {
    const auto pipeline =
        make_training_pipeline(options, borrowed(world.transport(0)), plain_host_allocator());
    outside.may_return.wait();
    world.abort();
  });
  try {
    const auto pipeline = make_training_pipeline(
        options, std::make_shared<HeldTransport>(world.transport(1), outside),
        plain_host_allocator());
    outside.is_inside.get_future().wait();
    fail(ExitCode::kNumeric, "not a number");
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::kNumeric);
  }
  EXPECT_FALSE(outside.is_gone);
  may_return.set_value();
  other.join();
  while (!outside.is_gone) std::this_thread::yield();  // it ends by itself once it may
}

}  // namespace
}  // namespace bertha
