#pragma once

// The tensor-core instructions of Hopper (sm_90a): wgmma, issued by the 4 warps of a warpgroup
// together, asynchronous, right operand in shared memory, left operand in registers or shared
// memory. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
//
// Tiles     Every tile here is "rows x 64 columns" of 16-bit elements: a row is 128 bytes, rows lie
//           one after the other, the tile starts at a multiple of 1,024 bytes, and its 16-byte
//           chunks are swizzled over 128 bytes: chunk c of row r lies at byte
//           r * 128 + (c ^ r % 8) * 16. That is what a TMA copy of a box of 64 columns writes under
//           CU_TENSOR_MAP_SWIZZLE_128B.
//
// Inner     One instruction sums over 16 of the inner index k. With the tile stored [m or n][k]
//           ("K-major") the next 16 are 32 bytes further along the rows: the swizzle is a function
//           of address bits, so the start address simply moves. With the tile stored [k][m or n]
//           ("MN-major", the transposed flag) the next 16 are 16 rows, 2,048 bytes, further.
//             GEMM                 left operand           right operand
//             Q K^T                Q [q][d] kColumns      K [key][d] kColumns
//             P V                  P in registers         V [key][d] kRows
//             dS^T Q               dS [q][key] kRows      Q [q][d] kRows
//
// Registers With warp w of the warpgroup, lane l, g = l / 4, c = l % 4: accumulator sum[4 n + i] is
//           row 16 w + g + 8 (i / 2), column 8 n + 2 c + i % 2; for each n the four of
//           mma.m16n8k16. Left operands are as for mma.m16n8k16 too: accumulators 8 k .. 8 k + 7,
//           packed in pairs, are the left operand of step k of the next GEMM.
//
// Compiler  A loop has left operands in registers that stay (queries) and others that are new in
//           each iteration (probabilities). With the second GEMM in flight over the end of the
//           loop, ptxas 13.0 gave both the same registers, and scores after the first tile were
//           wrong. A test finds it; so does the listing of HGMMA in the disassembly.

#include <type_traits>

#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/types.cuh"

