#pragma once

#include "kernels/cuda/norm_softmax/norm_rows.cuh"
#include "kernels/cuda/norm_softmax/pivoted_moments.cuh"

namespace bertha {

// LayerNorm forward of rows that a warp or a block holds; see norm_rows.cuh.

/// Widest rows: those of a block.
template <class T>
inline constexpr int64_t kMostForwardColumns = int64_t{kWideThreads} * kThreadElements<T>;

/// Blocks of an SM that a forward kernel leaves registers for.
template <class T, int N, RowScope kScope, bool kHasResidual>
constexpr int forward_blocks() {
  if (kScope == RowScope::kBlocks || kHasResidual) return 1;
  return sizeof(T) == 2 && N > 1 ? 4 : 2;
}

template <class T>
struct NormRows {
  const T* x;
  const T* residual;  // with kHasResidual
  const T* gamma;     // null: 1
  const T* beta;      // null: 0
  T* sum;             // with kHasResidual
  T* y;
  Compute<T>* mean;
  Compute<T>* rstd;
  Compute<T> epsilon;
};

/// A row's mean in two parts, because the first one is rounded: where a mean is large beside the
/// deviation, the rest is what the normalized values need.
template <class Number>
struct RowMoments {
  Number mean;
  Number rest;
  Number variance;
};

/// From each warp's count, mean, sum of differences to it and sum of their squares: those of the
/// row, around the first warp's mean.
template <class Number>
__device__ __forceinline__ RowMoments<Number> block_moments(const Number (&of_warp)[4],
                                                            RowExchange<Number, 4, 1>& exchange,
                                                            int turn, Number per_column) {
  exchange_parts(of_warp, exchange, turn, 1, 0);
  const auto& parts = exchange.parts[turn % 2];
  const Number pivot = parts[1][0][0];
  Number sums[2] = {};  // of differences to the pivot, and of their squares
  for_parts(1, [&](int other, int warp) {
    const Number count = parts[0][other][warp];
    const Number difference = parts[1][other][warp] - pivot;
    const Number inner = parts[2][other][warp];
    sums[0] += count * difference + inner;
    sums[1] += parts[3][other][warp] + difference * (2 * inner + count * difference);
  });
  reduce_lanes(sums, kWarpThreads, Add());
  const Number rest = sums[0] * per_column;
  return {pivot, rest, sums[1] * per_column - rest * rest};
}

template <class T, int N, RowScope kScope, bool kHasResidual>
__global__ void __launch_bounds__(kScope == RowScope::kLanes ? kNarrowThreads : kWideThreads,
                                  forward_blocks<T, N, kScope, kHasResidual>())
    norm_forward_kernel(NormRows<T> p, int64_t rows, int64_t columns, RowGrid grid) {
  using Number = Compute<T>;
  constexpr int kPacks = kThreadElements<T> / N;
  using Place = RowPlace<N, kPacks, kScope>;
  using Packed = PackedRow<T, N, kPacks>;
  constexpr int kAhead = 2;
  [[maybe_unused]] __shared__ RowExchange<Number, Place::kIsNarrow ? 1 : 4, 1> exchange;
  const Place place(grid);

  struct Incoming {
    Packed x;
    PackedRow<T, N, kHasResidual ? kPacks : 1> residual;
  };
  const auto load = [&](int64_t row) {
    Incoming in{};
    if (row >= rows) return in;
    in.x.load(p.x + row * columns, place, columns);
    if constexpr (kHasResidual) in.residual.load(p.residual + row * columns, place, columns);
    return in;
  };
  const int64_t team_first = static_cast<int64_t>(place.team) * place.groups;
  Incoming next[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) next[i] = load(team_first + place.group + i * place.step);
  Packed gamma = load_parameters<Packed>(p.gamma, from_compute<T>(Number(1)), place, columns);
  Packed beta = load_parameters<Packed>(p.beta, from_compute<T>(Number(0)), place, columns);

  // What a warp, or a row's lanes, have of a row.
  Number counted[1] = {};
#pragma unroll
  for (int k = 0; k < kPacks; ++k) counted[0] += place.column_of(k) < columns ? N : 0;
  reduce_lanes(counted, Place::kIsNarrow ? grid.lanes : kWarpThreads, Add());
  const Number per_part = counted[0] > 0 ? Number(1) / counted[0] : Number(0);
  const Number per_column = Number(1) / static_cast<Number>(columns);

  int turn = 0;
  // The same number of turns for all threads of a team.
  for (int64_t first = team_first; first < rows; first += place.step, ++turn) {
    const int64_t row = first + place.group;
    Incoming own = next[0];
#pragma unroll
    for (int i = 1; i < kAhead; ++i) next[i - 1] = next[i];
    next[kAhead - 1] = load(row + kAhead * place.step);
    if constexpr (kHasResidual) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          T& x = own.x.packs[k].elem[i];
          x = from_compute<T>(to_compute(x) + to_compute(own.residual.packs[k].elem[i]));
        }
      }
    }

    const int lanes = Place::kIsNarrow ? grid.lanes : kWarpThreads;
    Number sum[1] = {};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum[0] += to_compute(own.x.packs[k].elem[i]);
    }
    reduce_lanes(sum, lanes, Add());
    const Number part_mean = sum[0] * per_part;
    Number parts[2] = {};  // sums of differences to it, and of their squares
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (place.column_of(k) >= columns) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number difference = to_compute(own.x.packs[k].elem[i]) - part_mean;
        parts[0] += difference;
        parts[1] += difference * difference;
      }
    }
    reduce_lanes(parts, lanes, Add());
    RowMoments<Number> moments;
    if constexpr (Place::kIsNarrow) {
      const Number rest = parts[0] * per_column;
      moments = {part_mean, rest, parts[1] * per_column - rest * rest};
    } else {
      moments =
          block_moments({counted[0], part_mean, parts[0], parts[1]}, exchange, turn, per_column);
    }
    if (row >= rows) continue;
    const Number rstd = reciprocal_deviation(moments.variance, p.epsilon);
    if (place.is_first()) {
      p.mean[row] = moments.mean + moments.rest;
      p.rstd[row] = rstd;
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (place.column_of(k) >= columns) continue;
      keep_packed(gamma.packs[k]);
      keep_packed(beta.packs[k]);
      const int64_t at = row * columns + place.column_of(k);
      if constexpr (kHasResidual) *reinterpret_cast<Vec<T, N>*>(p.sum + at) = own.x.packs[k];
      Number y[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number x = to_compute(own.x.packs[k].elem[i]);
        const Number normalized = ((x - moments.mean) - moments.rest) * rstd;
        y[i] = normalized * to_compute(gamma.packs[k].elem[i]) + to_compute(beta.packs[k].elem[i]);
      }
      store_compute(p.y + at, y);
    }
  }
}

/// Whether rows wider than a warp come here: those of 16 bits only with a residual, and not of whole
/// words.
template <class T, int N, bool kHasResidual>
inline constexpr bool kHasForwardBlocks = sizeof(T) != 2 || (kHasResidual && N < kVec16<T>);

/// There is at least one row, of at most kMostForwardColumns columns, or without kHasForwardBlocks of
/// what a warp holds; N as with_pack chooses it.
template <class T, int N, bool kHasResidual>
void launch_norm_forward(const CudaContext& context, const NormRows<T>& p, int64_t rows,
                         int64_t columns) {
  using Kernel = void(NormRows<T>, int64_t, int64_t, RowGrid);
  Kernel* wide = nullptr;
  if constexpr (kHasForwardBlocks<T, N, kHasResidual>) {
    wide = norm_forward_kernel<T, N, RowScope::kBlocks, kHasResidual>;
  }
  launch_norm_rows<T, Kernel>(context, norm_forward_kernel<T, N, RowScope::kLanes, kHasResidual>,
                              wide, kThreadElements<T>, rows, columns,
                              [&](const RowGrid&) { return p; });
}

}  // namespace bertha
