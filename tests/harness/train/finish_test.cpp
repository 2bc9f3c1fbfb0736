#include "harness/train/finish.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/base/tests/error_of.h"
#include "tests/harness/train/training_rig.h"
#include "tests/support/thread_world.h"
#include "tests/support/transport_world.h"

namespace bertha::testing {
namespace {

class FullDisk final : public Reporter {
 public:
  void event(const std::string&) override { fail(ExitCode::kData, "no space left"); }
};

// The energy of all GPUs goes into the end of the log, and takes all ranks.
TEST(EndLogIfDataFail, ALogThatCannotBeEndedKeepsNoRankWaiting) {
  constexpr const char* kUnknownGpu = "0000:00:00.0";
  ThreadWorld threads(2);
  run_ranks(2, [&](Device& device, Collectives& collectives) {
    TransportWorld world(threads.transport(collectives.rank()));
    TrainingRig rig(device, collectives, rig_model());
    Training training({}, world);
    training.telemetry.reporter =
        world.rank() == 0 ? std::make_unique<FullDisk>() : std::make_unique<Reporter>();
    training.telemetry.probe = std::make_unique<StepProbe>(rig.parts(), collectives);
    training.run.energy = std::make_unique<EnergyMeter>(kUnknownGpu, world);
    const std::string error = error_of(
        [&] { end_log_if_data_fail(training, [] { fail(ExitCode::kData, "a torn shard"); }); });
    EXPECT_EQ(error, "a torn shard");
    if (error != "a torn shard") threads.abort();
  });
}

}  // namespace
}  // namespace bertha::testing
