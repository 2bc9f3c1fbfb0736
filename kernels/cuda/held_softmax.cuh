#pragma once

#include "kernels/cuda/held_rows.cuh"
#include "kernels/ops/softmax.h"

namespace bertha {

// Softmax and log-softmax of plain 16-bit rows on held_rows.cuh, and what the arithmetic of all
// softmax rows is made of.

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

/// What an operation has that keeps nothing of columns and reads nothing of rows.
struct ElementsAlone {
  template <int N, int kPacks>
  struct OfColumns {
    template <class Operation, class Rows>
    __device__ OfColumns(const Operation&, const Rows& rows)
        : lanes(meeting_lanes(rows.meeting_warps())) {}
    int lanes;  // that look at other warps' numbers
  };
  struct OfRow {};
  __device__ OfRow of_row(int64_t, int64_t) const { return {}; }
  template <class Rows, class Columns>
  __device__ void finish(const Rows&, const Columns&, float*) const {}
};

template <class T, SoftmaxKind kKind>
struct HeldSoftmax : ElementsAlone {
  using Element = T;
  static constexpr int kInputs = 1;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  static constexpr int kMostKept = 32;  // numbers of a thread
  const T* inputs[kInputs];
  T* output;

  HeldSoftmax(const T* x, T* y) : inputs{x}, output(y) {}

  /// e^(x - top) of a warp's own top; a row of minus infinities is shifted by nothing. A thread that
  /// has no registers for its exponentials takes them again in the end.
  template <class Rows, class Columns>
  __device__ __forceinline__ void run(Rows& rows, const Columns& of_columns, OfRow) const {
    constexpr int N = Rows::kPackElements;
    constexpr bool kKeeps = !kIsLog && Rows::kPacks * N <= kMostKept;
    float held[kKeeps ? Rows::kPacks : 1][N];
    float top[1] = {rows.largest()};  // NaN is none; it comes back with the sum
    reduce_lanes(top, kWarpThreads, Larger());
    const float shift = top[0] == minus_infinity<float>() ? 0.0f : top[0];
    float sum[1] = {};
    if constexpr (!kKeeps) rows.keep_packed();
    rows.for_packs([&](int p, auto& v) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float e = exponential<T>(v[0][i] - shift);
        if constexpr (kKeeps) held[p][i] = e;
        sum[0] += e;
      }
    });
    reduce_lanes(sum, kWarpThreads, Add());
    const float own[2] = {top[0], sum[0]};
    rows.meet(own);
    float row_shift = shift;
    if (rows.has_others()) {
      float part[2] = {minus_infinity<float>(), 0.0f};
      const int other = rows.lane() % of_columns.lanes;
      if (other < rows.meeting_warps()) rows.left_by(other, part);
      top[0] = part[0];
      reduce_lanes(top, of_columns.lanes, Larger());
      row_shift = top[0] == minus_infinity<float>() ? 0.0f : top[0];
      sum[0] = part[0] == minus_infinity<float>() ? part[1]
                                                  : part[1] * exponential<T>(part[0] - row_shift);
      reduce_lanes(sum, of_columns.lanes, Add());
    }
    if constexpr (kKeeps) {
      const float factor = sum[0] == 0.0f ? 0.0f : exponential<T>(shift - row_shift) / sum[0];
      rows.for_own_packs([&](int p) {
        float y[N];
#pragma unroll
        for (int i = 0; i < N; ++i) y[i] = held[p][i] * factor;
        rows.store(p, y);
      });
      return;
    }
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
};

template <class T, SoftmaxKind kKind>
struct HeldSoftmaxGradient : ElementsAlone {
  using Element = T;
  static constexpr int kInputs = 2;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  const T* inputs[kInputs];  // dy, y
  T* output;                 // dx, may be dy
  float scale;

  HeldSoftmaxGradient(const T* dy, const T* y, T* dx, float by)
      : inputs{dy, y}, output(dx), scale(by) {}

  template <class Rows, class Columns>
  __device__ __forceinline__ void run(Rows& rows, const Columns& of_columns, OfRow) const {
    constexpr int N = Rows::kPackElements;
    float sum[1] = {};
    rows.for_packs([&](int, auto& v) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if constexpr (kIsLog) {
          if (v[1][i] != minus_infinity<float>()) sum[0] += v[0][i];
        } else {
          sum[0] = fmaf(v[0][i], v[1][i], sum[0]);
        }
      }
    });
    reduce_lanes(sum, kWarpThreads, Add());
    rows.meet(sum);
    if (rows.has_others()) {
      sum[0] = 0.0f;
      const int other = rows.lane() % of_columns.lanes;
      if (other < rows.meeting_warps()) rows.left_by(other, sum);
      reduce_lanes(sum, of_columns.lanes, Add());
    }
    rows.keep_packed();
    rows.for_packs([&](int p, auto& v) {
      float gradient[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        gradient[i] = gradient_of<T, kIsLog>(v[0][i], v[1][i], sum[0], scale);
      }
      rows.store(p, gradient);
    });
  }
};

}  // namespace bertha
