#pragma once

#include "kernels/cuda/pieces/types.cuh"

namespace bertha {

// Sixteen bytes of global memory that only pass through a kernel: what is read takes no place in L1,
// what is written is the first to leave L2. Short kernels gain by both together and by neither alone:
// LayerNorm, softmax and PReLU of 6 to 10 us up to 5 % (kernels/measured/rows.md). Blocks with wide
// rows, which find gamma and beta in L1 meanwhile, lose up to 2 %, and so do packs of 8 bytes.

__device__ __forceinline__ uint4 load_passing(const void* from) {
  uint4 words;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}

__device__ __forceinline__ void store_passing(void* to, const uint4& words) {
  asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}

}  // namespace bertha
