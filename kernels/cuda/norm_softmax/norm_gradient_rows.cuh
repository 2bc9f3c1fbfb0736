#pragma once

#include <type_traits>

#include "kernels/cuda/norm_softmax/norm_rows.cuh"

namespace bertha {

// LayerNorm backward of rows that a warp, a block or a cluster holds; see norm_rows.cuh.

/// Backward, in blocks: what its registers hold.
template <class T, int N>
inline constexpr int kGradientElements = sizeof(T) == 2 && N > 1 ? 16 : kThreadElements<T>;

/// Widest rows: those of a cluster.
template <class T, int N>
inline constexpr int64_t kMostGradientColumns =
    int64_t{kMostClusterBlocks} * kWideThreads* kGradientElements<T, N>;

template <class T>
struct NormGradient {
  const T* dy;
  const T* x;
  const T* gamma;  // null: 1
  const Compute<T>* mean;
  const Compute<T>* rstd;
  T* dx;                // may be dy
  Compute<T>* partial;  // [teams, 2, columns]: dgamma, dbeta
};

template <class T, int N, RowScope kScope>
__global__ void __launch_bounds__(kScope == RowScope::kLanes ? kNarrowThreads : kWideThreads,
                                  kScope == RowScope::kLanes ? 2 : 1)
    norm_gradient_kernel(NormGradient<T> p, int64_t rows, int64_t columns, RowGrid grid) {
  using Number = Compute<T>;
  constexpr int kElements =
      kScope == RowScope::kLanes ? kThreadElements<T> : kGradientElements<T, N>;
  constexpr int kPacks = kElements / N;
  using Place = RowPlace<N, kPacks, kScope>;
  using Packed = PackedRow<T, N, kPacks>;
  __shared__ std::conditional_t<Place::kIsNarrow, Number[kElements][kNarrowThreads],
                                RowExchange<Number, 2, kMostClusterBlocks>>
      shared;
  const Place place(grid);

  struct Incoming {
    Packed dy;
    Packed x;
    Number mean;
    Number rstd;
  };
  const auto load = [&](int64_t row) {
    Incoming in{};
    if (row >= rows) return in;
    in.dy.load(p.dy + row * columns, place, columns);
    in.x.load(p.x + row * columns, place, columns);
    in.mean = p.mean[row];
    in.rstd = p.rstd[row];
    return in;
  };
  const int64_t team_first = static_cast<int64_t>(place.team) * place.groups;
  Incoming next = load(team_first + place.group);
  Packed gamma = load_parameters<Packed>(p.gamma, from_compute<T>(Number(1)), place, columns);
  const Number per_column = Number(1) / static_cast<Number>(columns);
  if constexpr (!Place::kIsNarrow) team_barrier(grid.cluster);  // all are there to be written to

  Number dgamma[kElements] = {};
  Number dbeta[kElements] = {};
  int turn = 0;
  for (int64_t first = team_first; first < rows; first += place.step, ++turn) {
    const int64_t row = first + place.group;
    Incoming own = next;
    next = load(row + place.step);
    Number sums[2] = {};  // of g = dy * gamma, and of g * normalized
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number dy = to_compute(own.dy.packs[k].elem[i]);
        const Number normalized = (to_compute(own.x.packs[k].elem[i]) - own.mean) * own.rstd;
        const Number g = dy * to_compute(gamma.packs[k].elem[i]);
        sums[0] += g;
        sums[1] += g * normalized;
        dgamma[k * N + i] += dy * normalized;
        dbeta[k * N + i] += dy;
      }
    }
    if constexpr (Place::kIsNarrow) {
      reduce_lanes(sums, grid.lanes, Add());
    } else {
      reduce_lanes(sums, kWarpThreads, Add());
      exchange_parts(sums, shared, turn, grid.cluster, place.rank);
      const auto& parts = shared.parts[turn % 2];
      sums[0] = sums[1] = 0;
      for_parts(grid.cluster, [&](int other, int warp) {
        sums[0] += parts[0][other][warp];
        sums[1] += parts[1][other][warp];
      });
      reduce_lanes(sums, kWarpThreads, Add());
    }
    if (row >= rows) continue;
    sums[0] *= per_column;
    sums[1] *= per_column;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (place.column_of(k) >= columns) continue;
      keep_packed(own.dy.packs[k]);
      keep_packed(own.x.packs[k]);
      keep_packed(gamma.packs[k]);
      Number gradient[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number normalized = (to_compute(own.x.packs[k].elem[i]) - own.mean) * own.rstd;
        const Number g = to_compute(own.dy.packs[k].elem[i]) * to_compute(gamma.packs[k].elem[i]);
        gradient[i] = own.rstd * (g - sums[0] - normalized * sums[1]);
      }
      store_compute(p.dx + row * columns + place.column_of(k), gradient);
    }
  }

  Number* const partial = p.partial + int64_t{2} * place.team * columns;
  if constexpr (Place::kIsNarrow) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int quantity = 0; quantity < 2; ++quantity) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        shared[i][thread] = quantity == 0 ? dgamma[i] : dbeta[i];
      }
      __syncthreads();
      // A thread for each element of each lane, over the groups.
      const int element = thread / grid.lanes;
      const int64_t column = place.column_of(element / N) + element % N;
      if (element >= kElements || column >= columns) continue;
      Number total = 0;
      for (int other = 0; other < place.groups; ++other) {
        total += shared[element][other * grid.lanes + thread % grid.lanes];
      }
      partial[quantity * columns + column] = total;
    }
  } else {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (place.column_of(k) >= columns) continue;
      Number* const own = partial + place.column_of(k);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        own[i] = dgamma[k * N + i];
        own[columns + i] = dbeta[k * N + i];
      }
    }
    team_barrier(grid.cluster);  // none leaves while it is written to
  }
}

/// There is at least one row, of at most kMostGradientColumns columns. take_partial(teams) makes
/// room for as many partial sums.
template <class T, int N, class TakePartial>
void launch_norm_gradient(const CudaContext& context, NormGradient<T> p, int64_t rows,
                          int64_t columns, const TakePartial& take_partial) {
  launch_norm_rows<T>(context, norm_gradient_kernel<T, N, RowScope::kLanes>,
                      norm_gradient_kernel<T, N, RowScope::kBlocks>, kGradientElements<T, N>, rows,
                      columns, [&](const RowGrid& grid) {
                        p.partial = take_partial(grid.teams);
                        return p;
                      });
}

}  // namespace bertha
