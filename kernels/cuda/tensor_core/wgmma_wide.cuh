#pragma once

// The widest wgmma: 64 x 256, with 128 accumulators a thread.

#include <cuda_fp8.h>

#include "kernels/cuda/tensor_core/wgmma.cuh"

namespace bertha {

// sum = a b (+ sum when `add` is not 0). TYPES and MODIFIERS are parts of the instruction's text,
// which has to be a literal; the last argument is the operand of MODIFIERS.
#define BERTHA_WGMMA_64X256(TYPES, MODIFIERS, ...)                                                 \
  asm volatile(                                                                                    \
      "{.reg .pred add; setp.ne.b32 add, %130, 0; "                                                \
      "wgmma.mma_async.sync.aligned.m64n256" TYPES                                                 \
      " {"                                                                                         \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                     \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "           \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "           \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "           \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "     \
      "%111, "                                                                                     \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
      "%127}, "                                                                                    \
      "%128, %129, add, 1, 1" MODIFIERS ";}"                                                       \
      : BERTHA_WGMMA_SUM_32(0), BERTHA_WGMMA_SUM_32(32), BERTHA_WGMMA_SUM_32(64),                  \
        BERTHA_WGMMA_SUM_32(96)                                                                    \
      : "l"(a), "l"(b), "r"(add)__VA_OPT__(, ) __VA_ARGS__)

/// sum[64 x 256] = a[64 x k] b[k x 256] (+ sum when `add` is not 0) over k of 32 bytes, the inner
/// index of b along its columns: b is a tile of 256 rows. A, B: f16 or bf16, both the same, or fp8,
/// whose inner index runs along the columns of a too.
template <class A, class B, Inner kInnerA = Inner::kColumns>
__device__ __forceinline__ void wgmma_64x256(float (&sum)[128], uint64_t a, uint64_t b, int add) {
  constexpr int kTransposedA = kInnerA == Inner::kRows ? 1 : 0;
  if constexpr (sizeof(A) == 1) {
    static_assert(kInnerA == Inner::kColumns && std::is_same_v<B, __nv_fp8_e4m3>);
    if constexpr (std::is_same_v<A, __nv_fp8_e4m3>) {
      BERTHA_WGMMA_64X256("k32.f32.e4m3.e4m3", "");
    } else {
      BERTHA_WGMMA_64X256("k32.f32.e5m2.e4m3", "");
    }
  } else if constexpr (std::is_same_v<A, __half>) {
    BERTHA_WGMMA_64X256("k16.f32.f16.f16", ", %131, 0", "n"(kTransposedA));
  } else {
    BERTHA_WGMMA_64X256("k16.f32.bf16.bf16", ", %131, 0", "n"(kTransposedA));
  }
}
#undef BERTHA_WGMMA_64X256

/// Begins sum[64 x 256] (+)= a[64 x k] b[k x 256] over k of 128 bytes, and returns when this warp's
/// earlier products are done. a and b: see wgmma_tile(). add: 0 overwrites `sum`, otherwise adds.
template <class A, class B = A, Inner kInnerA = Inner::kColumns>
__device__ __forceinline__ void wgmma_64x256_block(float (&sum)[128], uint64_t a, uint64_t b,
                                                   int add) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    wgmma_64x256<A, B, kInnerA>(sum, wgmma_step<kInnerA>(a, step),
                                wgmma_step<Inner::kColumns>(b, step), add + step);
  }
  wgmma_commit();
  wgmma_wait<1>();
}

}  // namespace bertha
