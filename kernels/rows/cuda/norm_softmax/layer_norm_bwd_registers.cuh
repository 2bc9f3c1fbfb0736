#pragma once

#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_operands.cuh"

namespace bertha {

// LayerNorm backward of rows of any type, width and address that registers hold. A persistent grid,
// in which a thread keeps the same columns of all rows that it sees: gamma and its part of the
// column sums stay in registers, and the next row is loaded while one is worked on. The width
// chooses who shares a row:
//   kIsLanes  a warp or a power of two of its lanes;
//   else      a block.
//
// Bound by memory where vectors are of 16 bytes, else by instructions: 49,152 x 128 f16 take 20 us
// on an H200, 68 % of a copy of as many bytes (kernels/rows/measured/rows.md).

inline constexpr int kLanesThreads = 256;
inline constexpr int kBlockThreads = 512;

/// Elements of a row that a thread has.
template <class T>
inline constexpr int kThreadElements = sizeof(T) == 8 ? 4 : 8;

/// The same in blocks: what the registers hold.
template <class T, int N>
inline constexpr int kBlockElements = sizeof(T) == 2 && N > 1 ? 16 : kThreadElements<T>;

/// Widest rows.
template <class T, int N>
inline constexpr int64_t kMostRegisterColumns = int64_t{kBlockThreads} * kBlockElements<T, N>;

template <class Norm, int N, bool kIsLanes>
__global__ void __launch_bounds__(kIsLanes ? kLanesThreads : kBlockThreads, kIsLanes ? 2 : 1)
    layer_norm_bwd_registers_kernel(Norm p, int64_t rows, int64_t columns, int lanes_of_row) {
  using T = typename Norm::HeldElement;
  using Number = Compute<T>;
  using Parameter = std::remove_cvref_t<decltype(*p.gamma)>;
  constexpr int kElements = kIsLanes ? kThreadElements<T> : kBlockElements<T, N>;
  constexpr int kVecs = kElements / N;
  __shared__ std::conditional_t<kIsLanes, Number[kElements][kLanesThreads],
                                WarpExchange<Number, 2, kBlockThreads / kWarpThreads>>
      shared;

  // The thread's place among rows and columns.
  const int thread = static_cast<int>(threadIdx.x);
  const int lanes = kIsLanes ? lanes_of_row : static_cast<int>(blockDim.x);
  const int groups = kIsLanes ? kLanesThreads / lanes : 1;  // rows that a block works on at once
  const int group = thread / lanes;
  const int begin = thread % lanes * N;
  const int64_t step = static_cast<int64_t>(gridDim.x) * groups;
  const auto column_of = [&](int k) { return begin + k * lanes * N; };
  const auto has = [&](int k) { return column_of(k) < columns; };
  const auto place = [&](int64_t row, int k) {
    return RowPlace{row, column_of(k), row * columns + column_of(k)};
  };

  struct Incoming {
    Vec<Held<decltype(Norm::dy)>, N> dy[kVecs];
    Vec<Held<decltype(Norm::x)>, N> x[kVecs];
    Number mean;
    Number rstd;
  };
  const auto load = [&](int64_t row) {
    Incoming in{};
    if (row >= rows) return in;
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      if (!has(k)) continue;
      in.dy[k] = hold<N>(p.dy, place(row, k));
      in.x[k] = hold<N>(p.x, place(row, k));
    }
    in.mean = p.mean[row];
    in.rstd = p.rstd[row];
    return in;
  };
  const int64_t block_first = static_cast<int64_t>(blockIdx.x) * groups;
  Incoming next = load(block_first + group);
  Vec<Parameter, N> gamma[kVecs];
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
    for (int i = 0; i < N; ++i) gamma[k].elem[i] = from_compute<Parameter>(1);
    if (p.gamma != nullptr && has(k)) gamma[k] = load_vec<N>(p.gamma + column_of(k));
  }
  const Number per_column = Number(1) / static_cast<Number>(columns);

  Number dgamma[kElements] = {};
  Number dbeta[kElements] = {};
  int turn = 0;
  // The same number of turns for all threads of a block.
  for (int64_t first = block_first; first < rows; first += step, ++turn) {
    const int64_t row = first + group;
    Incoming own = next;
    next = load(row + step);
    Number sums[2] = {};  // of g = dy * gamma, and of g * normalized
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      for (int i = 0; i < N; ++i) {
        const Number dy = to_compute(own.dy[k].elem[i]);
        const Number normalized = (to_compute(own.x[k].elem[i]) - own.mean) * own.rstd;
        const Number g = dy * to_compute(gamma[k].elem[i]);
        sums[0] += g;
        sums[1] += g * normalized;
        dgamma[k * N + i] += dy * normalized;
        dbeta[k * N + i] += dy;
      }
    }
    if constexpr (kIsLanes) {
      reduce_lanes(sums, lanes, Add());
    } else {
      block_reduce(sums, Add(), shared, turn);
    }
    if (row >= rows) continue;
    sums[0] *= per_column;
    sums[1] *= per_column;
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      if (!has(k)) continue;
      keep_packed(own.dy[k]);
      keep_packed(own.x[k]);
      keep_packed(gamma[k]);
      Number dx[N];
      for (int i = 0; i < N; ++i) {
        const Number normalized = (to_compute(own.x[k].elem[i]) - own.mean) * own.rstd;
        const Number g = to_compute(own.dy[k].elem[i]) * to_compute(gamma[k].elem[i]);
        dx[i] = own.rstd * (g - sums[0] - normalized * sums[1]);
      }
      put(p.dx, place(row, k), dx);
    }
  }

  Number* const partial = p.partial + int64_t{2} * blockIdx.x * columns;
  if constexpr (kIsLanes) {
#pragma unroll
    for (int quantity = 0; quantity < 2; ++quantity) {
      __syncthreads();
      for (int i = 0; i < kElements; ++i) shared[i][thread] = quantity == 0 ? dgamma[i] : dbeta[i];
      __syncthreads();
      // A thread for each element of each lane, over the groups.
      const int element = thread / lanes;
      const int64_t column = column_of(element / N) + element % N;
      if (element >= kElements || column >= columns) continue;
      Number total = 0;
      for (int other = 0; other < groups; ++other) {
        total += shared[element][other * lanes + thread % lanes];
      }
      partial[quantity * columns + column] = total;
    }
  } else {
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      if (!has(k)) continue;
      Number* const own = partial + column_of(k);
      for (int i = 0; i < N; ++i) {
        own[i] = dgamma[k * N + i];
        own[columns + i] = dbeta[k * N + i];
      }
    }
  }
}

/// There is at least one row, of at most kMostRegisterColumns columns; with_vec_size chooses N.
template <int N, class Norm, class TakePartial>
void launch_layer_norm_bwd_registers(const CudaContext& context, Norm p, int64_t rows,
                                     int64_t columns, const TakePartial& take_partial) {
  using T = typename Norm::HeldElement;
  const bool is_lanes = columns <= kThreadElements<T> * kWarpThreads;
  const auto kernel = is_lanes ? &layer_norm_bwd_registers_kernel<Norm, N, true>
                               : &layer_norm_bwd_registers_kernel<Norm, N, false>;
  int lanes = 1;
  while (is_lanes && lanes * kThreadElements<T> < columns) lanes *= 2;
  const int64_t threads =
      is_lanes ? kLanesThreads
               : kWarpThreads * blocks_for(columns, kBlockElements<T, N> * kWarpThreads,
                                           kBlockThreads / kWarpThreads);
  const unsigned blocks = blocks_for(rows, is_lanes ? kLanesThreads / lanes : 1,
                                     resident_blocks(kernel, threads) * context.sm_count);
  p.partial = take_partial(blocks);
  launch_kernel(context.stream, kernel, {blocks, threads}, p, rows, columns, lanes);
}

}  // namespace bertha
