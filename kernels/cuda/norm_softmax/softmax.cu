// Softmax and log-softmax, forward and backward.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): forward
// 2 U, with dropout 3 U and a bit per element; backward 3 U. At 3,686 x 30,522 bf16 a row stays in
// 61 KiB of shared memory (backward 122 KiB), so that it crosses the memory bus once: 105 us
// forward, 158 us backward. What is fused is in the Load and the Store of rows of
// generic_rows.cuh. Plain 16-bit rows are those of narrow_rows.cuh, or where they begin between the
// 16-byte words of memory of chunk_rows.cuh; wide ones those of leaving_rows.cuh, or in shared
// memory of bulk_rows.cuh.
//
// Measured: kernels/measured/rows.md.

#include "kernels/cuda/common/dropout.cuh"
#include "kernels/cuda/norm_softmax/bulk_rows.cuh"
#include "kernels/cuda/norm_softmax/chunk_rows.cuh"
#include "kernels/cuda/norm_softmax/generic_rows.cuh"
#include "kernels/cuda/norm_softmax/leaving_rows.cuh"
#include "kernels/cuda/norm_softmax/narrow_softmax.cuh"
#include "kernels/cuda/norm_softmax/wide_softmax.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/ops/row_broadcast.h"
#include "kernels/ops/softmax.h"

namespace bertha {
namespace {

// --- Load: one pack of the row as numbers --------------------------------------------------------

/// x as it is.
template <class T>
struct DirectLoad {
  static constexpr bool kShifts = true;
  template <int N>
  __device__ void values(const Vec<T, N> (&raw)[1], int64_t, int64_t, Compute<T> (&v)[1][N]) const {
    to_compute(raw[0], v[0]);
  }
};

/// scale * x + bias where the mask is not zero, minus infinity elsewhere.
template <class T>
struct FusedLoad {
  static constexpr bool kShifts = false;
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
      const Vec<T, N> added = pack_of<N>(bias, bias_rows, row, column);
#pragma unroll
      for (int i = 0; i < N; ++i) v[0][i] += to_compute(added.elem[i]);
    }
    if (mask != nullptr) {
      const Vec<uint8_t, N> open = pack_of<N>(mask, mask_rows, row, column);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (open.elem[i] == 0) v[0][i] = minus_infinity<Compute<T>>();
      }
    }
  }

 private:
  template <int N, class E>
  __device__ static Vec<E, N> pack_of(const E* operand, const RowBroadcast& rows, int64_t row,
                                      int64_t column) {
    const E* from = operand + rows.row_offset(row);
    if (rows.column_stride != 0) return *reinterpret_cast<const Vec<E, N>*>(from + column);
    Vec<E, N> same;
#pragma unroll
    for (int i = 0; i < N; ++i) same.elem[i] = from[0];
    return same;
  }
};

/// dy and y as they are.
template <class T>
struct DirectGradientLoad {
  static constexpr bool kShifts = true;
  template <int N>
  __device__ void values(const Vec<T, N> (&raw)[2], int64_t, int64_t, Compute<T> (&v)[2][N]) const {
    to_compute(raw[0], v[0]);
    to_compute(raw[1], v[1]);
  }
};

/// dy back through the dropout, by the saved bits; y as it is.
template <class T>
struct DropoutGradientLoad {
  static constexpr bool kShifts = false;
  const uint32_t* mask;  // [rows, words]
  int64_t words;
  Compute<T> keep_factor;

  template <int N>
  __device__ void values(const Vec<T, N> (&raw)[2], int64_t row, int64_t column,
                         Compute<T> (&v)[2][N]) const {
    const uint32_t bits = mask[row * words + column / 32] >> (column % 32);
    to_compute(raw[0], v[0]);
    to_compute(raw[1], v[1]);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      v[0][i] = ((bits >> i) & 1u) != 0 ? v[0][i] * keep_factor : Compute<T>(0);
    }
  }
};

// --- Store: one pack of the result
// ----------------------------------------------------------------

template <class T>
struct DirectStore {
  static constexpr bool kDrops = false;
  T* y;

  template <int N, class Lanes>
  __device__ void write(int64_t at, const Compute<T> (&values)[N], Lanes lanes, uint32_t) const {
    store_lanes(y + at, values, lanes);
  }
};

