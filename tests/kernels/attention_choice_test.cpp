#include "kernels/cuda/attention/choice.h"

#include <gtest/gtest.h>

#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/cuda/attention/sequence_tiles.h"
#include "kernels/cuda/cuda_backend.h"

namespace bertha {
namespace {

using Variant = CudaOptions::AttentionVariant;

constexpr AttentionCall kBertLarge{.io = DType::kBF16, .head_size = 64, .max_seq_tokens = 512};
std::string chosen(Variant asked, const AttentionCall& call) {
  return text(choose_attention(asked, call));
}

/// What the persistent kernels do not take, and the word for it.
struct Beyond {
  AttentionCall call;
  const char* why;
};

const Beyond kBeyond[] = {
    {{.io = DType::kF32, .head_size = 64, .max_seq_tokens = 512}, "f32, want f16 or bf16"},
    {{.io = DType::kBF16, .head_size = 65, .max_seq_tokens = 512},
     "a head size of 65, want at most 64"},
    {{.io = DType::kF16, .head_size = 128, .max_seq_tokens = 512},
     "a head size of 128, want at most 64"},
    {{.io = DType::kBF16, .head_size = 64, .max_seq_tokens = 544},
     "sequences of up to 544 tokens, want at most 512"},
    {{.io = DType::kBF16, .head_size = 64, .max_seq_tokens = 512, .is_aligned = false},
     "a view that is not aligned to 16 bytes"},
};

/// A model with dropout of attention probabilities, of that width.
AttentionCall dropout_of(int64_t max_seq_tokens) {
  return {
      .io = DType::kF16, .head_size = 64, .max_seq_tokens = max_seq_tokens, .has_dropout = true};
}

TEST(AttentionChoice, AutoIsPersistentWhereThatServes) {
  EXPECT_EQ(chosen(Variant::kAuto, kBertLarge), "persistent");
  AttentionCall half = kBertLarge;
  half.io = DType::kF16;
  half.max_seq_tokens = 32;
  EXPECT_EQ(chosen(Variant::kAuto, half), "persistent");
}

TEST(AttentionChoice, NarrowHeadsArePersistentToo) {
  AttentionCall narrow = kBertLarge;
  for (const int64_t head_size : {1, 8, 26, 32, 40, 63}) {
    narrow.head_size = head_size;
    EXPECT_EQ(chosen(Variant::kAuto, narrow), "persistent") << head_size;
    EXPECT_EQ(chosen(Variant::kSplit, narrow), "split") << head_size;
  }
}

TEST(AttentionChoice, HeadsAreCopiedToTheNextMultipleOf8) {
  EXPECT_EQ(padded_head_size(1), 8);
  EXPECT_EQ(padded_head_size(26), 32);
  EXPECT_EQ(padded_head_size(32), 32);
  EXPECT_TRUE(needs_padded_heads(DType::kF16, 100));
  EXPECT_FALSE(needs_padded_heads(DType::kBF16, 104));
  EXPECT_FALSE(needs_padded_heads(DType::kF32, 100));
}

TEST(AttentionChoice, GroupedIsAlwaysGrouped) {
  EXPECT_EQ(chosen(Variant::kGrouped, kBertLarge), "grouped");
  EXPECT_EQ(chosen(Variant::kGrouped, dropout_of(320)), "grouped");
  for (const Beyond& beyond : kBeyond) {
    EXPECT_EQ(chosen(Variant::kGrouped, beyond.call), "grouped") << beyond.why;
  }
}

std::string refusal(Variant asked, const AttentionCall& call) {
  return error_of([&] { choose_attention(asked, call); }, ExitCode::kUsage);
}

TEST(AttentionChoice, BeyondItsReachPersistentIsRefusedAndAutoIsGrouped) {
  EXPECT_EQ(chosen(Variant::kPersistent, kBertLarge), "persistent");
  EXPECT_EQ(chosen(Variant::kSplit, kBertLarge), "split");
  for (const Beyond& beyond : kBeyond) {
    EXPECT_EQ(chosen(Variant::kAuto, beyond.call), "grouped") << beyond.why;
    for (const Variant asked : {Variant::kPersistent, Variant::kSplit}) {
      const std::string sentence = refusal(asked, beyond.call);
      EXPECT_THAT(sentence, HasSubstr(asked == Variant::kSplit ? "is split," : "is persistent,"));
      EXPECT_THAT(sentence, HasSubstr(std::string("do not support ") + beyond.why));
      EXPECT_THAT(sentence, HasSubstr("set it to auto or grouped."));
    }
  }
}

TEST(AttentionChoice, HeadsThatNoKernelHasAreRefused) {
  AttentionCall wide = kBertLarge;
  wide.head_size = 129;
  for (const Variant asked :
       {Variant::kAuto, Variant::kGrouped, Variant::kPersistent, Variant::kSplit}) {
    EXPECT_THAT(refusal(asked, wide), HasSubstr("head sizes up to 128, found 129"));
  }
}

TEST(AttentionChoice, WithDropoutThePersistentBackwardWantsWidthsBy128) {
  for (const int64_t width : {128, 256, 384, 512}) {
    EXPECT_EQ(chosen(Variant::kAuto, dropout_of(width)), "persistent");
    EXPECT_EQ(chosen(Variant::kPersistent, dropout_of(width)), "persistent");
  }
  for (const int64_t width : {32, 64, 160, 192, 320, 448}) {
    EXPECT_EQ(chosen(Variant::kAuto, dropout_of(width)), "persistent forward, grouped backward");
    EXPECT_THAT(refusal(Variant::kPersistent, dropout_of(width)),
                HasSubstr(concat("do not support dropout with sequences of up to ", width,
                                 " tokens, want a multiple of 128")));
  }
}

std::string of_batch(Variant asked, const AttentionCall& call, int64_t tokens, int64_t heads = 16) {
  return text(for_batch(choose_attention(asked, call), asked, call.max_seq_tokens,
                        {.tokens = tokens, .heads = heads, .sm_count = 132}));
}

TEST(AttentionChoice, AutoSplitsBatchesOfFewTokensWhoseSequencesHaveParts) {
  EXPECT_EQ(of_batch(Variant::kAuto, kBertLarge, 0), "split");
  EXPECT_EQ(of_batch(Variant::kAuto, kBertLarge, 320 * 132 / 16), "split");
  EXPECT_EQ(of_batch(Variant::kAuto, kBertLarge, 320 * 132 / 16 + 1),
            "split forward, persistent backward");
  EXPECT_EQ(of_batch(Variant::kAuto, kBertLarge, 512 * 132 / 16),
            "split forward, persistent backward");
  EXPECT_EQ(of_batch(Variant::kAuto, kBertLarge, 512 * 132 / 16 + 1), "persistent");
  EXPECT_EQ(of_batch(Variant::kAuto, kBertLarge, 320 * 132, 1), "split");
  EXPECT_EQ(of_batch(Variant::kAuto, dropout_of(128), 1024), "persistent");
  AttentionCall half = kBertLarge;
  half.max_seq_tokens = 192;
  EXPECT_EQ(of_batch(Variant::kAuto, half, 1024), "persistent forward, split backward");
  EXPECT_EQ(of_batch(Variant::kAuto, dropout_of(320), 1024), "split forward, grouped backward");
}

TEST(AttentionChoice, KernelsThatAreNamedAreTakenForEveryBatch) {
  for (const int64_t tokens : {1024, 24576}) {
    EXPECT_EQ(of_batch(Variant::kGrouped, kBertLarge, tokens), "grouped");
    EXPECT_EQ(of_batch(Variant::kPersistent, kBertLarge, tokens), "persistent");
    EXPECT_EQ(of_batch(Variant::kSplit, kBertLarge, tokens), "split");
  }
}

TEST(AttentionChoice, TheOptionsOfTheBackendAreDescribed) {
  EXPECT_EQ(attention_kernels({}, kBertLarge), "persistent");
  EXPECT_EQ(attention_kernels({.attention = Variant::kGrouped}, kBertLarge), "grouped");
  EXPECT_EQ(attention_kernels({}, dropout_of(64)),
            "persistent forward, grouped backward (slower: dropout with sequences of up to 64 "
            "tokens, want a multiple of 128)");
  AttentionCall narrow = kBertLarge;
  narrow.head_size = 32;
  EXPECT_EQ(attention_kernels({}, narrow), "persistent");
  narrow.head_size = 26;
  EXPECT_EQ(attention_kernels({}, narrow),
            "persistent (slower: heads of 26 are copied to heads of 32)");
  EXPECT_EQ(attention_kernels({.attention = Variant::kGrouped}, narrow),
            "grouped (slower: heads of 26 are copied to heads of 32)");
  AttentionCall wide = kBertLarge;
  wide.head_size = 96;
  EXPECT_EQ(attention_kernels({}, wide), "grouped (slower: a head size of 96, want at most 64)");
  EXPECT_EQ(attention_kernels({.attention = Variant::kGrouped}, wide), "grouped");
  wide.head_size = 100;
  EXPECT_EQ(
      attention_kernels({}, wide),
      "grouped (slower: a head size of 100, want at most 64; heads of 100 are copied to heads "
      "of 104)");
  EXPECT_EQ(attention_kernels({}, dropout_of(1024)),
            "grouped (slower, without graphs: sequences of up to 1024 tokens, want at most 512)");
  AttentionCall full = kBertLarge;
  full.io = DType::kF32;
  EXPECT_EQ(attention_kernels({}, full),
            "grouped (without tensor cores, many times slower, without graphs: f32, want f16 or "
            "bf16)");
}

TEST(AttentionChoice, GraphsServeAllThatAutoRunsOnTensorCoresUpTo512Tokens) {
  EXPECT_TRUE(launches_ignore_lengths({}, kBertLarge));
  EXPECT_TRUE(launches_ignore_lengths({.attention = Variant::kPersistent}, kBertLarge));
  EXPECT_TRUE(launches_ignore_lengths({.attention = Variant::kSplit}, kBertLarge));
  EXPECT_FALSE(launches_ignore_lengths({.attention = Variant::kGrouped}, kBertLarge));
  EXPECT_TRUE(launches_ignore_lengths({}, dropout_of(64)));
  EXPECT_FALSE(launches_ignore_lengths({}, dropout_of(544)));
  AttentionCall other = kBertLarge;
  other.head_size = 128;
  EXPECT_TRUE(launches_ignore_lengths({}, other));
  EXPECT_FALSE(launches_ignore_lengths({.attention = Variant::kGrouped}, other));
  other.io = DType::kF32;
  EXPECT_FALSE(launches_ignore_lengths({}, other));
}

TEST(SequenceTiles, AreAsManyAsASequenceNeedsOrOneMore) {
  for (const int64_t rows : {64, 128}) {
    for (const int64_t seqs : {1, 2, 96, 65536, 200000}) {
      int64_t begin = 0;
      for (int64_t seq = 0; seq < seqs; ++seq) {
        const int64_t length = seq % 5 == 3 ? 0 : seq * 7919 % 513;
        const int64_t tiles =
            first_tile_of_seq(seq + 1, begin + length, rows) - first_tile_of_seq(seq, begin, rows);
        const int64_t needed = ceil_div(length, rows);
        ASSERT_GE(tiles, needed) << seq << " of " << length << " tokens, from " << begin;
        ASSERT_LE(tiles, needed + 1) << seq << " of " << length << " tokens, from " << begin;
        begin += length;
      }
      EXPECT_EQ(first_tile_of_seq(0, 0, rows), 0);
      EXPECT_EQ(tiles_of_seqs(seqs, begin, rows), first_tile_of_seq(seqs, begin, rows));
    }
  }
}

TEST(SequenceTiles, MakeALaunchOfAnyBatch) {
  EXPECT_EQ(tiles_of_seqs(1, 1, 64), 1);
  EXPECT_EQ(tiles_of_seqs(1, 512, 64), 9);
  EXPECT_EQ(tiles_of_seqs(96, 24576, 64), 480);       // sequences times tiles of 512: 768
  EXPECT_EQ(tiles_of_seqs(24576, 24576, 64), 24960);  // 196,608
  EXPECT_EQ(tiles_of_seqs(65536, 65536, 64), 66560);
  EXPECT_LT(64 * tiles_of_seqs(200000, int64_t{200000} * 512, 64), int64_t{1} << 31);
}

}  // namespace
}  // namespace bertha
