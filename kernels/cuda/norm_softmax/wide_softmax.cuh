#pragma once

#include "kernels/cuda/common/compute.cuh"
#include "kernels/cuda/common/raw_pack.cuh"
#include "kernels/cuda/norm_softmax/row_packs.cuh"
#include "kernels/ops/softmax.h"

namespace bertha {

// Softmax and log-softmax of plain 16-bit rows that have a block each, on leaving_rows.cuh and
// bulk_rows.cuh, and what the arithmetic of all softmax rows is made of.

/// 2^x of the hardware, and 0 below 2^-126: four instructions less than a result that may be
/// smaller, which is 0 in f16 and nothing beside a row's largest element in bf16.
__device__ __forceinline__ float hardware_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

inline constexpr float kLog2E = 1.4426950408889634f;

/// e^x. f32 takes the exact library function; for 16-bit results the hardware's 2^x is exact
/// enough.
template <class T>
__device__ __forceinline__ Compute<T> exponential(Compute<T> x) {
  if constexpr (std::is_same_v<T, double>) {
    return exp(x);
  } else if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return hardware_exp2(x * kLog2E);
  }
}

__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }

template <class Number>
__device__ __forceinline__ Number minus_infinity() {
  return -static_cast<Number>(INFINITY);
}

/// Adds to the sum that dx of a row takes: y dy of an element, for log-softmax dy.
template <bool kIsLog>
__device__ __forceinline__ void add_to_gradient_sum(float& sum, float dy, float y) {
  if constexpr (kIsLog) {
    if (y != minus_infinity<float>()) sum += dy;
  } else {
    sum = fmaf(dy, y, sum);
  }
}

/// dx of an element; sum is that of y dy, and for log-softmax of dy.
template <class T, bool kIsLog>
__device__ __forceinline__ Compute<T> gradient_of(Compute<T> dy, Compute<T> y, Compute<T> sum,
                                                  Compute<T> scale) {
  if constexpr (kIsLog) {
    const bool is_out = y == minus_infinity<Compute<T>>();
    return is_out ? Compute<T>(0) : scale * (dy - exponential<T>(y) * sum);
  } else {
    return scale * y * (dy - sum);
  }
}

template <class T, SoftmaxKind kKind>
struct WideSoftmax {
  using Element = T;
  static constexpr int kInputs = 1;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  const T* inputs[kInputs];
  T* output;

  __device__ static uint32_t absent() { return RawPack<T, 2>::least_pair(); }

  /// e^(x - top) of a warp's own top; a row of minus infinities is shifted by nothing. A thread that
  /// has no registers for its exponentials takes them again in the end.
  template <class Rows>
  __device__ __forceinline__ void run(Rows& rows) const {
    constexpr int N = Rows::kPackElements;
    constexpr int kLanes = Rows::kMeetingLanes;
    constexpr bool kKeeps = Rows::kInRegisters && !kIsLog;
    float held[kKeeps ? Rows::kPacks : 1][N];
    float top[1] = {rows.largest()};  // NaN is none; it comes back with the sum
    reduce_lanes(top, kWarpThreads, Larger());
    const bool is_closed = top[0] == minus_infinity<float>();
    const float shift = is_closed ? 0.0f : top[0];
    float sum[1] = {};
    if constexpr (!kKeeps) rows.keep_packed();
    rows.for_packs([&](int p, auto& v) {
      float pack_sum = 0.0f;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float e = exponential<T>(v[0][i] - shift);
        if constexpr (kKeeps) held[p][i] = e;
        pack_sum += e;
      }
      sum[0] += pack_sum;
    });
    reduce_lanes(sum, kWarpThreads, Add());

    const float own[2] = {top[0], sum[0]};
    float part[2] = {minus_infinity<float>(), 0.0f};
    rows.meet(own, part);
    top[0] = part[0];
    reduce_lanes(top, kLanes, Larger());
    const float row_shift = top[0] == minus_infinity<float>() ? 0.0f : top[0];
    sum[0] = part[0] == minus_infinity<float>() ? part[1]
                                                : part[1] * exponential<T>(part[0] - row_shift);
    reduce_lanes(sum, kLanes, Add());

    if constexpr (kKeeps) {
      // Where the warp found nothing its own exponentials are 0, and must stay that.
      const float smaller = is_closed ? 1.0f : exponential<T>(shift - row_shift);
      const float factor = sum[0] == 0.0f ? 0.0f : smaller / sum[0];
      rows.for_own_packs([&](int p) {
        float y[N];
#pragma unroll
        for (int i = 0; i < N; ++i) y[i] = held[p][i] * factor;
        rows.store(p, y);
      });
    } else {
      rows.keep_packed();
      // Of the logarithm that is taken away; where nothing is open, 2^(-infinity) is 0.
      const float nothing = kIsLog ? 0.0f : -minus_infinity<float>();
      const float less = sum[0] == 0.0f ? nothing : (kIsLog ? logf(sum[0]) : log2f(sum[0]));
      rows.for_packs([&](int p, auto& v) {
        float y[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float difference = v[0][i] - row_shift;
          y[i] = kIsLog ? difference - less : hardware_exp2(fmaf(difference, kLog2E, -less));
        }
        rows.store(p, y);
      });
    }
  }
};

template <class T, SoftmaxKind kKind>
struct WideSoftmaxGradient {
  using Element = T;
  static constexpr int kInputs = 2;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  const T* inputs[kInputs];  // dy, y
  T* output;                 // dx, may be dy or y
  float scale;

  __device__ static uint32_t absent() { return 0; }

  template <class Rows>
  __device__ __forceinline__ void run(Rows& rows) const {
    constexpr int N = Rows::kPackElements;
    float sum[1] = {};
    rows.for_packs([&](int, auto& v) {
      float pack_sum = 0.0f;
#pragma unroll
      for (int i = 0; i < N; ++i) add_to_gradient_sum<kIsLog>(pack_sum, v[0][i], v[1][i]);
      sum[0] += pack_sum;
    });
    reduce_lanes(sum, kWarpThreads, Add());
    float part[1] = {};
    rows.meet(sum, part);
    reduce_lanes(part, Rows::kMeetingLanes, Add());
    rows.keep_packed();
    rows.for_packs([&](int p, auto& v) {
      float gradient[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        gradient[i] = gradient_of<T, kIsLog>(v[0][i], v[1][i], part[0], scale);
      }
      rows.store(p, gradient);
    });
  }
};

}  // namespace bertha
