// Host and device compile the same sources; here they show that they mean the same.
#include "tests/kernels/device_values.h"

#include <gtest/gtest.h>

#include "kernels/base/dropout_bits.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/lamb_rules.h"

namespace bertha::testing {
namespace {

TEST(DeviceValues, RandomWordsAreThoseOfTheHostBitForBit) {
  constexpr int64_t kCount = 1 << 16;
  for (const int64_t first : {int64_t{0}, int64_t{5}, (int64_t{1} << 34) - 7}) {
    const std::vector<uint32_t> words =
        device_random_words(0x0123456789ABCDEFull, 1'000'003, 77, first, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(words[static_cast<size_t>(i)],
                random_word(0x0123456789ABCDEFull, 1'000'003, 77, first + i))
          << "element " << first + i;
    }
  }
}

TEST(DeviceValues, KeptBitsAreThoseOfTheHostBitForBit) {
  constexpr int64_t kCount = 1 << 14;
  for (const float probability : {0.1f, 0.3f}) {
    const std::vector<uint32_t> words =
        device_kept_bits(0xFEDCBA9876543210ull, 77, 5, int64_t{1} << 31, probability, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(words[static_cast<size_t>(i)],
                kept_bits(0xFEDCBA9876543210ull, 77, 5, (int64_t{1} << 31) + i,
                          drop_threshold(probability)))
          << "group " << i;
    }
  }
}

TEST(DeviceValues, LearningRatesAreThoseOfTheHost) {
  LrSchedule schedule{
      .base = 1.5e-3, .warmup_steps = 100, .start_step = -25, .total_steps = 1271, .degree = 1.5};
  using Decay = LrSchedule::Decay;
  for (const Decay decay : {Decay::kPolynomial, Decay::kCosine, Decay::kTail}) {
    schedule.decay = decay;
    schedule.tail_steps = 300;
    schedule.floor = decay == Decay::kPolynomial ? 0 : 0.1;
    const std::vector<double> rates = device_learning_rates(schedule, 1300);
    for (int64_t t = 0; t < 1300; ++t) {
      // pow and cos on the device are within two units in the last place.
      const double want = scheduled_learning_rate(schedule, t);
      ASSERT_NEAR(rates[static_cast<size_t>(t)], want, 8 * tolerance::kRoundF64 * want)
          << "t = " << t;
    }
  }
}

}  // namespace
}  // namespace bertha::testing
