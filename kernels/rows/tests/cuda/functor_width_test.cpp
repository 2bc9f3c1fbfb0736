#include <gtest/gtest.h>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/rows/tests/cuda/moved_rows.h"

namespace bertha::testing {
namespace {

TEST(FunctorWidth, IsAPowerOfTwoUpToEight) {
  for (const int width : {1, 2, 4, 8}) EXPECT_EQ(accepted_width(width), width);
  for (const int width : {-8, 0, 3, 6, 9, 16}) {
    EXPECT_THAT(error_of([&] { accepted_width(width); }, ExitCode::kInternal),
                HasSubstr("want 1, 2, 4 or 8"));
  }
}

}  // namespace
}  // namespace bertha::testing
