#include "kernels/base/cpu/dropout.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/base/dropout_bits.h"

namespace bertha {
namespace {

// Groups decided side by side, one per vector lane: the rounds of one group depend on each other.
constexpr int kTileGroups = 32;

/// kept_bits of kTileGroups groups.
class GroupTile {
 public:
  GroupTile(uint64_t seed, uint64_t step, uint32_t site, uint32_t threshold,
            const int64_t (&groups)[kTileGroups]) {
    draw_words(seed, step, site, groups);
    uint32_t mixed[4][kTileGroups];
    for (int word = 0; word < 4; ++word) {
#pragma omp simd
      for (int i = 0; i < kTileGroups; ++i) {
        mixed[word][i] = words_[word][i] ^ turned(words_[(word + 1) % 4][i], dropout_mix(word));
      }
    }
    for (int four = kDropoutFours - 1; four > 0; --four) {
      for (int place = 3; place >= 0; --place) {
        compare(mixed[dropout_word(four, place)], threshold_digit(threshold, 4 * four + place));
      }
      turn_below(dropout_turn(four));
    }
    for (int word = 3; word >= 0; --word) compare(words_[word], threshold_digit(threshold, word));
  }

  uint32_t kept(int64_t i) const { return ~below_[i]; }

 private:
  /// The words of every group.
  void draw_words(uint64_t seed, uint64_t step, uint32_t site,
                  const int64_t (&groups)[kTileGroups]) {
    for (int i = 0; i < kTileGroups; ++i) {
      const PhiloxWords counter = dropout_counter(step, site, groups[i]);
      for (int word = 0; word < 4; ++word) words_[word][i] = counter.elem[word];
    }
    uint32_t key_low = static_cast<uint32_t>(seed);
    uint32_t key_high = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kDropoutRounds; ++round) {
#pragma omp simd
      for (int i = 0; i < kTileGroups; ++i) {
        const PhiloxWords mixed =
            philox_round(PhiloxWords{{words_[0][i], words_[1][i], words_[2][i], words_[3][i]}},
                         key_low, key_high);
        words_[0][i] = mixed.elem[0];
        words_[1][i] = mixed.elem[1];
        words_[2][i] = mixed.elem[2];
        words_[3][i] = mixed.elem[3];
      }
      key_low += kPhiloxKeyStepLow;
      key_high += kPhiloxKeyStepHigh;
    }
  }

  void compare(const uint32_t (&digits)[kTileGroups], bool threshold_digit) {
    const uint32_t limit = threshold_digit ? ~0u : 0u;
#pragma omp simd
    for (int i = 0; i < kTileGroups; ++i) {
      below_[i] = (limit & (~digits[i] | below_[i])) | (~digits[i] & below_[i]);
    }
  }

  void turn_below(int by) {
#pragma omp simd
    for (int i = 0; i < kTileGroups; ++i) below_[i] = turned(below_[i], by);
  }

  uint32_t words_[4][kTileGroups];
  uint32_t below_[kTileGroups] = {};  // below the threshold in the digits compared so far
};

}  // namespace

DropoutMask::DropoutMask(const Dropout& dropout) : site_(dropout.site) {
  if (dropout.probability == 0.0f) return;
  const uint64_t* random = dropout.random.as<uint64_t>();
  seed_ = random[0];
  step_ = random[1];
  threshold_ = drop_threshold(dropout.probability);
  keep_factor_ = 1.0f / (1.0f - dropout.probability);
}

void DropoutMask::draw(int64_t first_element, int64_t count, uint8_t* mask) const {
  const int64_t bytes = (count + 7) / 8;
  const int64_t first_byte = first_element / 8;
  int64_t done = 0;
  while (done < bytes) {
    const int64_t group = (first_byte + done) / 4;
    int64_t groups[kTileGroups];
    std::iota(groups, groups + kTileGroups, group);
    const GroupTile tile(seed_, step_, site_, threshold_, groups);
    const int64_t skipped = first_byte + done - group * 4;
    const int64_t written = std::min(bytes - done, int64_t{kTileGroups} * 4 - skipped);
    for (int64_t i = 0; i < written; ++i) {
      const int64_t byte = skipped + i;
      mask[done + i] = static_cast<uint8_t>(tile.kept(byte / 4) >> (8 * (byte % 4)));
    }
    done += written;
  }
}

void DropoutMask::draw_rows(const DropoutRows& rows, uint8_t* mask) const {
  const int64_t groups_per_row = (rows.elements_per_row + kDropoutGroup - 1) / kDropoutGroup;
  const int64_t total = rows.rows * groups_per_row;
  for (int64_t begin = 0; begin < total; begin += kTileGroups) {
    int64_t elements[kTileGroups];  // first of each group, counted from the start of the first row
    int64_t groups[kTileGroups];
    for (int64_t i = 0; i < kTileGroups; ++i) {
      const int64_t at = std::min(begin + i, total - 1);
      elements[i] = at / groups_per_row * rows.row_stride + at % groups_per_row * kDropoutGroup;
      groups[i] = (rows.first_element + elements[i]) / kDropoutGroup;
    }
    const GroupTile tile(seed_, step_, site_, threshold_, groups);
    for (int64_t i = 0; i < std::min<int64_t>(kTileGroups, total - begin); ++i) {
      const uint32_t word = tile.kept(i);
      std::memcpy(mask + elements[i] / 8, &word, sizeof(word));
    }
  }
}

void DropoutMask::write_factors(const uint8_t* mask, int64_t count, float* factors) const {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    factors[i] = ((mask[i / 8] >> (i % 8)) & 1) != 0 ? keep_factor_ : 0.0f;
  }
}

}  // namespace bertha
