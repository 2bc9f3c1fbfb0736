#include "kernels/cpu/dropout.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/base/dropout_bits.h"
#include "tests/support/host_tensor.h"

namespace bertha {
namespace {

constexpr uint64_t kSeed = 0xFEDCBA9876543210u;
constexpr uint64_t kStep = 0x100000007u;
constexpr float kProbability = 0.3f;

TEST(DropoutBits, CompareANumberOfEachElementWithTheThreshold) {
  // The digits of each element's number, put together without the early end.
  for (const float probability : {0.1f, 0.3f, 0.5f, 0.984375f}) {
    for (const int64_t group : {int64_t{0}, int64_t{5}, int64_t{1} << 33}) {
      uint32_t number[kDropoutGroup] = {};
      for (int block = 0; block < 8; ++block) {
        const PhiloxWords digits = dropout_digits(kSeed, kStep, 9, group, block);
        for (const uint32_t word : digits.lane) {
          for (int b = 0; b < kDropoutGroup; ++b) number[b] = number[b] << 1 | (word >> b & 1u);
        }
      }
      for (int b = 0; b < kDropoutGroup; ++b) {
        EXPECT_EQ(is_kept(kSeed, kStep, 9, group * kDropoutGroup + b, probability),
                  number[b] >= drop_threshold(probability))
            << probability << ", element " << b << " of group " << group;
      }
    }
  }
}

TEST(DropoutBits, ThresholdIsTheProbabilityIn32Bits) {
  EXPECT_EQ(drop_threshold(0.0f), 0u);
  EXPECT_EQ(drop_threshold(0.5f), 0x80000000u);
  EXPECT_EQ(drop_threshold(0.75f), 0xC0000000u);
  EXPECT_EQ(drop_threshold(0x1.fffffep-1f), 0xFFFFFF00u);  // the largest f32 below 1
}

TEST(DropoutBits, ChangeWithSeedStepSiteAndGroup) {
  const uint32_t threshold = drop_threshold(0.5f);
  const uint32_t bits = kept_bits(1, 2, 3, 4, threshold);
  EXPECT_NE(bits, kept_bits(2, 2, 3, 4, threshold));
  EXPECT_NE(bits, kept_bits(1, 3, 3, 4, threshold));
  EXPECT_NE(bits, kept_bits(1, 2, 4, 4, threshold));
  EXPECT_NE(bits, kept_bits(1, 2, 3, 5, threshold));
}

TEST(DropoutMask, DrawsTheBitsOfEveryElement) {
  HostTensor<uint64_t> state = random_state(kSeed, kStep);
  const DropoutMask decisions({.random = state.view(), .probability = kProbability, .site = 9});
  ASSERT_TRUE(decisions.active());
  for (const int64_t first : {int64_t{0}, int64_t{8}, int64_t{72}, (int64_t{1} << 34) - 24}) {
    for (const int64_t count : {0, 8, 40, 64, 2056}) {
      HostTensor<uint8_t> mask({count / 8 + 1}, 0xA5);
      decisions.draw(first, count, mask.values.data());
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(((mask[i / 8] >> (i % 8)) & 1) != 0,
                  is_kept(kSeed, kStep, 9, first + i, kProbability))
            << first << " + " << i;
      }
      EXPECT_EQ(mask[count / 8], 0xA5) << "written beyond " << count;
    }
  }
}

TEST(DropoutMask, DrawsRowsAtADistance) {
  HostTensor<uint64_t> state = random_state(kSeed, kStep);
  const DropoutMask decisions({.random = state.view(), .probability = kProbability, .site = 2});
  constexpr int64_t kFirst = 96;
  constexpr int64_t kStride = 160;
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{0, 7}, {1, 1}, {5, 33}, {40, 96}}) {
    HostTensor<uint8_t> mask({rows * kStride / 8 + 1}, 0xA5);
    decisions.draw_rows(
        {.first_element = kFirst, .row_stride = kStride, .rows = rows, .elements_per_row = width},
        mask.values.data());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < width; ++i) {
        const int64_t bit = row * kStride + i;
        EXPECT_EQ(((mask[bit / 8] >> (bit % 8)) & 1) != 0,
                  is_kept(kSeed, kStep, 2, kFirst + bit, kProbability))
            << "row " << row << ", element " << i;
      }
      EXPECT_EQ(mask[row * kStride / 8 + 12], 0xA5) << "written beyond a row";
    }
  }
}

TEST(DropoutMask, FactorsAreZeroWhereTheBitIs) {
  HostTensor<uint64_t> state = random_state(5, 6);
  const DropoutMask decisions({.random = state.view(), .probability = kProbability, .site = 1});
  const uint8_t mask[] = {0b01001101, 0b10};
  HostTensor<float> factors = garbage_tensor({11});
  decisions.write_factors(mask, 10, factors.values.data());
  const float kept = 1.0f / (1.0f - kProbability);
  const float want[] = {kept, 0, kept, kept, 0, 0, kept, 0, 0, kept};
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(factors[i], want[i]) << i;
  EXPECT_TRUE(std::isnan(factors[10]));
}

TEST(DropoutMask, IsInactiveAtProbabilityZeroWithoutRandomState) {
  EXPECT_FALSE(DropoutMask({.random = View(), .probability = 0.0f}).active());
}

TEST(DropoutMask, DropsTheShareThatTheProbabilityNames) {
  HostTensor<uint64_t> state = random_state(5, 6);
  constexpr int64_t kElements = 1'000'000;
  HostTensor<uint8_t> mask({kElements / 8});
  DropoutMask({.random = state.view(), .probability = 0.1f, .site = 1})
      .draw(0, kElements, mask.values.data());
  int64_t kept = 0;
  for (const uint8_t byte : mask.values) kept += std::popcount(byte);
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(static_cast<double>(kept), 0.9 * kElements, 5 * std::sqrt(0.09 * kElements));
}

}  // namespace
}  // namespace bertha
