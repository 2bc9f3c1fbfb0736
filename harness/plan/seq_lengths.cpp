#include "harness/plan/seq_lengths.h"

#include <algorithm>

namespace bertha {

LengthHistogram published_lengths() {
  struct UpTo {
    int64_t tokens;
    int64_t seqs;  // how many of 10,000 are at most this long
  };
  constexpr UpTo kShares[] = {{32, 359},   {64, 1759},  {96, 2897},  {128, 3694}, {160, 4317},
                              {192, 4834}, {224, 5276}, {256, 5663}, {288, 6003}, {320, 6308},
                              {352, 6584}, {384, 6836}, {416, 7067}, {448, 7280}, {480, 7477},
                              {511, 7657}, {512, 10000}};
  constexpr int64_t kShortest = 5;
  constexpr int64_t kCountsPerSeq = 100'000;  // so that a bin divides over its lengths
  LengthHistogram histogram(513, 0);
  int64_t first = kShortest;
  int64_t before = 0;
  for (const UpTo& bin : kShares) {
    const int64_t counts = kCountsPerSeq * (bin.seqs - before) / (bin.tokens - first + 1);
    std::fill(histogram.begin() + first, histogram.begin() + bin.tokens + 1, counts);
    first = bin.tokens + 1;
    before = bin.seqs;
  }
  return histogram;
}

LengthMeans means_of(const LengthHistogram& lengths, int64_t max_seq_tokens) {
  LengthMeans means;
  double seqs = 0;
  for (size_t length = 0; length < lengths.size(); ++length) {
    const auto count = static_cast<double>(lengths[length]);
    const auto tokens = std::min(static_cast<double>(length), static_cast<double>(max_seq_tokens));
    seqs += count;
    means.tokens += count * tokens;
    means.squared_tokens += count * tokens * tokens;
  }
  if (seqs > 0) {
    means.tokens /= seqs;
    means.squared_tokens /= seqs;
  }
  return means;
}

}  // namespace bertha
