#pragma once

#include "kernels/base/cuda/dropout.cuh"
#include "kernels/rows/cuda/norm_softmax/softmax_functors.cuh"
#include "kernels/rows/ops/row_broadcast.h"
#include "kernels/rows/ops/softmax.h"

namespace bertha {

// SoftmaxFwd by element type and kind: the files softmax_fwd_*.cu compile the kernels of 16 bits,
// one type each, softmax_fwd.cu all others; nvcc takes more than a minute for all in one file.

/// scale * x + bias where the mask is not zero, minus infinity elsewhere.
template <class T>
struct ScoresLoad {
  using Element = T;
  const T* matrix;
  const T* bias;        // null: none
  const uint8_t* mask;  // null: none
  RowBroadcast bias_rows;
  RowBroadcast mask_rows;
  Compute<T> scale;

  int most_elements() const { return vec_elements(bias, mask); }
  template <int N>
  __device__ void values(const RowPlace& place, const Vec<T, N>& raw, Compute<T> (&v)[N]) const {
    to_compute(raw, v);
    for (int i = 0; i < N; ++i) v[i] *= scale;
    if (bias != nullptr) {
      const Vec<T, N> added = vec_of<N>(bias, bias_rows, place);
      for (int i = 0; i < N; ++i) v[i] += to_compute(added.elem[i]);
    }
    if (mask != nullptr) {
      const Vec<uint8_t, N> open = vec_of<N>(mask, mask_rows, place);
      for (int i = 0; i < N; ++i) {
        if (open.elem[i] == 0) v[i] = minus_infinity<Compute<T>>();
      }
    }
  }

 private:
  template <int N, class E>
  __device__ static Vec<E, N> vec_of(const E* operand, const RowBroadcast& rows,
                                     const RowPlace& place) {
    const E* from = operand + rows.row_offset(place.row);
    if (rows.column_stride != 0) return load_vec<N>(from + place.column);
    Vec<E, N> same;
    for (int i = 0; i < N; ++i) same.elem[i] = from[0];
    return same;
  }
};

/// y, and with dropout y through it; the decisions are drawn here and saved as bits.
template <class T>
struct ResultStore {
  T* y;
  T* dropped;
  uint32_t* mask;  // [rows, words]
  DeviceDropout dropout;

  int most_elements() const { return vec_elements(y, dropped); }
  __host__ __device__ bool drops() const { return dropout.active(); }
  __device__ uint32_t draw(int64_t row, int64_t word, int64_t words) const {
    const int64_t group = row * words + word;
    const uint32_t bits =
        drawn_bits(dropout.random[0], dropout.random[1], dropout.site, group, dropout.threshold);
    mask[group] = bits;
    return bits;
  }
  template <int N>
  __device__ void store(const RowPlace& place, const Compute<T> (&values)[N],
                        uint32_t bits = ~0u) const {
    store_compute(y + place.dense, values);
    if (!drops()) return;
    Compute<T> kept[N];
    for (int i = 0; i < N; ++i) {
      kept[i] =
          ((bits >> i) & 1u) != 0 ? values[i] * Compute<T>(dropout.keep_factor) : Compute<T>(0);
    }
    store_compute(dropped + place.dense, kept);
  }
};

template <class T>
ScoresLoad<T> scores_load(const SoftmaxFwd& args) {
  return {.matrix = elements<T>(args.x),
          .bias = optional_elements<T>(args.bias),
          .mask = optional_elements<uint8_t>(args.mask),
          .bias_rows = RowBroadcast(args.bias, args.x),
          .mask_rows = RowBroadcast(args.mask, args.x),
          .scale = static_cast<Compute<T>>(args.scale)};
}

template <class T>
ResultStore<T> result_store(const SoftmaxFwd& args) {
  const DeviceDropout dropout = device_dropout(args.dropout);
  if (!dropout.active()) return {elements<T>(args.y), nullptr, nullptr, dropout};
  return {elements<T>(args.y), elements<T>(args.dropped), kept_words(args.kept_mask), dropout};
}

/// There is at least one row.
template <class T>
void softmax_forward(CudaContext& context, const SoftmaxFwd& args, int64_t rows, int64_t columns) {
  const MatrixStore<T> y{elements<T>(args.y)};
  const bool is_plain = args.scale == 1.0 && !args.bias.has_data() && !args.mask.has_data() &&
                        args.dropout.probability == 0.0f;
  dispatch_kind(args.kind, [&](auto kind) {
    if constexpr (sizeof(T) == 2) {
      if (is_plain) {
        return softmax_rows<kind()>(context, MatrixLoad<T>{elements<T>(args.x)}, y, rows, columns);
      }
    }
    if constexpr (kind() == SoftmaxKind::kLogSoftmax) {  // has no dropout
      softmax_rows<kind()>(context, scores_load<T>(args), y, rows, columns);
    } else {
      softmax_rows<kind()>(context, scores_load<T>(args), result_store<T>(args), rows, columns);
    }
  });
}

extern template void softmax_forward<__half>(CudaContext&, const SoftmaxFwd&, int64_t, int64_t);
extern template void softmax_forward<__nv_bfloat16>(CudaContext&, const SoftmaxFwd&, int64_t,
                                                    int64_t);

}  // namespace bertha
