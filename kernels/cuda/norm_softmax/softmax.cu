// Softmax and log-softmax, forward and backward.
//
// Plain rows of 16 bits stay in the registers of a warp (up to 1,024 columns, single elements up to
// 544) or of a block (8,192), or in shared memory (TMA); see softmax_rows.cuh. All others, and
// everything fused (scale, bias, mask, dropout), is done by generic_rows.cuh with the Load and the
// Store below. Both read memory once: at 3,686 x 30,522 bf16 a row takes 61 KiB of shared memory,
// backward 122 KiB.
//
// Bound by memory: 49,152 x 4,096 f16 take 200 us forward and 279 us backward on an H200, 97 and
// 103 % of a copy of as many bytes (kernels/measured/rows.md).

#include "kernels/cuda/common/dropout.cuh"
#include "kernels/cuda/norm_softmax/block_per_row.cuh"
#include "kernels/cuda/norm_softmax/generic_rows.cuh"
#include "kernels/cuda/norm_softmax/softmax_rows.cuh"
#include "kernels/cuda/norm_softmax/tma_row.cuh"
#include "kernels/cuda/norm_softmax/warp_per_row.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/ops/row_broadcast.h"
#include "kernels/ops/softmax.h"

namespace bertha {
namespace {

// --- Load and Store: one Vec of a row ---------------------------------------------------------

/// scale * x + bias where the mask is not zero, minus infinity elsewhere.
template <class T>
struct ScoresLoad {
  const T* bias;        // null: none
  const uint8_t* mask;  // null: none
  RowBroadcast bias_rows;
  RowBroadcast mask_rows;
  Compute<T> scale;

  template <int N>
  __device__ void values(const Vec<T, N> (&raw)[1], int64_t row, int64_t column,
                         Compute<T> (&v)[1][N]) const {
    to_compute(raw[0], v[0]);
#pragma unroll
    for (int i = 0; i < N; ++i) v[0][i] *= scale;
    if (bias != nullptr) {
      const Vec<T, N> added = vec_of<N>(bias, bias_rows, row, column);
#pragma unroll
      for (int i = 0; i < N; ++i) v[0][i] += to_compute(added.elem[i]);
    }
    if (mask != nullptr) {
      const Vec<uint8_t, N> open = vec_of<N>(mask, mask_rows, row, column);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (open.elem[i] == 0) v[0][i] = minus_infinity<Compute<T>>();
      }
    }
  }

 private:
  template <int N, class E>
  __device__ static Vec<E, N> vec_of(const E* operand, const RowBroadcast& rows, int64_t row,
                                     int64_t column) {
    const E* from = operand + rows.row_offset(row);
    if (rows.column_stride != 0) return load_vec<N>(from + column);
    Vec<E, N> same;
#pragma unroll
    for (int i = 0; i < N; ++i) same.elem[i] = from[0];
    return same;
  }
};

/// dy back through the dropout, by the saved bits; y as it is.
template <class T>
struct GradientLoad {
  const uint32_t* mask;  // [rows, words]; null: no dropout
  int64_t words;
  Compute<T> keep_factor;

  template <int N>
  __device__ void values(const Vec<T, N> (&raw)[2], int64_t row, int64_t column,
                         Compute<T> (&v)[2][N]) const {
    to_compute(raw[0], v[0]);
    to_compute(raw[1], v[1]);
    if (mask == nullptr) return;
    const uint32_t bits = mask[row * words + column / 32] >> (column % 32);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      v[0][i] = ((bits >> i) & 1u) != 0 ? v[0][i] * keep_factor : Compute<T>(0);
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

  __device__ bool drops() const { return dropout.active(); }
  __device__ uint32_t draw(int64_t row, int64_t word, int64_t words) const {
    const int64_t group = row * words + word;
    const uint32_t bits =
        drawn_bits(dropout.random[0], dropout.random[1], dropout.site, group, dropout.threshold);
    mask[group] = bits;
    return bits;
  }
  template <int N>
  __device__ void write(int64_t at, const Compute<T> (&values)[N], uint32_t bits) const {
    store_compute(y + at, values);
    if (!drops()) return;
    Compute<T> kept[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      kept[i] =
          ((bits >> i) & 1u) != 0 ? values[i] * Compute<T>(dropout.keep_factor) : Compute<T>(0);
    }
    store_compute(dropped + at, kept);
  }
};

// --- generic rows --------------------------------------------------------------------------------

template <class T, SoftmaxKind kKind>
struct GenericSoftmax : ScoresLoad<T>, ResultStore<T> {
  using Element = T;
  static constexpr int kInputs = 1;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  static constexpr bool kDrops = !kIsLog;
  const T* inputs[kInputs];

