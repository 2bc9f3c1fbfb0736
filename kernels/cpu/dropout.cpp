#include "kernels/cpu/dropout.h"

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
    std::fill_n(undecided_, kTileGroups, ~0u);
    for (int block = 0; block < 8; ++block) {
      digits_of(seed, step, site, groups, block);
      compare(block, threshold);
      if (!is_any_undecided()) break;
    }
  }

  uint32_t kept(int64_t i) const { return ~dropped_[i]; }

 private:
  /// dropout_digits of every group.
  void digits_of(uint64_t seed, uint64_t step, uint32_t site, const int64_t (&groups)[kTileGroups],
                 int block) {
    for (int i = 0; i < kTileGroups; ++i) {
      const uint64_t index = static_cast<uint64_t>(groups[i]) * 8 + static_cast<uint64_t>(block);
      lane_[0][i] = static_cast<uint32_t>(index);
      lane_[1][i] = static_cast<uint32_t>(index >> 32);
      lane_[2][i] = site;
      lane_[3][i] = static_cast<uint32_t>(step);
    }
    uint32_t key_low = static_cast<uint32_t>(seed);
    uint32_t key_high = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kDropoutRounds; ++round) {
#pragma omp simd
      for (int i = 0; i < kTileGroups; ++i) {
        const PhiloxWords mixed = philox_round(
            PhiloxWords{{lane_[0][i], lane_[1][i], lane_[2][i], lane_[3][i]}}, key_low, key_high);
        lane_[0][i] = mixed.lane[0];
        lane_[1][i] = mixed.lane[1];
        lane_[2][i] = mixed.lane[2];
        lane_[3][i] = mixed.lane[3];
      }
      key_low += kPhiloxKeyStepLow;
      key_high += kPhiloxKeyStepHigh;
    }
  }

  void compare(int block, uint32_t threshold) {
    for (int word = 0; word < 4; ++word) {
      const uint32_t digit = (threshold >> (31 - 4 * block - word)) & 1u;
      const uint32_t below = digit == 0 ? 0u : ~0u;
#pragma omp simd
      for (int i = 0; i < kTileGroups; ++i) {
        const uint32_t digits = lane_[word][i];
        dropped_[i] |= undecided_[i] & below & ~digits;
        undecided_[i] &= ~(digits ^ below);
      }
    }
  }

  bool is_any_undecided() const {
    uint32_t any = 0;
    for (int i = 0; i < kTileGroups; ++i) any |= undecided_[i];
    return any != 0;
  }

  uint32_t lane_[4][kTileGroups];
  uint32_t dropped_[kTileGroups] = {};
  uint32_t undecided_[kTileGroups];
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
    int64_t elements[kTileGroups];  // first of each group, counted from that of the first row
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