namespace bertha {

inline constexpr int kWarpgroupThreads = 128;

/// Whether the inner index of a GEMM runs along the columns (K-major) or the rows (MN-major) of a
/// tile.
enum class Inner { kColumns, kRows };

/// Descriptor of a tile (file header) for the 16 inner indices from 16 * step on. The tile has at
/// least 64 rows, or 16 * (step + 1) if the inner index runs along the rows. In units of 16
/// bytes: bits 0-13 start address; 16-29 leading offset, from one 64-element pattern to the next
/// across the columns, unused because a tile has one pattern; 32-45 stride offset from 8 rows to
/// the next 8, 1,024 bytes; 49-51 row of the pattern at which the tile begins, 0; 62-63 = 1:
/// 128-byte swizzle.
template <Inner kInner>
__device__ __forceinline__ uint64_t wgmma_tile(uint32_t tile_address, int step) {
  constexpr uint32_t kStepBytes = kInner == Inner::kColumns ? 32 : 16 * 128;
  const uint32_t start = tile_address + static_cast<uint32_t>(step) * kStepBytes;
  constexpr uint64_t kStrideAndSwizzle = (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32);
  return kStrideAndSwizzle | (uint64_t{1} << 16) | ((start & 0x3FFFF) >> 4);
}

/// wgmma_tile(tile_address, 0), which the compiler then knows to be uniform: the descriptors of the
/// steps take one uniform instruction each instead of three and a wait. All lanes call it,
/// where they have not diverged since the last wgmma: after a wait for an mbarrier they may have.
__device__ __forceinline__ uint64_t uniform_wgmma_tile(uint32_t tile_address) {
  const uint64_t tile = wgmma_tile<Inner::kColumns>(tile_address, 0);  // the same for kRows
  return tile >> 32 << 32 | __shfl_sync(kFullWarp, static_cast<uint32_t>(tile), 0);
}

/// The descriptor `bytes` further, in few instructions: the addition never carries out of the
/// address field, because tiles end within the 2^18 bytes that it spans.
__device__ __forceinline__ uint64_t wgmma_offset(uint64_t tile, uint32_t bytes) {
  return (tile >> 32 << 32) | (static_cast<uint32_t>(tile) + (bytes >> 4));
}

/// The descriptor of step `step`, given the descriptor of step 0.
template <Inner kInner>
__device__ __forceinline__ uint64_t wgmma_step(uint64_t first, int step) {
  constexpr uint32_t kStepBytes = kInner == Inner::kColumns ? 32 : 16 * 128;
  return wgmma_offset(first, static_cast<uint32_t>(step) * kStepBytes);
}

/// Before the first wgmma, and again when other instructions wrote registers that a wgmma reads or
/// adds to. Shared memory written by ordinary stores needs fence_proxy_async() (barrier.cuh) in the
/// writing threads and then a barrier.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Closes a group of wgmma.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Returns when at most kPending committed groups of this warp are still running. Only then may
/// their registers be used and their shared memory be overwritten.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving uses of these registers over this point: a wgmma in flight reads
/// or writes them, of which it does not know. Takes no instruction.
template <int kCount>
__device__ __forceinline__ void hold_registers(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void hold_registers(uint32_t (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

// The operands of 8 and of 32 accumulators, from sum[first] on.
#define BERTHA_WGMMA_SUM_8(first)                                                     \
  "+f"(sum[first]), "+f"(sum[first + 1]), "+f"(sum[first + 2]), "+f"(sum[first + 3]), \
      "+f"(sum[first + 4]), "+f"(sum[first + 5]), "+f"(sum[first + 6]), "+f"(sum[first + 7])
#define BERTHA_WGMMA_SUM_32(first)                                                          \
  BERTHA_WGMMA_SUM_8(first), BERTHA_WGMMA_SUM_8(first + 8), BERTHA_WGMMA_SUM_8(first + 16), \
      BERTHA_WGMMA_SUM_8(first + 24)

// sum = a b (+ sum when the operand ADD is not 0). TYPES, ADD and INPUTS are parts of the
// instruction's text, which has to be a literal; the operands that they name follow.
#define BERTHA_WGMMA_64X64(TYPES, ADD, INPUTS, ...)                                              \
  asm volatile(                                                                                  \
      "{.reg .pred add; setp.ne.b32 add, " ADD                                                   \
      ", 0; "                                                                                    \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES                                        \
      " {"                                                                                       \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                   \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " INPUTS \
      ";}"                                                                                       \
      : BERTHA_WGMMA_SUM_32(0)                                                                   \
      : __VA_ARGS__)

/// sum[64 x 64] = a[64 x 16] b[16 x 64] (+ sum when `add` is not 0). a: this warp's 16 rows; b: see
/// wgmma_tile().
template <class T, Inner kInnerB>
__device__ __forceinline__ void wgmma_64x64x16(float (&sum)[32], const uint32_t (&a)[4], uint64_t b,
                                               int add) {
  constexpr int kTransposedB = kInnerB == Inner::kRows ? 1 : 0;
  if constexpr (std::is_same_v<T, __half>) {
    BERTHA_WGMMA_64X64("f16.f16", "%37", "{%32, %33, %34, %35}, %36, add, 1, 1, %38", "r"(a[0]),
                       "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposedB));
  } else {
    BERTHA_WGMMA_64X64("bf16.bf16", "%37", "{%32, %33, %34, %35}, %36, add, 1, 1, %38", "r"(a[0]),
                       "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposedB));
  }
}

/// The same, both operands in shared memory.
template <class T, Inner kInnerA, Inner kInnerB>
__device__ __forceinline__ void wgmma_64x64x16(float (&sum)[32], uint64_t a, uint64_t b, int add) {
  constexpr int kTransposedA = kInnerA == Inner::kRows ? 1 : 0;
  constexpr int kTransposedB = kInnerB == Inner::kRows ? 1 : 0;
  if constexpr (std::is_same_v<T, __half>) {
    BERTHA_WGMMA_64X64("f16.f16", "%34", "%32, %33, add, 1, 1, %35, %36", "l"(a), "l"(b), "r"(add),
                       "n"(kTransposedA), "n"(kTransposedB));
  } else {
    BERTHA_WGMMA_64X64("bf16.bf16", "%34", "%32, %33, add, 1, 1, %35, %36", "l"(a), "l"(b),
                       "r"(add), "n"(kTransposedA), "n"(kTransposedB));
  }
}
#undef BERTHA_WGMMA_64X64

/// Issues acc[64 x 64] (+)= left[64 x 64] right[64 x 64] as one group. left: registers of 16 inner
/// indices each; right: descriptor of a tile; kAdd: whether acc is added to.
template <class T, Inner kInner, bool kAdd>
__device__ __forceinline__ void wgmma_64x64x64(float (&acc)[32], const uint32_t (&left)[4][4],
                                               uint64_t right) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    wgmma_64x64x16<T, kInner>(acc, left[step], wgmma_step<kInner>(right, step), kAdd || step > 0);
  }
  wgmma_commit();
}

}  // namespace bertha
