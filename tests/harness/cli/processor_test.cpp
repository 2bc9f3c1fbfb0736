#include "harness/cli/processor.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"

namespace bertha {
namespace {

TEST(Processor, HasWhatThisTestWasCompiledTo) {
  EXPECT_EQ(missing_feature(kCompiledFeatures), nullptr);
}

TEST(Processor, NamesTheFirstFeatureThatItLacks) {
  const char* const features[] = {"sse2000", "sse3000", nullptr};
  EXPECT_STREQ(missing_feature(features), "sse2000");
  const char* const none[] = {nullptr};
  EXPECT_EQ(missing_feature(none), nullptr);
}

}  // namespace
}  // namespace bertha
