#include <gtest/gtest.h>

#include "harness/train/evaluate.h"
#include "harness/train/profiled_steps.h"
#include "tests/harness/train/training_rig.h"
#include "tests/support/recording_device.h"

namespace bertha::testing {
namespace {

using Calls = std::vector<std::string>;

/// What the steps 1 .. count of a run tell the profiler.
Calls calls_of(const std::string& range, int64_t first, int64_t last) {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  RecordingDevice recorder(*device);
  const std::unique_ptr<Stream> stream = device->make_stream();
  ProfiledSteps steps(range, recorder, *stream);
  for (int64_t step = first; step <= last; ++step) {
    steps.before_step(step);
    recorder.calls.push_back(std::to_string(step));
    steps.after_step(step);
  }
  steps.stop();
  return recorder.calls;
}

TEST(ProfiledSteps, AreBracketed) {
  EXPECT_EQ(calls_of("2:3", 1, 5), (Calls{"1", "start", "2", "3", "stop", "4", "5"}));
  EXPECT_EQ(calls_of("1:1", 1, 2), (Calls{"start", "1", "stop", "2"}));
}

TEST(ProfiledSteps, EndWithTheRun) {
  EXPECT_EQ(calls_of("2:9", 1, 3), (Calls{"1", "start", "2", "3", "stop"}));
}

TEST(ProfiledSteps, OfARunThatGoesOnBeyondThemAreNone) {
  EXPECT_EQ(calls_of("2:3", 4, 5), (Calls{"4", "5"}));
  EXPECT_EQ(calls_of("2:4", 4, 5), (Calls{"start", "4", "stop", "5"}));
  EXPECT_EQ(calls_of("", 1, 2), (Calls{"1", "2"}));
}

TEST(ProfilerRanges, NameStepPhasesAndLayers) {
  run_ranks(1, [](Device& device, Collectives& collectives) {
    ModelConfig config = rig_model();
    config.layers = 2;
    TrainingRig rig(device, collectives, config);
    RecordingDevice recorder(device);
    ModelParts parts = rig.parts();
    parts.device = &recorder;
    Bert model(config, rig.table, {.tokens = 128, .seqs = 16, .masked = 64}, parts);
    model.bind(rig.optimizer.weights(), rig.optimizer.gradients());
    PhaseTimers timers(recorder, *rig.stream);
    const StepBatch batch = rig_step({rig_sequences(2)}, 2, num_masked(rig_sequences(2)));
    train_step(batch, {}, {.model = &model, .optimizer = &rig.optimizer, .timers = &timers});
    EXPECT_EQ(recorder.calls,
              (Calls{"step", "step / forward", "step / forward", "step / forward / layer 0 forward",
                     "step / forward / layer 1 forward", "step / backward",
                     "step / backward / layer 1 backward", "step / backward / layer 0 backward",
                     "step / communication", "step / optimizer"}));
    EXPECT_EQ(recorder.open_ranges(), 0U);

    recorder.calls.clear();
    evaluate(model, batch.micro_batches, parts, collectives);
    EXPECT_EQ(recorder.calls, (Calls{"evaluation", "evaluation / layer 0 forward",
                                     "evaluation / layer 1 forward"}));
    EXPECT_EQ(recorder.open_ranges(), 0U);
  });
}

}  // namespace
}  // namespace bertha::testing
