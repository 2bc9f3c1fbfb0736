// Softmax and log-softmax, forward and backward.
//
// Rows of 16 bits stay in the registers of a warp (up to 1,024 columns, single elements up to 544)
// or of a block (8,192), or in shared memory (TMA); see softmax_rows.cuh. All others, forward also
// wider rows with a dropout, are done by generic_rows.cuh. Both read memory once: at 3,686 x 30,522
// bf16 a row takes 61 KiB of shared memory, backward 122 KiB. The dispatch is that of functors,
// softmax_functors.cuh.
//
// Bound by memory: 49,152 x 4,096 f16 take 200 us forward and 279 us backward on an H200, 97 and
// 103 % of a copy of as many bytes (kernels/measured/rows.md).

#include "kernels/cuda/common/dropout.cuh"
#include "kernels/cuda/norm_softmax/softmax_functors.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/ops/row_broadcast.h"
#include "kernels/ops/softmax.h"

namespace bertha {
namespace {

// --- Load and Store: one Vec of a row ---------------------------------------------------------

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
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] *= scale;
    if (bias != nullptr) {
      const Vec<T, N> added = vec_of<N>(bias, bias_rows, place);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] += to_compute(added.elem[i]);
    }
    if (mask != nullptr) {
      const Vec<uint8_t, N> open = vec_of<N>(mask, mask_rows, place);
#pragma unroll
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
#pragma unroll
    for (int i = 0; i < N; ++i) same.elem[i] = from[0];
    return same;
  }
};

/// dy back through the dropout, by the saved bits.
template <class T>
struct DroppedGradientLoad {
  using Element = T;
  const T* matrix;
  const uint32_t* mask;  // [rows, words]
  int64_t words;
  Compute<T> keep_factor;

  int most_elements() const { return kVecSize; }
  template <int N>
  __device__ void values(const RowPlace& place, const Vec<T, N>& raw, Compute<T> (&v)[N]) const {
    to_compute(raw, v);
    const uint32_t bits = mask[place.row * words + place.column / 32] >> (place.column % 32);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      v[i] = ((bits >> i) & 1u) != 0 ? v[i] * keep_factor : Compute<T>(0);
    }
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
#pragma unroll
    for (int i = 0; i < N; ++i) {
      kept[i] =
          ((bits >> i) & 1u) != 0 ? values[i] * Compute<T>(dropout.keep_factor) : Compute<T>(0);
    }
    store_compute(dropped + place.dense, kept);
  }
};

// --- operations ---------------------------------------------------------------------------------

RowBroadcast broadcast_of(const View& operand, const View& x) {
  return operand.has_data() ? RowBroadcast(operand, x) : RowBroadcast();
}

template <class T>
ScoresLoad<T> scores_load(const SoftmaxFwd& args) {
  return {.matrix = elements<T>(args.x),
          .bias = optional_elements<T>(args.bias),
          .mask = optional_elements<uint8_t>(args.mask),
          .bias_rows = broadcast_of(args.bias, args.x),
          .mask_rows = broadcast_of(args.mask, args.x),
          .scale = static_cast<Compute<T>>(args.scale)};
}

template <class T>
ResultStore<T> result_store(const SoftmaxFwd& args) {
  ResultStore<T> store{.y = elements<T>(args.y),
                       .dropped = nullptr,
                       .mask = nullptr,
                       .dropout = device_dropout(args.dropout)};
  if (!store.dropout.active()) return store;
  store.dropped = elements<T>(args.dropped);
  store.mask = static_cast<uint32_t*>(args.kept_mask.data);
  return store;
}

void check_mask_alignment(const View& mask, const Dropout& dropout) {
  if (dropout.probability == 0.0f) return;
  BERTHA_CHECK(reinterpret_cast<uintptr_t>(mask.data) % 4 == 0, "kept_mask ", mask.shape_text(),
               " begins at an address that is no multiple of 4 bytes");
}

/// work(std::integral_constant<SoftmaxKind, kind>).
template <class Work>
void dispatch_kind(SoftmaxKind kind, const Work& work) {
  if (kind == SoftmaxKind::kLogSoftmax) {
    work(std::integral_constant<SoftmaxKind, SoftmaxKind::kLogSoftmax>{});
  } else {
    work(std::integral_constant<SoftmaxKind, SoftmaxKind::kSoftmax>{});
  }
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const SoftmaxFwd& args) {
  const int64_t columns = args.x.extent(args.x.rank - 1);
  const int64_t rows = args.x.elements() / columns;
  if (rows == 0) return;
  check_mask_alignment(args.kept_mask, args.dropout);
  const bool is_plain = args.scale == 1.0f && !args.bias.has_data() && !args.mask.has_data() &&
                        args.dropout.probability == 0.0f;
  dispatch_floating(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const MatrixStore<T> y{elements<T>(args.y)};
    dispatch_kind(args.kind, [&](auto kind) {
      if constexpr (sizeof(T) == 2) {
        if (is_plain) {
          return softmax_rows<kind()>(context, MatrixLoad<T>{elements<T>(args.x)}, y, rows,
                                      columns);
        }
      }
      if constexpr (kind() == SoftmaxKind::kLogSoftmax) {  // has no dropout
        softmax_rows<kind()>(context, scores_load<T>(args), y, rows, columns);
      } else {
        softmax_rows<kind()>(context, scores_load<T>(args), result_store<T>(args), rows, columns);
      }
    });
  });
}

template <>
void run_cuda(CudaContext& context, const SoftmaxBwd& args) {
  const int64_t columns = args.dy.extent(args.dy.rank - 1);
  const int64_t rows = args.dy.elements() / columns;
  if (rows == 0) return;
  check_mask_alignment(args.kept_mask, args.dropout);
  const bool drops = args.dropout.probability != 0.0f;
  dispatch_floating(args.dy.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const MatrixLoad<T> dy{elements<T>(args.dy)};
    const MatrixLoad<T> y{elements<T>(args.y)};
    const MatrixStore<T> dx{elements<T>(args.dx)};
    if (drops) {  // of softmax alone
      const DroppedGradientLoad<T> dropped_dy{
          .matrix = dy.matrix,
          .mask = static_cast<const uint32_t*>(args.kept_mask.data),
          .words = softmax_mask_columns(columns) / 32,
          .keep_factor = Compute<T>(device_dropout(args.dropout).keep_factor)};
      return softmax_gradient_rows<SoftmaxKind::kSoftmax>(context, dropped_dy, y, dx, args.scale,
                                                          rows, columns);
    }
    dispatch_kind(args.kind, [&](auto kind) {
      softmax_gradient_rows<kind()>(context, dy, y, dx, args.scale, rows, columns);
    });
  });
}

}  // namespace bertha
