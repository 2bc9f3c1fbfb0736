#include "kernels/cuda/gemm/gelu_choice.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/ops/linear.h"

namespace bertha {
namespace {

using Choice = CudaOptions::GeluGemms;

constexpr int kSmCount = 132;
constexpr GeluCall kBertLarge{
    .io = DType::kBF16, .columns = 4096, .inner = 1024, .sm_count = kSmCount};
constexpr FeedForward kLargeBlock{.io = DType::kBF16, .hidden = 1024, .feed_forward = 4096};

GeluCall with(GeluCall call, int64_t columns, int64_t inner) {
  call.columns = columns;
  call.inner = inner;
  return call;
}

/// What an own kernel does not take, and the words for it.
struct Beyond {
  GeluCall call;
  const char* why;
};

std::vector<Beyond> beyond_both() {
  GeluCall f32 = kBertLarge, odd = kBertLarge;
  f32.io = DType::kF32;
  odd.is_aligned = false;
  return {{f32, "f32, want f16 or bf16"},
          {with(kBertLarge, 4096, 1056), "sums over 1056 indices, want a multiple of 64"},
          {odd, "a view that is not aligned to 16 bytes"}};
}

std::vector<Beyond> beyond_forward() {
  std::vector<Beyond> all = beyond_both();
  GeluCall no_bias = kBertLarge;
  no_bias.has_bias = false;
  all.push_back({no_bias, "a GEMM without a bias"});
  all.push_back({with(kBertLarge, 384, 64), "a result of 384 columns, want a multiple of 256"});
  all.push_back({with(kBertLarge, 8, 64), "a result of 8 columns, want a multiple of 256"});
  return all;
}

std::vector<Beyond> beyond_gradient() {
  std::vector<Beyond> all = beyond_both();
  all.push_back({with(kBertLarge, 320, 64), "a result of 320 columns, want a multiple of 128"});
  return all;
}

template <class Rule>
std::string refusal(const Rule& rule, const GeluCall& call) {
  return error_of([&] { rule(Choice::kOwn, call); }, ExitCode::kUsage);
}

template <class Rule>
void expect_beyond(const Rule& rule, const std::vector<Beyond>& all) {
  for (const Beyond& beyond : all) {
    EXPECT_EQ(rule(Choice::kAuto, beyond.call), kNever) << beyond.why;
    EXPECT_EQ(rule(Choice::kLibrary, beyond.call), kNever) << beyond.why;
    const std::string sentence = refusal(rule, beyond.call);
    EXPECT_THAT(sentence, HasSubstr(std::string("do not support ") + beyond.why));
    EXPECT_THAT(sentence, HasSubstr("set it to auto or library."));
  }
}

TEST(GeluChoice, BeyondItsReachOwnIsRefusedAndAutoIsTheLibrary) {
  expect_beyond(own_gemm_bias_gelu_from, beyond_forward());
  expect_beyond(own_gemm_dgelu_dbias_from, beyond_gradient());
}

TEST(GeluChoice, AutoTakesTheOwnKernelsFromTheirRoundsOn) {
  // 16 tiles of columns, so 8 row tiles abreast, and 1 round: more than 7 tiles of 128 rows.
  EXPECT_EQ(own_gemm_bias_gelu_from(Choice::kAuto, kBertLarge), 7 * 128 + 1);
  EXPECT_EQ(own_gemm_gelu_fp8_from(Choice::kAuto, kBertLarge), 15 * 128 + 1);
  // 32 tiles of columns, 4 abreast, 1 round.
  EXPECT_EQ(own_gemm_dgelu_dbias_from(Choice::kAuto, kBertLarge), 3 * 256 + 1);
  // More tiles of columns than SMs: 1 abreast.
  EXPECT_EQ(own_gemm_bias_gelu_from(Choice::kAuto, with(kBertLarge, 256 * 200, 64)), 1);
  EXPECT_EQ(own_gemm_dgelu_dbias_from(Choice::kAuto, with(kBertLarge, 128 * 200, 64)), 1);
}

TEST(GeluChoice, Fp8TakesWholeBlocksOf128InnerIndices) {
  EXPECT_EQ(own_gemm_gelu_fp8_from(Choice::kAuto, kBertLarge), 1921);
  EXPECT_EQ(own_gemm_gelu_fp8_from(Choice::kOwn, kBertLarge), 1);
  EXPECT_EQ(own_gemm_gelu_fp8_from(Choice::kAuto, with(kBertLarge, 4096, 64)), kNever);
  EXPECT_EQ(own_gemm_gelu_fp8_from(Choice::kAuto, with(kBertLarge, 4096 + 128, 1024)), kNever);
  EXPECT_THROW(own_gemm_gelu_fp8_from(Choice::kOwn, with(kBertLarge, 4096, 64)), Error);
}

TEST(GeluChoice, OwnAndLibraryAreTakenAtAnyRows) {
  EXPECT_EQ(own_gemm_bias_gelu_from(Choice::kOwn, kBertLarge), 1);
  EXPECT_EQ(own_gemm_dgelu_dbias_from(Choice::kOwn, kBertLarge), 1);
  EXPECT_EQ(own_gemm_bias_gelu_from(Choice::kLibrary, kBertLarge), kNever);
  EXPECT_EQ(own_gemm_dgelu_dbias_from(Choice::kLibrary, kBertLarge), kNever);
}

TEST(GeluChoice, WavesAreFullAtTheRowsThatAreNamed) {
  for (const GeluTile& tile : {kGemmBiasGeluTile, kGemmDgeluDbiasTile}) {
    for (const int64_t columns : {256, 768, 3072, 4096}) {
      const auto from =
          tile.rows == kGemmBiasGeluTile.rows ? own_gemm_bias_gelu_from : own_gemm_dgelu_dbias_from;
      const int64_t rows = from(Choice::kAuto, with(kBertLarge, columns, 64));
      const int waves = tile.min_waves * blocks_per_column_tile(tile, columns, kSmCount);
      EXPECT_EQ(row_tiles(tile, rows), waves) << columns;
      EXPECT_EQ(row_tiles(tile, rows - 1), waves - 1) << columns;
    }
  }
}

std::string described(Choice asked, const FeedForward& model, int planned = 0) {
  return gelu_gemms_text({.gelu_gemms = asked, .gemm_sm_count = planned}, model, kSmCount);
}

TEST(GeluChoice, TheOptionsOfTheBackendAreDescribed) {
  EXPECT_EQ(described(Choice::kAuto, kLargeBlock),
            "own from 897 tokens forward, own from 769 tokens backward");
  EXPECT_EQ(described(Choice::kAuto, kLargeBlock, 64),
            "own from 385 tokens forward, own from 257 tokens backward");
  EXPECT_EQ(described(Choice::kAuto, kLargeBlock, 16), "own");
  EXPECT_EQ(described(Choice::kOwn, kLargeBlock), "own");
  EXPECT_EQ(described(Choice::kLibrary, kLargeBlock), "library");
  FeedForward narrow = kLargeBlock;
  narrow.feed_forward = 4096 + 128;
  EXPECT_EQ(described(Choice::kAuto, narrow),
            "library (slower: a result of 4224 columns, want a multiple of 256) forward, "
            "own from 769 tokens backward");
  FeedForward fp8 = kLargeBlock;
  fp8.fp8 = true;
  EXPECT_EQ(described(Choice::kAuto, fp8), "own from 1921 tokens");
  EXPECT_EQ(described(Choice::kLibrary, fp8), "library");
  fp8.hidden = 1024 + 64;  // no whole blocks of 128 inner indices
  EXPECT_EQ(described(Choice::kAuto, fp8),
            "library (slower: sums over 1088 indices, want a multiple of 128)");
  EXPECT_EQ(described(Choice::kLibrary, fp8), "library");
  EXPECT_THROW(described(Choice::kOwn, fp8), Error);
}

}  // namespace
}  // namespace bertha
