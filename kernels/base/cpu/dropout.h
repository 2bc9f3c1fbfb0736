#pragma once

#include <cstdint>

#include "kernels/base/arguments.h"

namespace bertha {

/// Rows of elements at a fixed distance. All members except `rows` and `elements_per_row` are
/// multiples of 32.
struct DropoutRows {
  int64_t first_element = 0;
  int64_t row_stride = 0;
  int64_t rows = 0;
  int64_t elements_per_row = 0;
};

/// The decisions of one operation's dropout, as saved bits and as factors: 0 for dropped elements,
/// 1 / (1 - p) for kept ones. Elements come in eights, a byte of the mask each.
class DropoutMask {
 public:
  explicit DropoutMask(const Dropout& dropout);

  /// False at probability 0: nothing is drawn, and every factor is 1.
  bool active() const { return threshold_ > 0; }

  /// Decides elements [first_element, first_element + count), both multiples of 8 except for the
  /// last element: bit i % 8 of mask[i / 8] is 1 if element first_element + i is kept.
  void draw(int64_t first_element, int64_t count, uint8_t* mask) const;

  /// The same for rows, the mask's rows at the same distance in bits: whole words of 32 are
  /// written.
  void draw_rows(const DropoutRows& rows, uint8_t* mask) const;

  /// factors[i] of the first `count` bits of `mask`.
  void write_factors(const uint8_t* mask, int64_t count, float* factors) const;

 private:
  uint64_t seed_ = 0;
  uint64_t step_ = 0;
  uint32_t site_ = 0;
  uint32_t threshold_ = 0;
  float keep_factor_ = 1.0f;
};

}  // namespace bertha
