#include "harness/train/timed_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "kernels/ops/elementwise.h"
#include "tests/harness/train/training_rig.h"
#include "tests/support/recording_device.h"

namespace bertha::testing {
namespace {

/// Weights after a step of the rig, and what its operations took when they are timed.
struct TimedStep {
  std::vector<float> weights;
  std::map<std::string, OperationTime> times;
  double elapsed_ms = 0;
};

enum class Timing : uint8_t { kOff, kOn };

TimedStep step_of_rig(Timing timing) {
  TimedStep result;
  run_ranks(1, [&](Device& device, Collectives& collectives) {
    const ModelConfig config = rig_model(0.1);
    TrainingRig rig(device, collectives, config);
    const std::unique_ptr<Event> begin = device.make_event();
    const std::unique_ptr<Event> end = device.make_event();
    TimedOps timed(*rig.ops, device, *rig.stream);
    Ops& ops = timing == Timing::kOn ? static_cast<Ops&>(timed) : *rig.ops;
    ModelParts parts = rig.parts();
    parts.ops = &ops;
    Bert model(config, rig.table, {.tokens = 128, .seqs = 16, .masked = 64}, parts);
    model.bind(rig.optimizer.weights(), rig.optimizer.gradients());
    const StepBatch batch = rig_step({rig_sequences(6)}, 6, num_masked(rig_sequences(6)));
    rig.stream->record(*begin);
    train_step(batch, {.dropout_seed = 9},
               {.model = &model, .optimizer = &rig.optimizer, .timers = &rig.timers});
    rig.stream->record(*end);
    result.weights = rig.weights();
    result.elapsed_ms = end->ms_since(*begin);
    for (OperationTime& time : timed.take_totals()) result.times[time.name] = time;
    EXPECT_TRUE(timed.take_totals().empty());
  });
  return result;
}

TEST(TimedOps, ChangeNoResult) {
  EXPECT_EQ(step_of_rig(Timing::kOn).weights, step_of_rig(Timing::kOff).weights);
}

TEST(TimedOps, CountEveryOperationOfAStepByNameAndShape) {
  const TimedStep step = step_of_rig(Timing::kOn);
  const int64_t tokens = (5 + 12 + 10 + 8 + 6 + 13 + 7) / 8 * 8;  // rounded up as the device asks
  const int64_t needed = 24;  // 12 masked and 6 first tokens: the only layer ends on these
  const auto product = [&](const char* operation, int64_t rows, int64_t outputs, int64_t inputs) {
    return step.times.at(concat(operation, " ", rows, "x", outputs, "x", inputs));
  };
  EXPECT_EQ(product("linear_fwd", tokens, 48, 16).calls, 1);
  EXPECT_EQ(product("linear_fwd", needed, 24, 16).calls, 1);
  EXPECT_EQ(product("linear_bwd_weight", needed, 16, 24).calls, 1);
  EXPECT_EQ(product("linear_bwd_data", tokens, 48, 16).calls, 1);
  EXPECT_EQ(product("linear_fwd", tokens, 48, 16).flops,
            2.0 * static_cast<double>(tokens * 48 * 16));
  EXPECT_EQ(step.times.at("attention_fwd").calls, 1);
  EXPECT_EQ(step.times.at("attention_bwd").calls, 1);
  EXPECT_EQ(step.times.at("residual_ln_fwd").calls, 2);
  EXPECT_EQ(step.times.at("residual_ln_bwd").calls, 2);
  EXPECT_EQ(step.times.at("cross_entropy").calls, 2);
  EXPECT_EQ(step.times.at("embedding_bwd").calls, 1);
  // Reads x and residual, writes sum and y in f32, and a bit per element.
  EXPECT_EQ(step.times.at("residual_ln_fwd").bytes,
            2.0 * static_cast<double>(needed * 16 * 4 * 4 + needed * 2));
  EXPECT_FALSE(step.times.contains("lamb_step")) << "the optimizer's own operations are not these";
}

TEST(TimedOps, TakeNoLongerThanTheStep) {
  const TimedStep step = step_of_rig(Timing::kOn);
  double sum = 0;
  for (const auto& [name, time] : step.times) {
    EXPECT_GE(time.ms, 0) << name;
    sum += time.ms;
  }
  EXPECT_GT(sum, 0);
  EXPECT_LE(sum, step.elapsed_ms);
}

/// A device whose work is never done before it is waited for.
class PendingEvent final : public Event {
 public:
  bool is_done() const override { return done; }
  void wait_on_host() const override {}
  double ms_since(const Event&) const override { return 1.5; }
  bool done = false;
};

class PendingStream final : public Stream {
 public:
  void record(Event& event) override { recorded.push_back(dynamic_cast<PendingEvent*>(&event)); }
  void wait_for(const Event&) override {}
  void wait_on_host() override {}
  std::vector<PendingEvent*> recorded;
};

class PendingDevice final : public BareDevice {
 public:
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<PendingStream>(); }
  std::unique_ptr<Event> make_event() override {
    ++events_made;
    return std::make_unique<PendingEvent>();
  }
  int events_made = 0;
};

TEST(TimedOps, WaitForNothingAndUseEventsAgain) {
  const std::unique_ptr<Device> cpu = make_cpu_device(1);
  const std::unique_ptr<Stream> cpu_stream = cpu->make_stream();
  PendingDevice device;
  PendingStream stream;
  const std::unique_ptr<Ops> ops = make_cpu_ops(*cpu, *cpu_stream);
  TimedOps timed(*ops, device, stream);
  float value = 0;
  const Fill fill{.values = View(&value, DType::kF32, {1}), .value = 2};
  timed.run(fill);
  timed.run(fill);
  EXPECT_TRUE(timed.take_totals().empty());
  EXPECT_EQ(device.events_made, 4);
  for (PendingEvent* event : stream.recorded) event->done = true;
  const std::vector<OperationTime> times = timed.take_totals();
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times.front().name, "fill");
  EXPECT_EQ(times.front().calls, 2);
  EXPECT_EQ(times.front().ms, 3.0);
  EXPECT_EQ(times.front().bytes, 8.0);
  timed.run(fill);
  EXPECT_EQ(device.events_made, 4);
}

}  // namespace
}  // namespace bertha::testing
