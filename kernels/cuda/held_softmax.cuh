#pragma once

#include "kernels/cuda/held_rows.cuh"
#include "kernels/ops/softmax.h"

namespace bertha {

// Softmax and log-softmax of plain 16-bit rows on held_rows.cuh, and what the arithmetic of all
// softmax rows is made of.

/// e^x. f32 takes the exact library function; for 16-bit results the hardware's 2^x is exact
/// enough.
template <class T>
__device__ __forceinline__ Compute<T> exponential(Compute<T> x) {
  if constexpr (std::is_same_v<T, double>) {
    return exp(x);
  } else if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return __expf(x);
  }
}

__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }

template <class Number>
__device__ __forceinline__ Number minus_infinity() {
  return -static_cast<Number>(INFINITY);
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
  const T* inputs[kInputs];
  T* output;

  HeldSoftmax(const T* x, T* y) : inputs{x}, output(y) {}

  /// e^(x - top) of a warp's own top; a row of minus infinities is shifted by nothing.
  template <class Rows, class Columns>
  __device__ __forceinline__ void run(Rows& rows, const Columns& of_columns, OfRow) const {
    constexpr int N = Rows::kPackElements;
    float held[Rows::kPacks][N];
    float top[1] = {minus_infinity<float>()};
    rows.for_packs([&](int p, auto& v) {  // NaN loses here; it comes back with the sum
#pragma unroll
      for (int i = 0; i < N; ++i) {
        held[p][i] = v[0][i];
        top[0] = Larger()(top[0], v[0][i]);
      }
    });
    reduce_lanes(top, kWarpThreads, Larger());
    const float shift = top[0] == minus_infinity<float>() ? 0.0f : top[0];
    float sum[1] = {};
    rows.for_own_packs([&](int p) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float e = exponential<T>(held[p][i] - shift);
        if constexpr (!kIsLog) held[p][i] = e;
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
      sum[0] = part[0] == minus_infinity<float>() ? part[1] : part[1] * __expf(part[0] - row_shift);
      reduce_lanes(sum, of_columns.lanes, Add());
    }
    float factor = 0.0f;  // of e, or log(sum)
    if (sum[0] != 0.0f) factor = kIsLog ? logf(sum[0]) : __expf(shift - row_shift) / sum[0];
    rows.for_own_packs([&](int p) {
      float y[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        y[i] = kIsLog ? held[p][i] - row_shift - factor : held[p][i] * factor;
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
        if constexpr (kIsLog) {
          const bool is_out = v[1][i] == minus_infinity<float>();
          gradient[i] = is_out ? 0.0f : scale * (v[0][i] - exponential<T>(v[1][i]) * sum[0]);
        } else {
          gradient[i] = scale * v[1][i] * (v[0][i] - sum[0]);
        }
      }
      rows.store(p, gradient);
    });
  }
};

}  // namespace bertha
