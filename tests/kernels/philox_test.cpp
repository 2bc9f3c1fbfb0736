#include "kernels/base/philox.h"

#include <gtest/gtest.h>

#include <array>

namespace bertha {
namespace {

struct KnownAnswer {
  PhiloxWords counter;
  uint32_t key_low;
  uint32_t key_high;
  std::array<uint32_t, 4> words;
};

// philox4x32-10 of kat_vectors in the Random123 distribution (Salmon et al. 2011).
constexpr KnownAnswer kKnownAnswers[] = {
    {{{0, 0, 0, 0}}, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     0xffffffff,
     0xffffffff,
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     0xa4093822,
     0x299f31d0,
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Philox, GivesThePublishedKnownAnswers) {
  for (const KnownAnswer& known : kKnownAnswers) {
    const uint64_t key = (static_cast<uint64_t>(known.key_high) << 32) | known.key_low;
    const PhiloxWords words = philox4x32_10(known.counter, key);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(words.elem[i], known.words[i]);
  }
}

TEST(Philox, WordOfAnElementIsTheDocumentedLane) {
  const uint64_t seed = 0x0123456789abcdefu;
  const uint64_t step = 0x1122334455667788u;
  for (const int64_t element : {int64_t{0}, int64_t{3}, int64_t{4}, int64_t{17180000006}}) {
    const uint64_t block = static_cast<uint64_t>(element) / 4;
    const PhiloxWords words = philox4x32_10(
        {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 77, 0x55667788u}},
        seed);
    EXPECT_EQ(random_word(seed, step, 77, element), words.elem[element % 4]);
  }
}

// philox4x32-7 of kat_vectors, the rounds of dropout.
constexpr KnownAnswer kSevenRounds[] = {
    {{{0, 0, 0, 0}}, 0, 0, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     0xffffffff,
     0xffffffff,
     {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     0xa4093822,
     0x299f31d0,
     {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
};

TEST(Philox, OfSevenRoundsGivesThePublishedKnownAnswers) {
  for (const KnownAnswer& known : kSevenRounds) {
    const uint64_t key = (static_cast<uint64_t>(known.key_high) << 32) | known.key_low;
    const PhiloxWords words = philox4x32<7>(known.counter, key);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(words.elem[i], known.words[i]);
  }
}

}  // namespace
}  // namespace bertha