/// y, and y through a dropout that is drawn here and saved as bits.
template <class T>
struct DropoutStore {
  static constexpr bool kDrops = true;
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
  template <int N, class Lanes>
  __device__ void write(int64_t at, const Compute<T> (&values)[N], Lanes, uint32_t bits) const {
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

// --- the operations
// -------------------------------------------------------------------------------

template <class T, SoftmaxKind kKind, class Load, class Store>
struct SoftmaxForward {
  using Element = T;
  static constexpr int kInputs = 1;
  static constexpr bool kDrops = Store::kDrops;
  static constexpr bool kShifts = Load::kShifts;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  const T* inputs[kInputs];
  Load load;
  Store store;

  template <int N>
  __device__ void values(const Vec<T, N> (&raw)[1], int64_t row, int64_t column,
                         Compute<T> (&v)[1][N]) const {
    load.values(raw, row, column, v);
  }
  __device__ bool drops() const { return store.drops(); }
  __device__ uint32_t draw(int64_t row, int64_t word, int64_t words) const {
    return store.draw(row, word, words);
  }

  template <class Rows>
  __device__ void run(Rows& rows) const {
    using Number = Compute<T>;
    constexpr int kRows = Rows::kRows;
    constexpr int N = Rows::kPackElements;
    Number top[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) top[r] = minus_infinity<Number>();
    // NaN loses here; it comes back with the sum.
    rows.for_packs([&](int r, int64_t, auto& v, auto lanes) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (lanes.has(i)) top[r] = Larger()(top[r], v[0][i]);
      }
    });
    rows.reduce(top, Larger());

    // A row of minus infinities is shifted by nothing, and its sum is 0.
    Number sum[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sum[r] = 0;
      if (top[r] == minus_infinity<Number>()) top[r] = 0;
    }
    rows.for_packs([&](int r, int64_t, auto& v, auto lanes) {
      Number pack_sum = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (!lanes.has(i)) continue;
        const Number e = exponential<T>(v[0][i] - top[r]);
        if constexpr (Rows::kHeld && !kIsLog) v[0][i] = e;
        pack_sum += e;
      }
      sum[r] += pack_sum;
    });
    rows.reduce(sum, Add());

    Number rest[kRows];  // 1 / sum, or log(sum)
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rest[r] = sum[r] == Number(0) ? Number(0) : (kIsLog ? logarithm(sum[r]) : Number(1) / sum[r]);
    }
    for_packs_with_bits(
        *this, rows, [&](int r, int64_t column, auto& v, auto lanes, uint32_t bits) {
          Number y[N];
#pragma unroll
          for (int i = 0; i < N; ++i) {
            if constexpr (kIsLog) {
              y[i] = v[0][i] - top[r] - rest[r];
            } else {
              y[i] = (Rows::kHeld ? v[0][i] : exponential<T>(v[0][i] - top[r])) * rest[r];
            }
          }
          store.write(rows.row(r) * rows.columns() + column, y, lanes, bits);
        });
  }
};

template <class T, SoftmaxKind kKind, class Load>
struct SoftmaxBackward {
  using Element = T;
  static constexpr int kInputs = 2;  // dy, y
  static constexpr bool kShifts = Load::kShifts;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  const T* inputs[kInputs];
  Load load;
  T* dx;
  Compute<T> scale;

  template <int N>
  __device__ void values(const Vec<T, N> (&raw)[2], int64_t row, int64_t column,
                         Compute<T> (&v)[2][N]) const {
    load.values(raw, row, column, v);
  }

  template <class Rows>
  __device__ void run(Rows& rows) const {
    using Number = Compute<T>;
    constexpr int N = Rows::kPackElements;
    Number sum[Rows::kRows] = {};
    rows.for_packs([&](int r, int64_t, auto& v, auto lanes) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (!lanes.has(i)) continue;
        if constexpr (kIsLog) {
          if (v[1][i] != minus_infinity<Number>()) sum[r] += v[0][i];
        } else {
          sum[r] += v[0][i] * v[1][i];
        }
      }
    });
    rows.reduce(sum, Add());
    rows.for_packs([&](int r, int64_t column, auto& v, auto lanes) {
      Number gradient[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        gradient[i] = gradient_of<T, kIsLog>(v[0][i], v[1][i], sum[r], scale);
      }
      store_lanes(dx + rows.row(r) * rows.columns() + column, gradient, lanes);
    });
  }
};

// --- launchers ----------------------------------------------------------------------------------

