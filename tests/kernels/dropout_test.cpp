#include "kernels/base/cpu/dropout.h"

#include <gtest/gtest.h>

#include <bit>
#include <bitset>
#include <cmath>
#include <vector>

#include "kernels/base/dropout_bits.h"
#include "kernels/base/tests/host_tensor.h"

namespace bertha {
namespace {

constexpr uint64_t kSeed = 0xFEDCBA9876543210u;
constexpr uint64_t kStep = 0x100000007u;
constexpr float kProbability = 0.3f;

/// Which bits of a Philox block (32 * word + bit) digit k of neighbour b is the sum of, as
/// dropout_bits.h says it.
std::vector<int> bits_of_digit(int b, int k) {
  if (k < 4) return {32 * k + b};
  const int four = k / 4;
  int bit = b;
  for (int f = 1; f <= four; ++f) bit += dropout_turn(f);
  const int word = four % 2 == 1 ? k % 4 : 3 - k % 4;
  const int next = (word + 1) % 4;
  return {32 * word + bit % 32, 32 * next + (bit + dropout_mix(word)) % 32};
}

/// The number of neighbour b of a group, digit by digit.
uint32_t number_of(int64_t group, int b) {
  const PhiloxWords words = philox4x32<7>(dropout_counter(kStep, 9, group), kSeed);
  uint32_t number = 0;
  for (int k = 0; k < 24; ++k) {
    uint32_t digit = 0;
    for (const int bit : bits_of_digit(b, k)) digit ^= words.elem[bit / 32] >> (bit % 32) & 1u;
    number = number << 1 | digit;
  }
  return number;
}

using Bits = std::bitset<128>;

/// Whether no sum of some of the rows is zero, so that independent bits make independent digits.
bool are_independent(std::vector<Bits> rows) {
  for (size_t done = 0; done < rows.size(); ++done) {
    if (rows[done].none()) return false;
    int pivot = 0;
    while (!rows[done][pivot]) ++pivot;
    for (size_t row = done + 1; row < rows.size(); ++row) {
      if (rows[row][pivot]) rows[row] ^= rows[done];
    }
  }
  return true;
}

void add_digits(std::vector<Bits>& rows, int b, int digits) {
  for (int k = 0; k < digits; ++k) {
    Bits row;
    for (const int bit : bits_of_digit(b, k)) row.flip(bit);
    rows.push_back(row);
  }
}

TEST(DropoutBits, DigitsOfANumberAreIndependent) {
  std::vector<Bits> rows;
  add_digits(rows, 0, kDropoutDigits);
  EXPECT_TRUE(are_independent(rows));
}

TEST(DropoutBits, SixteenDigitsOfTwoNeighboursAreIndependent) {
  for (int b = 1; b < kDropoutGroup; ++b) {
    for (int digits = 0; digits <= 16; ++digits) {
      std::vector<Bits> rows;
      add_digits(rows, 0, digits);
      add_digits(rows, b, 16 - digits);
      EXPECT_TRUE(are_independent(rows)) << digits << " of 0, " << 16 - digits << " of " << b;
    }
  }
}

TEST(DropoutBits, CompareANumberOfEachElementWithTheThreshold) {
  for (const float probability : {0.1f, 0.3f, 0.5f, 0.984375f}) {
    for (const int64_t group : {int64_t{0}, int64_t{5}, int64_t{1} << 33}) {
      for (int b = 0; b < kDropoutGroup; ++b) {
        EXPECT_EQ(is_kept(kSeed, kStep, 9, group * kDropoutGroup + b, probability),
                  number_of(group, b) >= drop_threshold(probability))
            << probability << ", element " << b << " of group " << group;
      }
    }
  }
}

TEST(DropoutBits, DecideByTheLowestDigitToo) {
  // Thresholds that differ from an element's number in the last digit only.
  for (int b = 0; b < kDropoutGroup; ++b) {
    const uint32_t number = number_of(3, b);
    const auto keeps = [&](uint32_t threshold) {
      return (kept_bits(kSeed, kStep, 9, 3, threshold) >> b & 1u) != 0;
    };
    EXPECT_TRUE(keeps(number)) << b;
    EXPECT_FALSE(keeps(number + 1)) << b;
  }
}

TEST(DropoutBits, ThresholdIsTheProbabilityIn24Bits) {
  EXPECT_EQ(drop_threshold(0.0f), 0u);
  EXPECT_EQ(drop_threshold(0.1f), 1677722u);  // 1677721.6
  EXPECT_EQ(drop_threshold(0.5f), 0x800000u);
  EXPECT_EQ(drop_threshold(0.75f), 0xC00000u);
  EXPECT_EQ(drop_threshold(0x1.fffffep-1f), 0xFFFFFFu);  // the largest f32 below 1
}

TEST(DropoutBits, NeighboursAreDroppedIndependently) {
  // Pairs of neighbours of all groups at each distance: digits are shared between some.
  constexpr int64_t kGroups = 100'000;
  const uint32_t threshold = drop_threshold(0.1f);
  int64_t together[kDropoutGroup] = {};
  for (int64_t group = 0; group < kGroups; ++group) {
    const uint32_t dropped = ~kept_bits(kSeed, kStep, 9, group, threshold);
    for (int distance = 0; distance < kDropoutGroup; ++distance) {
      together[distance] += std::popcount(dropped & std::rotr(dropped, distance));
    }
  }
  const double pairs = 32.0 * kGroups;
  EXPECT_NEAR(static_cast<double>(together[0]), 0.1 * pairs, 5 * std::sqrt(0.09 * pairs));
  for (int distance = 1; distance < kDropoutGroup; ++distance) {
    // Five standard deviations; each pair is counted twice at distance 16.
    EXPECT_NEAR(static_cast<double>(together[distance]), 0.01 * pairs,
                5 * std::sqrt(2 * 0.0099 * pairs))
        << distance;
  }
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
