#pragma once

#include "kernels/base/cuda/approximate.cuh"
#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/compute.cuh"
#include "kernels/rows/cuda/norm_softmax/generic_rows.cuh"
#include "kernels/rows/cuda/norm_softmax/pair_max.cuh"
#include "kernels/rows/cuda/norm_softmax/row_words.cuh"
#include "kernels/rows/ops/softmax.h"

namespace bertha {

// Softmax and log-softmax: of 16-bit rows on warp_per_row.cuh, block_per_row.cuh and tma_row.cuh,
// of all others on generic_rows.cuh.

/// e^x. f32 takes the exact library function. For 16-bit results the hardware's 2^x is exact
/// enough; it is 0 below 2^-126, which is 0 in f16 and negligible compared with a row's largest
/// element in bf16, and saves the four instructions of a smaller result.
template <class T>
__device__ __forceinline__ Compute<T> softmax_exp(Compute<T> x) {
  if constexpr (std::is_same_v<T, double>) {
    return exp(x);
  } else if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return exp2_approximate(x * kLog2E);
  }
}

template <class Number>
__device__ __forceinline__ Number minus_infinity() {
  return -static_cast<Number>(INFINITY);
}

template <class Load, class Store, SoftmaxKind kKind>
struct SoftmaxRows : OneInput<Load> {
  using T = typename Load::Element;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  static constexpr bool kDrops = kDraws<Store> && !kIsLog;
  static constexpr bool kInWords = kHasWords<Load, Store>;
  Store store;

  __device__ static uint32_t padding() {
    if constexpr (sizeof(Held<Load>) == 2) return minus_infinity_pair<T>();
    return 0xff800000u;  // of f32
  }

  template <class Row>
  __device__ __forceinline__ void run(Row& row) const {
    if constexpr (kIsGenericRow<Row>) {
      run_generic(row);
    } else if constexpr (Row::kHasOneWarp) {
      run_warp(row);
    } else {
      run_block(row);
    }
  }

 private:
  /// If all is minus infinity, nothing is subtracted, and the sum is 0. NaN is not a maximum; it
  /// comes back with the sum.
  template <class Row>
  __device__ __forceinline__ void run_warp(Row& row) const {
    constexpr int N = Row::kVecElements;
    float kept[Row::kVecs][N];
    float top[1] = {row.largest()};
    row.reduce(top, Larger());
    const float shift = top[0] == minus_infinity<float>() ? 0.0f : top[0];
    float sum[1] = {};
    row.for_vecs([&](int p, auto& v) {
      for (int i = 0; i < N; ++i) {
        const float difference = v[0][i] - shift;
        const float e = softmax_exp<T>(difference);
        kept[p][i] = kIsLog ? difference : e;
        sum[0] += e;
      }
    });
    row.reduce(sum, Add());
    float rest = 0.0f;  // 1 / sum, or log(sum)
    if (sum[0] != 0.0f) rest = kIsLog ? logf(sum[0]) : 1.0f / sum[0];
#pragma unroll
    for (int p = 0; p < Row::kVecs; ++p) {
      float y[N];
      for (int i = 0; i < N; ++i) y[i] = kIsLog ? kept[p][i] - rest : kept[p][i] * rest;
      row.store(p, y);
    }
  }

  template <class Row>
  __device__ void run_generic(Row& row) const {
    using Number = Compute<T>;
    constexpr int N = Row::kVecElements;
    // NaN loses here; it comes back with the sum.
    Number top[1] = {minus_infinity<Number>()};
    row.for_vecs([&](int64_t, auto& v) {
      for (int i = 0; i < N; ++i) top[0] = Larger()(top[0], v[0][i]);
    });
    row.reduce(top, Larger());

    // From a row of minus infinities nothing is subtracted, and its sum is 0.
    const Number shift = top[0] == minus_infinity<Number>() ? Number(0) : top[0];
    Number sum[1] = {};
    row.for_vecs([&](int64_t, auto& v) {
      Number vec_sum = 0;
      for (int i = 0; i < N; ++i) {
        const Number e = softmax_exp<T>(v[0][i] - shift);
        if constexpr (Row::kInRegisters && !kIsLog) v[0][i] = e;
        vec_sum += e;
      }
      sum[0] += vec_sum;
    });
    row.reduce(sum, Add());

    Number rest = 0;  // 1 / sum, or log(sum)
    if (sum[0] != Number(0)) rest = kIsLog ? log(sum[0]) : Number(1) / sum[0];
    const auto write = [&](int64_t column, auto& v, uint32_t bits) {
      Number y[N];
      for (int i = 0; i < N; ++i) {
        if constexpr (kIsLog) {
          y[i] = v[0][i] - shift - rest;
        } else {
          y[i] = (Row::kInRegisters ? v[0][i] : softmax_exp<T>(v[0][i] - shift)) * rest;
        }
      }
      if constexpr (kDrops) {
        store.template store<N>(row.place_of(column), y, bits);
      } else {
        put(store, row.place_of(column), y);
      }
    };
    if constexpr (kDrops) {
      if (store.drops()) return row.for_drawn_vecs(write);
    }
    row.for_vecs([&](int64_t column, auto& v) { write(column, v, ~0u); });
  }

