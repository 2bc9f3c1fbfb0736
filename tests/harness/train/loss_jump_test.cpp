#include "harness/train/loss_jump.h"

#include <gtest/gtest.h>

#include <limits>

namespace bertha::testing {
namespace {

constexpr int64_t kClasses = 1000;  // a jump is more than 1.73 above the usual loss

LossStats losses(double mean, int64_t masked = 100) {
  return {.mlm_loss_sum = mean * static_cast<double>(masked), .mlm_count = masked};
}

UsualLoss used_to(double mean) {
  UsualLoss usual;
  for (int i = 0; i < 20; ++i) add_losses(usual, losses(mean + 0.1 * (i % 2)), true, kClasses);
  return usual;
}

TEST(LossJump, IsMoreThanAQuarterOfGuessingAboveTheUsual) {
  UsualLoss usual = used_to(3);
  EXPECT_FALSE(add_losses(usual, losses(4.7), true, kClasses));
  usual = used_to(3);
  const auto jump = add_losses(usual, losses(4.9), true, kClasses);
  ASSERT_TRUE(jump);
  EXPECT_DOUBLE_EQ(jump->loss, 4.9);
  EXPECT_NEAR(jump->usual, 3.05, 0.06);
  EXPECT_FALSE(add_losses(usual, losses(0.5), true, kClasses));
}

TEST(LossJump, TheFirstRecordsAreNone) {
  UsualLoss usual;
  for (int64_t i = 0; i < kLossesRemembered; ++i) {
    EXPECT_FALSE(add_losses(usual, losses(i % 2 == 0 ? 0.1 : 9), true, kClasses)) << i;
  }
}

TEST(LossJump, HardlyMovesWhatIsUsualAndALossThatStaysHighBecomesIt) {
  UsualLoss usual = used_to(3);
  ASSERT_TRUE(add_losses(usual, losses(1e6), true, kClasses));
  EXPECT_LT(usual.mean, 3.5);
  int jumps = 0;
  for (int i = 0; i < 50; ++i) jumps += add_losses(usual, losses(8), true, kClasses) ? 1 : 0;
  EXPECT_LT(jumps, 30);
  EXPECT_FALSE(add_losses(usual, losses(8), true, kClasses));
}

// A capture in the middle of a record, before a save for example, changes nothing.
TEST(LossJump, ARecordIsTheMeanOverItsPartsByMaskedTokens) {
  UsualLoss whole = used_to(3), parts = whole;
  add_losses(whole, losses(3.5, 400), true, kClasses);
  add_losses(parts, losses(2.0, 100), false, kClasses);
  add_losses(parts, losses(4.0, 300), true, kClasses);
  EXPECT_DOUBLE_EQ(whole.mean, parts.mean);
  EXPECT_EQ(parts.open_masked, 0);
}

TEST(LossJump, LossesThatAreNotFiniteAreLeftToTheGradient) {
  UsualLoss usual = used_to(3);
  const double before = usual.mean;
  EXPECT_FALSE(add_losses(usual, losses(std::numeric_limits<double>::quiet_NaN()), true, kClasses));
  EXPECT_EQ(usual.mean, before);
}

}  // namespace
}  // namespace bertha::testing