/// Runs an operation of narrow_softmax.cuh, where there is one for the width; address_bits as in
/// generic_rows.cuh.
template <class Operation>
bool run_narrow(const CudaContext& context, const Operation& operation, int64_t rows,
                int64_t columns, uintptr_t address_bits) {
  constexpr bool kHasTwo = Operation::kInputs == 2;
  if (columns % 8 == 0 && address_bits % 16 == 0 && columns <= 1024) {
    if (columns <= 256) {
      launch_narrow_rows<4, 8, 1>(context, operation, rows, columns);
    } else if (columns <= 512) {
      launch_narrow_rows<32, 8, 2>(context, operation, rows, columns);
    } else {
      launch_narrow_rows<32, 8, 4, 64>(context, operation, rows, columns);
    }
    return true;
  }
  if (columns % 4 == 0 && address_bits % 8 == 0 && columns <= 512) {
    if (kHasTwo && columns <= 256) {
      launch_narrow_rows<4, 4, 2>(context, operation, rows, columns);
    } else {
      launch_narrow_rows<4, 4, 4>(context, operation, rows, columns);
    }
    return true;
  }
  if (address_bits % 16 == 0 && columns <= most_chunk_columns(Operation::kInputs)) {
    run_chunks(context, operation, rows, columns);
    return true;
  }
  return false;
}

/// Whether addresses differ by whole words of 16 bytes.
bool share_words(const void* a, const void* b) {
  return (reinterpret_cast<uintptr_t>(a) ^ reinterpret_cast<uintptr_t>(b)) % 16 == 0;
}

/// Rows of whole 16-byte words of an operation of wide_softmax.cuh in the registers of a block, where
/// they fit.
template <class Operation>
bool run_leaving(const CudaContext& context, const Operation& operation, int64_t rows,
                 int64_t columns, uintptr_t address_bits) {
  constexpr bool kHasOne = Operation::kInputs == 1;
  if (columns % 8 != 0 || address_bits % 16 != 0 || columns > int64_t{512} * 8 * 2) return false;
  if (!kHasOne && columns <= 4096) {
    launch_leaving_rows<1, 512, 4>(context, operation, rows, columns);
  } else {
    launch_leaving_rows<2, 512, kHasOne ? 4 : 1>(context, operation, rows, columns);
  }
  return true;
}

/// Wide rows of such an operation in shared memory, where they fit.
template <class Operation>
bool run_bulk(const CudaContext& context, const Operation& operation, int64_t rows,
              int64_t columns) {
  if (columns <= kFewElements * kWarpThreads || bulk_bytes<Operation>(columns) > kMostRowCacheBytes)
    return false;
  if (columns <= 2048) {
    launch_bulk_rows<64, 16>(context, operation, rows, columns);
  } else if (columns <= 8192) {
    launch_bulk_rows<128, 8>(context, operation, rows, columns);
  } else {
    launch_bulk_rows<512, 3>(context, operation, rows, columns);
  }
  return true;
}

/// Plain rows of 16 bits.
template <class T, SoftmaxKind kKind>
bool run_plain_forward(const CudaContext& context, const T* x, T* y, int64_t rows, int64_t columns,
                       uintptr_t address_bits) {
  if (run_narrow(context, NarrowSoftmax<T, kKind>{{x}, y}, rows, columns, address_bits))
    return true;
  const WideSoftmax<T, kKind> wide{{x}, y};
  if (run_leaving(context, wide, rows, columns, address_bits)) return true;
  return share_words(x, y) && run_bulk(context, wide, rows, columns);
}

template <class T>
struct GradientInputs {
  const T* dy;
  const T* y;
};

template <class T, SoftmaxKind kKind>
bool run_plain_backward(const CudaContext& context, const GradientInputs<T>& in, T* dx, float scale,
                        int64_t rows, int64_t columns, uintptr_t address_bits) {
  const NarrowSoftmaxGradient<T, kKind> narrow{{in.dy, in.y}, dx, scale};
  if (run_narrow(context, narrow, rows, columns, address_bits)) return true;
  const WideSoftmaxGradient<T, kKind> wide{{in.dy, in.y}, dx, scale};
  if (run_leaving(context, wide, rows, columns, address_bits)) return true;
  return share_words(in.dy, in.y) && share_words(in.dy, dx) &&
         run_bulk(context, wide, rows, columns);
}

RowBroadcast broadcast_of(const View& operand, const View& x) {
  return operand.has_data() ? RowBroadcast(operand, x) : RowBroadcast();
}

template <class T>
FusedLoad<T> fused_load(const SoftmaxFwd& args) {
  return {.bias = optional_elements<T>(args.bias),
          .mask = optional_elements<uint8_t>(args.mask),
          .bias_rows = broadcast_of(args.bias, args.x),
          .mask_rows = broadcast_of(args.mask, args.x),
          .scale = static_cast<Compute<T>>(args.scale)};
}

