#pragma once

// Thin wrappers of the tensor-core and copy instructions of sm_80 on, and stmatrix of sm_90 on.
// Fragments are laid out as for mma.m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16"): with
// g = lane / 4, c = lane % 4 a lane holds of an accumulator the rows g, g + 8 and of each the
// columns 2c, 2c + 1.

#include <type_traits>

#include "kernels/base/cuda/approximate.cuh"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/shared_address.cuh"
#include "kernels/base/cuda/types.cuh"

namespace bertha {

/// cp.async of 16 bytes to shared memory, bypassing L1; zeros when not `valid`.
__device__ __forceinline__ void cp_async_16(uint32_t to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

/// cp.async of 4 bytes to shared memory; zeros when not `valid`.
__device__ __forceinline__ void cp_async_4(uint32_t to, const void* from, bool valid) {
  const int bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

/// Waits for all cp.async of this thread; those by other threads need a barrier after it.
__device__ __forceinline__ void cp_async_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Four 8x8 matrices of 16-bit elements; lanes 8i .. 8i + 7 give the row addresses of matrix i.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

/// The same, each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

/// Two matrices, transposed; lanes 8i .. 8i + 7 give the row addresses of matrix i.
__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&to)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(address));
}

/// Stores four 8x8 matrices; lanes 8i .. 8i + 7 give the rows of matrix i.
__device__ __forceinline__ void stmatrix_x4(uint32_t address, const uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

/// The same, each matrix transposed.
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t address, const uint32_t (&from)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
      : "memory");
}

/// 16 bytes of shared memory.
__device__ __forceinline__ uint4 load_shared_16(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

/// sum += a b for a 16x16 tile of a and a 16x8 tile of b.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Two elements in one register, `low` at the lower address.
template <class T>
__device__ __forceinline__ uint32_t packed(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

/// The two elements of a register, the inverse of packed().
template <class T>
__device__ __forceinline__ float2 unpacked(uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u));
  }
}

/// packed(max(low, 0), max(high, 0)), in one instruction.
template <class T>
__device__ __forceinline__ uint32_t packed_positive(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, __half>) {
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

/// The left operand of 16 rows and 16 columns out of two accumulators of 8 columns.
template <class T>
__device__ __forceinline__ void pack_a_operand(uint32_t (&a)[4], const float (&left)[4],
                                               const float (&right)[4]) {
  a[0] = packed<T>(left[0], left[1]);
  a[1] = packed<T>(left[2], left[3]);
  a[2] = packed<T>(right[0], right[1]);
  a[3] = packed<T>(right[2], right[3]);
}

/// 1 / x to 1 unit in the last place; x up to 2^126.
__device__ __forceinline__ float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Bytes of `low` (0 to 3) and `high` (4 to 7) as the nibbles of `selector` say; a nibble with its
/// highest bit set spreads the highest bit of that byte over the whole byte.
__device__ __forceinline__ uint32_t permuted_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

/// All ones if the highest bit of byte `byte` of `word` is set, else zero.
__device__ __forceinline__ uint32_t mask_of_byte(uint32_t word, int byte) {
  return permuted_bytes(word, 0, 0x1111u * static_cast<uint32_t>(8 + byte));
}

/// The same in the lower half for `low` and in the upper half for `high`.
__device__ __forceinline__ uint32_t masks_of_byte(uint32_t low, uint32_t high, int byte) {
  return permuted_bytes(low, high, 0xCC88u + 0x1111u * static_cast<uint32_t>(byte));
}

__device__ __forceinline__ float masked(float value, uint32_t mask) {
  return __uint_as_float(__float_as_uint(value) & mask);
}

}  // namespace bertha