  /// Online: e^(x - top) of each warp's own top, rescaled after the one exchange of tops and sums.
  /// A thread without registers for its exponentials takes them again in the end.
  template <class Row>
  __device__ __forceinline__ void run_block(Row& row) const {
    constexpr int N = Row::kVecElements;
    constexpr bool kKeeps = Row::kInRegisters && !kIsLog;
    float kept[kKeeps ? Row::kVecs : 1][N];
    float top[1] = {row.largest()};
    reduce_lanes(top, kWarpThreads, Larger());
    const bool is_masked = top[0] == minus_infinity<float>();
    const float shift = is_masked ? 0.0f : top[0];
    float sum[1] = {};
    if constexpr (!kKeeps) row.keep_packed();
    row.for_vecs([&](int p, auto& v) {
      float vec_sum = 0.0f;
      for (int i = 0; i < N; ++i) {
        const float e = softmax_exp<T>(v[0][i] - shift);
        if constexpr (kKeeps) kept[p][i] = e;
        vec_sum += e;
      }
      sum[0] += vec_sum;
    });
    reduce_lanes(sum, kWarpThreads, Add());
    float row_shift = 0.0f;
    // Of the parts that the lanes have.
    const auto combine = [&](const float(&part)[2], int lanes) {
      top[0] = part[0];
      reduce_lanes(top, lanes, Larger());
      row_shift = top[0] == minus_infinity<float>() ? 0.0f : top[0];
      sum[0] = part[0] == minus_infinity<float>() ? part[1]
                                                  : part[1] * softmax_exp<T>(part[0] - row_shift);
      reduce_lanes(sum, lanes, Add());
    };
    float part[2] = {minus_infinity<float>(), 0.0f};
    row.exchange({top[0], sum[0]}, part);
    combine(part, Row::kMostWarps);
    if constexpr (Row::kHasCluster) {
      part[0] = minus_infinity<float>();
      part[1] = 0.0f;
      row.exchange_blocks({top[0], sum[0]}, part);
      combine(part, kMostRowCluster);
    }

    if constexpr (kKeeps) {
      // Where the warp is masked its own exponentials are 0, and must stay that.
      const float smaller = is_masked ? 1.0f : softmax_exp<T>(shift - row_shift);
      const float factor = sum[0] == 0.0f ? 0.0f : smaller / sum[0];
#pragma unroll
      for (int p = 0; p < Row::kVecs; ++p) {
        float y[N];
        for (int i = 0; i < N; ++i) y[i] = kept[p][i] * factor;
        row.store(p, y);
      }
    } else {
      row.keep_packed();
      // The logarithm that is subtracted; where the row is masked, 2^(-infinity) is 0.
      const float nothing = kIsLog ? 0.0f : -minus_infinity<float>();
      const float less = sum[0] == 0.0f ? nothing : (kIsLog ? logf(sum[0]) : log2f(sum[0]));
      row.for_vecs([&](int p, auto& v) {
        float y[N];
        for (int i = 0; i < N; ++i) {
          const float difference = v[0][i] - row_shift;
          y[i] = kIsLog ? difference - less : exp2_approximate(fmaf(difference, kLog2E, -less));
        }
        row.store(p, y);
      });
    }
  }
};

/// The gradient from dy and y; the store of dx may be to the memory of either.
template <class LoadDy, class LoadY, class Store, SoftmaxKind kKind>
struct SoftmaxGradientRows : TwoInputs<LoadDy, LoadY> {
  using T = typename LoadDy::Element;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  static constexpr bool kInWords =
      kHasWords<LoadDy, Store> && kHasWords<LoadY, Store> && TwoInputs<LoadDy, LoadY>::kIsOneType;
  Store store;
  Compute<T> scale;

  __device__ static uint32_t padding() { return 0; }

  template <class Row>
  __device__ __forceinline__ void run(Row& row) const {
    constexpr int N = Row::kVecElements;
    using Number = Compute<T>;
    Number sum[1] = {};
    row.for_vecs([&](auto, auto& v) {
      Number vec_sum = 0;
      for (int i = 0; i < N; ++i) {
        if constexpr (!kIsLog) vec_sum = fma(v[0][i], v[1][i], vec_sum);
        if (kIsLog && v[1][i] != minus_infinity<Number>()) vec_sum += v[0][i];
      }
      sum[0] += vec_sum;
    });
    row.reduce(sum, Add());
    row.keep_packed();
    row.for_vecs([&](auto p, auto& v) {
      Number dx[N];
      for (int i = 0; i < N; ++i) {
        if constexpr (kIsLog) {
          const bool is_masked = v[1][i] == minus_infinity<Number>();
          dx[i] = is_masked ? Number(0) : scale * (v[0][i] - softmax_exp<T>(v[1][i]) * sum[0]);
        } else {
          dx[i] = scale * v[1][i] * (v[0][i] - sum[0]);
        }
      }
      row.store(p, dx);
    });
  }
};

}  // namespace bertha
