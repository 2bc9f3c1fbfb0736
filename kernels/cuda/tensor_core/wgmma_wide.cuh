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
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),        \
        "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),      \
        "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),  \
        "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),  \
        "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),  \
        "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]),  \
        "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),  \
        "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]),  \
        "+f"(sum[48]), "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]),  \
        "+f"(sum[54]), "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]),  \
        "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63]), "+f"(sum[64]), "+f"(sum[65]),  \
        "+f"(sum[66]), "+f"(sum[67]), "+f"(sum[68]), "+f"(sum[69]), "+f"(sum[70]), "+f"(sum[71]),  \
        "+f"(sum[72]), "+f"(sum[73]), "+f"(sum[74]), "+f"(sum[75]), "+f"(sum[76]), "+f"(sum[77]),  \
        "+f"(sum[78]), "+f"(sum[79]), "+f"(sum[80]), "+f"(sum[81]), "+f"(sum[82]), "+f"(sum[83]),  \
        "+f"(sum[84]), "+f"(sum[85]), "+f"(sum[86]), "+f"(sum[87]), "+f"(sum[88]), "+f"(sum[89]),  \
        "+f"(sum[90]), "+f"(sum[91]), "+f"(sum[92]), "+f"(sum[93]), "+f"(sum[94]), "+f"(sum[95]),  \
        "+f"(sum[96]), "+f"(sum[97]), "+f"(sum[98]), "+f"(sum[99]), "+f"(sum[100]),                \
        "+f"(sum[101]), "+f"(sum[102]), "+f"(sum[103]), "+f"(sum[104]), "+f"(sum[105]),            \
        "+f"(sum[106]), "+f"(sum[107]), "+f"(sum[108]), "+f"(sum[109]), "+f"(sum[110]),            \
        "+f"(sum[111]), "+f"(sum[112]), "+f"(sum[113]), "+f"(sum[114]), "+f"(sum[115]),            \
        "+f"(sum[116]), "+f"(sum[117]), "+f"(sum[118]), "+f"(sum[119]), "+f"(sum[120]),            \
        "+f"(sum[121]), "+f"(sum[122]), "+f"(sum[123]), "+f"(sum[124]), "+f"(sum[125]),            \
        "+f"(sum[126]), "+f"(sum[127])                                                             \
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

/// Begins sum[64 x 256] (+)= a[64 x k] b[k x 256] over k of 128 bytes, and returns when what this
/// warp had begun before is done. a and b: see wgmma_tile(). add: 0 overwrites `sum`, more adds to
/// it.
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
