#include "tests/cuda/wgmma_tiles.h"

#include <gtest/gtest.h>

#include "tests/cuda/gpu.h"

namespace bertha::testing {
namespace {

constexpr int kSide = 64;
constexpr DType kHalves[] = {DType::kF16, DType::kBF16};

std::vector<float> transposed(const std::vector<float>& tile) {
  std::vector<float> other(tile.size());
  for (size_t i = 0; i < tile.size(); ++i) other[i % kSide * kSide + i / kSide] = tile[i];
  return other;
}

/// Small integers: every product and sum is exact in every dtype and any order, so that a wrong
/// descriptor shows as the elements that differ.
std::vector<float> small_integers(int salt) {
  std::vector<float> values(kSide * kSide);
  for (int i = 0; i < kSide * kSide; ++i) {
    values[static_cast<size_t>(i)] = static_cast<float>((i * 37 + i / kSide * 11 + salt) % 17 - 8);
  }
  return values;
}

using CudaWgmmaTiles = NeedsSm90a;

TEST_F(CudaWgmmaTiles, EveryOperandSourceMultipliesExactly) {
  const std::vector<float> a = small_integers(3);  // [m][k]
  const std::vector<float> b = small_integers(8);  // [n][k]
  std::vector<float> want(a.size());
  for (int m = 0; m < kSide; ++m) {
    for (int n = 0; n < kSide; ++n) {
      for (int k = 0; k < kSide; ++k) {
        want[static_cast<size_t>(m * kSide + n)] +=
            a[static_cast<size_t>(m * kSide + k)] * b[static_cast<size_t>(n * kSide + k)];
      }
    }
  }
  for (const DType dtype : kHalves) {
    for (const Left left : {Left::kRegisters, Left::kShared, Left::kSharedTransposed}) {
      for (const bool right_transposed : {false, true}) {
        const std::vector<float> got = wgmma_gemm(
            dtype, left, right_transposed, left == Left::kSharedTransposed ? transposed(a) : a,
            right_transposed ? transposed(b) : b);
        size_t wrong = 0;
        size_t first = 0;
        for (size_t i = got.size(); i-- > 0;) {
          if (got[i] == want[i]) continue;
          ++wrong;
          first = i;
        }
        EXPECT_EQ(wrong, 0u) << name(dtype) << ", left operand source " << static_cast<int>(left)
                             << ", right transposed " << right_transposed << ": first at row "
                             << first / kSide << ", column " << first % kSide << ", got "
                             << got[first] << ", want " << want[first];
      }
    }
  }
}

TEST_F(CudaWgmmaTiles, BoxesComeFromTheirPlaceAndZerosFromBehindTheMatrix) {
  constexpr int kRows = 90;
  constexpr int kColumns = 192;
  std::vector<float> matrix(kRows * kColumns);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i % 251) + 1.0f;
  for (const DType dtype : kHalves) {
    for (const int row : {0, 7, 26, 40, 89}) {
      const std::vector<float> got = copied_box(dtype, matrix, kRows, kColumns, row, 128);
      for (int i = 0; i < kSide * kSide; ++i) {
        const int from = row + i / kSide;
        const float want =
            from < kRows ? matrix[static_cast<size_t>(from * kColumns + 128 + i % kSide)] : 0.0f;
        ASSERT_EQ(got[static_cast<size_t>(i)], want)
            << name(dtype) << ", box at row " << row << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace bertha::testing
