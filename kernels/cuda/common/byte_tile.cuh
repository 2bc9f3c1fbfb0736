#pragma once

#include <cstdint>

namespace bertha {

/// Turns the 4 x 4 bytes of four words: byte i of word j becomes byte j of word i.
__device__ __forceinline__ void transpose_bytes(uint32_t& a, uint32_t& b, uint32_t& c,
                                                uint32_t& d) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140);
  const uint32_t ab_high = __byte_perm(a, b, 0x7362);
  const uint32_t cd_low = __byte_perm(c, d, 0x5140);
  const uint32_t cd_high = __byte_perm(c, d, 0x7362);
  a = __byte_perm(ab_low, cd_low, 0x5410);
  b = __byte_perm(ab_low, cd_low, 0x7632);
  c = __byte_perm(ab_high, cd_high, 0x5410);
  d = __byte_perm(ab_high, cd_high, 0x7632);
}

/// Whole rows of bytes in shared memory, from where they go to a transposed matrix: 16, or 32,
/// which leave in the 32 bytes of whole sectors. The second 16 lie in the other half of the banks,
/// so that neither way has bank conflicts.
template <int kTileRows, int kColumns>
struct ByteTile {
  static constexpr int kWords = kColumns / 4;  // of a row
  static constexpr int kStretch = 16;          // bytes of a column that a thread stores
  static constexpr int kStretches = kTileRows / kStretch;
  static_assert(kTileRows % kStretch == 0 && kStretches <= 2 && kWords % 32 == 0);

  /// Eight neighbouring bytes of a row.
  __device__ __forceinline__ void put(int row, int column, const uint2& bytes) {
    *reinterpret_cast<uint2*>(&words[row][place(row / kStretch, column / 4)]) = bytes;
  }

  /// Stores all columns of the first `left` rows, a multiple of 16, by all threads of the block,
  /// which synchronise before. `to`: where the first row's byte of column 0 goes, at a multiple of
  /// 16 bytes, `stride` before that of column 1.
  __device__ __forceinline__ void store_columns(uint8_t* to, int64_t stride, int64_t left) const {
    for (int i = static_cast<int>(threadIdx.x); i < kWords * kStretches;
         i += static_cast<int>(blockDim.x)) {
      const int stretch = i % kStretches;
      const int word = i / kStretches;
      if (stretch * kStretch >= left) continue;
      uint32_t bytes[kStretch];
#pragma unroll
      for (int row = 0; row < kStretch; ++row) {
        bytes[row] = words[stretch * kStretch + row][place(stretch, word)];
      }
#pragma unroll
      for (int row = 0; row < kStretch; row += 4) {
        transpose_bytes(bytes[row], bytes[row + 1], bytes[row + 2], bytes[row + 3]);
      }
      uint8_t* const first = to + 4 * word * stride + stretch * kStretch;
#pragma unroll
      for (int column = 0; column < 4; ++column) {
        *reinterpret_cast<uint4*>(first + column * stride) =
            make_uint4(bytes[column], bytes[4 + column], bytes[8 + column], bytes[12 + column]);
      }
    }
  }

  static __device__ __forceinline__ int place(int stretch, int word) {
    return word ^ (16 * stretch);
  }

  alignas(16) uint32_t words[kTileRows][kWords];
};

}  // namespace bertha