  template <class Row>
  __device__ void run(Row& row) const {
    using Number = Compute<T>;
    constexpr int N = Row::kVecElements;
    // NaN loses here; it comes back with the sum.
    Number top[1] = {minus_infinity<Number>()};
    row.for_vecs([&](int64_t, auto& v) {
#pragma unroll
      for (int i = 0; i < N; ++i) top[0] = Larger()(top[0], v[0][i]);
    });
    row.reduce(top, Larger());

    // From a row of minus infinities nothing is subtracted, and its sum is 0.
    const Number shift = top[0] == minus_infinity<Number>() ? Number(0) : top[0];
    Number sum[1] = {};
    row.for_vecs([&](int64_t, auto& v) {
      Number vec_sum = 0;
#pragma unroll
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
    for_vecs_with_bits(*this, row, [&](int64_t column, auto& v, uint32_t bits) {
      Number y[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if constexpr (kIsLog) {
          y[i] = v[0][i] - shift - rest;
        } else {
          y[i] = (Row::kInRegisters ? v[0][i] : softmax_exp<T>(v[0][i] - shift)) * rest;
        }
      }
      this->write(row.row() * row.columns() + column, y, bits);
    });
  }
};

template <class T, SoftmaxKind kKind>
struct GenericSoftmaxGradient : GradientLoad<T> {
  using Element = T;
  static constexpr int kInputs = 2;  // dy, y
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  const T* inputs[kInputs];
  T* dx;
  Compute<T> scale;

  template <class Row>
  __device__ void run(Row& row) const {
    using Number = Compute<T>;
    constexpr int N = Row::kVecElements;
    Number sum[1] = {};
    row.for_vecs([&](int64_t, auto& v) {
#pragma unroll
      for (int i = 0; i < N; ++i) add_to_gradient_sum<kIsLog>(sum[0], v[0][i], v[1][i]);
    });
    row.reduce(sum, Add());
    row.for_vecs([&](int64_t column, auto& v) {
      Number gradient[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        gradient[i] = softmax_gradient<T, kIsLog>(v[0][i], v[1][i], sum[0], scale);
      }
      store_compute(dx + row.row() * row.columns() + column, gradient);
    });
  }
};

// --- launchers ----------------------------------------------------------------------------------

/// Whether addresses differ by whole words of 16 bytes.
bool share_words(const void* a, const void* b) {
  return (reinterpret_cast<uintptr_t>(a) ^ reinterpret_cast<uintptr_t>(b)) % 16 == 0;
}

/// Runs an operation of softmax_rows.cuh, where there is a kernel for its width and addresses;
/// address_bits as in generic_rows.cuh.
template <class Operation>
bool run_plain(const CudaContext& context, const Operation& operation, int64_t rows,
               int64_t columns, uintptr_t address_bits) {
  constexpr bool kHasOne = Operation::kInputs == 1;
  const bool has_vectors = columns % kVecSize == 0 && address_bits % 16 == 0;
  const bool is_odd = columns % 2 != 0;
  if (has_vectors && columns <= 256) {
    launch_warp_per_row<4, 8, 1>(context, operation, rows, columns);
  } else if (has_vectors && columns <= 512) {
    launch_warp_per_row<32, 8, 2>(context, operation, rows, columns);
  } else if (has_vectors && columns <= 1024) {
    launch_warp_per_row<32, 8, 4, 64>(context, operation, rows, columns);
  } else if (columns % 4 == 0 && address_bits % 8 == 0 && columns <= 512) {
    launch_warp_per_row<4, 4, 4>(context, operation, rows, columns);
  } else if (has_vectors && !kHasOne && columns <= 4096) {
    launch_block_per_row<1, 512, 4>(context, operation, rows, columns);
  } else if (has_vectors && columns <= 8192) {
    launch_block_per_row<2, 512, kHasOne ? 4 : 1>(context, operation, rows, columns);
  } else if (is_odd && columns > 16 && columns <= 160) {
    launch_warp_per_row<8, 1, 5, 256>(context, operation, rows, columns);
  } else if (is_odd && columns > 160 && columns <= 288) {
    launch_warp_per_row<32, 1, 9>(context, operation, rows, columns);
  } else if (columns > 256 && columns <= 544) {
    launch_warp_per_row<32, 1, 17>(context, operation, rows, columns);
  } else if (context.kernels != KernelSet::kSm90a || columns <= kFewElements * kWarpThreads ||
             tma_row_bytes<Operation>(columns) > most_row_cache_bytes(context) ||
             !share_words(operation.inputs[0], operation.output) ||
             !share_words(operation.inputs[0], operation.inputs[Operation::kInputs - 1])) {
    return false;
  } else if (columns <= 2048) {
    launch_tma_row<64, 16>(context, operation, rows, columns);
  } else if (columns <= 8192) {
    launch_tma_row<128, 8>(context, operation, rows, columns);
  } else {
    launch_tma_row<512, 3>(context, operation, rows, columns);
  }
  return true;
}

RowBroadcast broadcast_of(const View& operand, const View& x) {
  return operand.has_data() ? RowBroadcast(operand, x) : RowBroadcast();
}

template <class T>
ScoresLoad<T> scores_load(const SoftmaxFwd& args) {
  return {.bias = optional_elements<T>(args.bias),
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
    const View unread;
    const View& dropped = args.dropout.probability == 0.0f ? unread : args.dropped;
    const uintptr_t bits = address_bits({&args.x, &args.bias, &args.mask, &args.y, &dropped});
    const T* x = elements<T>(args.x);
    dispatch_kind(args.kind, [&](auto kind) {
      if constexpr (sizeof(T) == 2) {
        const PlainSoftmax<T, kind()> plain{{x}, elements<T>(args.y)};
        if (is_plain && run_plain(context, plain, rows, columns, bits)) return;
      }
      const GenericSoftmax<T, kind()> generic{scores_load<T>(args), result_store<T>(args), {x}};
      launch_rows(context, generic, rows, columns, bits);
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
    const uintptr_t bits = address_bits({&args.dy, &args.y, &args.dx});
    const T* dy = elements<T>(args.dy);
    const T* y = elements<T>(args.y);
    T* dx = elements<T>(args.dx);
    dispatch_kind(args.kind, [&](auto kind) {
      if constexpr (sizeof(T) == 2) {
        const PlainSoftmaxGradient<T, kind()> plain{{dy, y}, dx, args.scale};
        if (!drops && run_plain(context, plain, rows, columns, bits)) return;
      }
      const GradientLoad<T> load{
          .mask = drops ? static_cast<const uint32_t*>(args.kept_mask.data) : nullptr,
          .words = softmax_mask_columns(columns) / 32,
          .keep_factor = Compute<T>(device_dropout(args.dropout).keep_factor)};
      const GenericSoftmaxGradient<T, kind()> generic{
          load, {dy, y}, dx, static_cast<Compute<T>>(args.scale)};
      launch_rows(context, generic, rows, columns, bits);
    });
  });
}

}  // namespace bertha