template <class T>
DropoutStore<T> dropout_store(const SoftmaxFwd& args) {
  DropoutStore<T> store{.y = elements<T>(args.y),
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

}  // namespace

template <>
void run_cuda(CudaContext& context, const SoftmaxFwd& args) {
  const int64_t columns = args.x.extent(args.x.rank - 1);
  const int64_t rows = args.x.elements() / columns;
  if (rows == 0) return;
  check_mask_alignment(args.kept_mask, args.dropout);
  const bool is_log = args.kind == SoftmaxKind::kLogSoftmax;
  const bool is_plain = args.scale == 1.0f && !args.bias.has_data() && !args.mask.has_data() &&
                        args.dropout.probability == 0.0f;
  dispatch_floating(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr SoftmaxKind kSoft = SoftmaxKind::kSoftmax;
    constexpr SoftmaxKind kLog = SoftmaxKind::kLogSoftmax;
    const View unread;
    const View& dropped = args.dropout.probability == 0.0f ? unread : args.dropped;
    const uintptr_t bits = address_bits({&args.x, &args.bias, &args.mask, &args.y, &dropped});
    const auto launch = [&](const auto& operation) {
      launch_rows(context, operation, rows, columns, bits);
    };
    const T* x = elements<T>(args.x);
    T* y = elements<T>(args.y);
    if constexpr (sizeof(T) == 2) {
      const auto run_plain = is_log ? &run_plain_forward<T, kLog> : &run_plain_forward<T, kSoft>;
      if (is_plain && run_plain(context, x, y, rows, columns, bits)) return;
    }
    if (is_plain && is_log) {
      launch(SoftmaxForward<T, kLog, DirectLoad<T>, DirectStore<T>>{{x}, {}, {y}});
    } else if (is_plain) {
      launch(SoftmaxForward<T, kSoft, DirectLoad<T>, DirectStore<T>>{{x}, {}, {y}});
    } else if (is_log) {
      launch(SoftmaxForward<T, kLog, FusedLoad<T>, DirectStore<T>>{{x}, fused_load<T>(args), {y}});
    } else {
      launch(SoftmaxForward<T, kSoft, FusedLoad<T>, DropoutStore<T>>{
          {x}, fused_load<T>(args), dropout_store<T>(args)});
    }
  });
}

template <>
void run_cuda(CudaContext& context, const SoftmaxBwd& args) {
  const int64_t columns = args.dy.extent(args.dy.rank - 1);
  const int64_t rows = args.dy.elements() / columns;
  if (rows == 0) return;
  check_mask_alignment(args.kept_mask, args.dropout);
  dispatch_floating(args.dy.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr SoftmaxKind kSoft = SoftmaxKind::kSoftmax;
    constexpr SoftmaxKind kLog = SoftmaxKind::kLogSoftmax;
    const uintptr_t bits = address_bits({&args.dy, &args.y, &args.dx});
    const auto launch = [&](const auto& operation) {
      launch_rows(context, operation, rows, columns, bits);
    };
    const T* dy = elements<T>(args.dy);
    const T* y = elements<T>(args.y);
    T* dx = elements<T>(args.dx);
    const auto scale = static_cast<Compute<T>>(args.scale);
    if constexpr (sizeof(T) == 2) {
      const auto run_plain = args.kind == SoftmaxKind::kLogSoftmax ? &run_plain_backward<T, kLog>
                                                                   : &run_plain_backward<T, kSoft>;
      if (args.dropout.probability == 0.0f &&
          run_plain(context, {dy, y}, dx, scale, rows, columns, bits)) {
        return;
      }
    }
    if (args.kind == SoftmaxKind::kLogSoftmax) {
      launch(SoftmaxBackward<T, kLog, DirectGradientLoad<T>>{{dy, y}, {}, dx, scale});
    } else if (args.dropout.probability == 0.0f) {
      launch(SoftmaxBackward<T, kSoft, DirectGradientLoad<T>>{{dy, y}, {}, dx, scale});
    } else {
      const DropoutGradientLoad<T> load{
          .mask = static_cast<const uint32_t*>(args.kept_mask.data),
          .words = softmax_mask_columns(columns) / 32,
          .keep_factor = Compute<T>(device_dropout(args.dropout).keep_factor)};
      launch(SoftmaxBackward<T, kSoft, DropoutGradientLoad<T>>{{dy, y}, load, dx, scale});
    }
  });
}

}  // namespace bertha
