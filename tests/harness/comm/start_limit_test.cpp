#include "harness/comm/start_limit.h"

#include <chrono>
#include <string>
#include <thread>

#include "kernels/base/error.h"
#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

EnvironmentLookup with_timeout(const char* seconds) {
  return [seconds](const char* variable) {
    return std::string(variable) == "BERTHA_START_TIMEOUT_S" ? seconds : nullptr;
  };
}

TEST(LateStart, AStoppedRankIsNamed) {
  const std::string report = late_start_report(
      {{.rank = 0, .process = 11}, {.rank = 3, .process = 14, .is_stopped = true}}, 8, "node7", 90);
  EXPECT_THAT(report, HasSubstr("after 90 s not all of 8 ranks have started MPI"));
  EXPECT_THAT(report, HasSubstr("rank 3 of 8 on node7 (process 14) is stopped"));
  EXPECT_THAT(report, Not(HasSubstr("rank 0")));
}

TEST(LateStart, ElseTheRanksThatAreThere) {
  EXPECT_THAT(
      late_start_report({{.rank = 0, .process = 11}, {.rank = 2, .process = 13}}, 4, "node7", 1),
      HasSubstr("node7 has rank 0, 2; check the launcher's messages about the others"));
}

TEST(StartLimit, RefusesWhatIsNoNumberOfSeconds) {
  for (const char* value : {"soon", "-1", "1h", "nan", "1e300"}) {
    EXPECT_THROW(StartLimit(with_timeout(value), 1), Error) << value;
  }
}

TEST(StartLimit, LetsTheProcessLiveOnceMpiHasStartedOrWithoutALimit) {
  const StartLimit none(with_timeout("0"), 2);
  const StartLimit alone(with_timeout("0.05"), 1);
  { const StartLimit started(with_timeout("0.05"), 2); }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

TEST(StartLimitDeathTest, EndsTheProcessThatWaitsTooLong) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StartLimit limit(with_timeout("0.05"), 2);
        std::this_thread::sleep_for(std::chrono::seconds(20));
      },
      ::testing::ExitedWithCode(124), "not all of 2 ranks have started MPI");
}

}  // namespace
}  // namespace bertha
