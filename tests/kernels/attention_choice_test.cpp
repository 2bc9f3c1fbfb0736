#include "kernels/cuda/attention/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace bertha {
namespace {

using testing::HasSubstr;
using Variant = CudaOptions::AttentionVariant;

constexpr AttentionCall kBertLarge{.io = DType::kBF16, .head_size = 64, .max_seq_tokens = 512};
constexpr PersistentKernels kNone{};
constexpr PersistentKernels kBoth{.forward = Persistent::kPreferred,
                                  .backward = Persistent::kPreferred};

std::string chosen(Variant asked, const AttentionCall& call, const PersistentKernels& persistent) {
  return text(choose_attention(asked, call, persistent));
}

/// What the persistent kernels do not take, and the word for it.
struct Beyond {
  AttentionCall call;
  const char* why;
};

const Beyond kBeyond[] = {
    {{.io = DType::kF32, .head_size = 64, .max_seq_tokens = 512}, "f32, want f16 or bf16"},
    {{.io = DType::kBF16, .head_size = 32, .max_seq_tokens = 512}, "a head size of 32, want 64"},
    {{.io = DType::kF16, .head_size = 128, .max_seq_tokens = 512}, "a head size of 128, want 64"},
    {{.io = DType::kBF16, .head_size = 64, .max_seq_tokens = 544},
     "sequences of up to 544 tokens, want at most 512"},
    {{.io = DType::kBF16, .head_size = 64, .max_seq_tokens = 512, .is_aligned = false},
     "a view that is not aligned to 16 bytes"},
};

TEST(AttentionChoice, AutoTakesThePreferredKernelsOfEachDirection) {
  EXPECT_EQ(chosen(Variant::kAuto, kBertLarge, kNone), "grouped");
  EXPECT_EQ(chosen(Variant::kAuto, kBertLarge, kBoth), "persistent");
  EXPECT_EQ(chosen(Variant::kAuto, kBertLarge,
                   {.forward = Persistent::kPreferred, .backward = Persistent::kOnRequest}),
            "persistent forward, grouped backward");
  AttentionCall half = kBertLarge;
  half.io = DType::kF16;
  half.max_seq_tokens = 32;
  EXPECT_EQ(chosen(Variant::kAuto, half, kBoth), "persistent");
}

TEST(AttentionChoice, GroupedIsAlwaysGrouped) {
  EXPECT_EQ(chosen(Variant::kGrouped, kBertLarge, kBoth), "grouped");
  for (const Beyond& beyond : kBeyond) {
    EXPECT_EQ(chosen(Variant::kGrouped, beyond.call, kBoth), "grouped") << beyond.why;
  }
}

TEST(AttentionChoice, PersistentIsWhatItsDirectionsHave) {
  EXPECT_EQ(chosen(Variant::kPersistent, kBertLarge, kBoth), "persistent");
  EXPECT_EQ(chosen(Variant::kPersistent, kBertLarge,
                   {.forward = Persistent::kOnRequest, .backward = Persistent::kOnRequest}),
            "persistent");
  EXPECT_EQ(chosen(Variant::kPersistent, kBertLarge,
                   {.forward = Persistent::kAbsent, .backward = Persistent::kOnRequest}),
            "grouped forward, persistent backward");
}

std::string refusal(const AttentionCall& call, const PersistentKernels& persistent) {
  try {
    choose_attention(Variant::kPersistent, call, persistent);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(AttentionChoice, BeyondItsReachPersistentIsRefusedAndAutoIsGrouped) {
  for (const Beyond& beyond : kBeyond) {
    EXPECT_EQ(chosen(Variant::kAuto, beyond.call, kBoth), "grouped") << beyond.why;
    const std::string sentence = refusal(beyond.call, kBoth);
    EXPECT_THAT(sentence, HasSubstr(std::string("do not take ") + beyond.why));
    EXPECT_THAT(sentence, HasSubstr("set cuda.attention to auto or grouped."));
  }
}

TEST(AttentionChoice, AProgramWithoutPersistentKernelsSaysSo) {
  EXPECT_THAT(refusal(kBertLarge, kNone), HasSubstr("this program has no such kernels"));
}

TEST(AttentionChoice, TheOptionsOfTheBackendAreDescribed) {
  EXPECT_EQ(attention_kernels({}, DType::kF32, 64, 512), "grouped");
  EXPECT_EQ(attention_kernels({.attention = Variant::kGrouped}, DType::kBF16, 64, 512), "grouped");
  EXPECT_EQ(attention_kernels({}, DType::kBF16, 64, 512),
            text(choose_attention(Variant::kAuto, kBertLarge)));
}

}  // namespace
}  // namespace bertha
