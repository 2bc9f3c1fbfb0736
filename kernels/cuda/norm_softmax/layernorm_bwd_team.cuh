#pragma once

#include "kernels/cuda/common/byte_tile.cuh"
#include "kernels/cuda/common/column_sums.cuh"
#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/fp8.cuh"
#include "kernels/cuda/norm_softmax/layernorm_operands.cuh"
#include "kernels/cuda/norm_softmax/row_norm.cuh"

namespace bertha {

// LayerNorm backward, alone or with the dropout and the residual before it, of rows of a multiple
// of 8 columns up to 8,192, at 16-byte aligned addresses.
//
// A persistent grid of row teams (row_team.cuh): batches of rows are in flight in shared memory,
// and a thread keeps the column sums of dgamma, dbeta and the bias in registers; a second kernel
// adds the sums of the blocks up. Loads have matrices; their `values` are applied in both passes.
// Where dx is wanted in fp8 and transposed, the teams of a block work on neighbouring rows, whose
// bytes meet in shared memory: one barrier of the block for 32 rows.
//
// Bound by memory: with dropout 24,576 x 1,024 bf16 take 59.6 us on an H200, where a copy of as
// many bytes takes 51.7 (kernels/measured/rows.md).

// One block per SM, half of the teams that registers allow: fewer partial sums to add up, and fewer
// rows in flight.
inline constexpr int kTeamBackwardThreads = 512;
inline constexpr int kTeamBackwardRows = 2;  // of a batch
/// Batches of rows in flight or at work: as many as 227 KiB of shared memory hold on sm_90a, and
/// 99 KiB elsewhere.
template <class T>
__host__ __device__ constexpr int team_backward_stages(bool is_sm90a_code) {
  return is_sm90a_code ? (sizeof(T) == 2 ? 4 : 3) : (sizeof(T) == 2 ? 3 : 1);
}

/// The branch of a residual block that goes back through the dropout.
template <class T>
struct DropoutBranch {
  const uint8_t* mask = nullptr;  // [rows, columns / 8]; null: nothing is dropped
  T* dx = nullptr;
  float keep_factor = 1.0f;
  Fp8Sink dx_fp8 = {};  // e5m2, in place of dx
};

/// Whether the gradient also goes back through a dropout, and how that result is stored.
enum class Branch : uint8_t { kNone, kIo, kE5M2 };

/// Rows that a block takes together where it also stores dx_fp8 transposed: each column leaves in a
/// whole sector, or there are groups for more SMs.
inline constexpr int kGroupRows = 32;
inline constexpr int kFewGroupRows = 16;
/// Groups of so many neighbouring rows that a block takes in turn, neighbouring blocks neighbouring
/// groups, and their bytes of dx.
template <class Shape, int kGroupRows>
struct TransposedGroups {
  static constexpr int kTurnRows = Shape::kTeams * Shape::kRows;
  static constexpr int kTurns = kGroupRows / kTurnRows;  // of a group
  using Tile = ByteTile<kGroupRows, Shape::kWarps * kWarpColumns>;

  static __device__ __forceinline__ int64_t first_row(int turn) {
    return (blockIdx.x + static_cast<int64_t>(turn / kTurns) * gridDim.x) * kGroupRows;
  }
  /// Of a team's batch.
  static __device__ __forceinline__ int64_t row(const RowTeam<Shape>& team, int turn) {
    return first_row(turn) + turn % kTurns * kTurnRows + team.team * Shape::kRows;
  }
  __device__ __forceinline__ void put(const RowTeam<Shape>& team, int turn, int r,
                                      const uint2& bytes) const {
    const int row = turn % kTurns * kTurnRows + team.team * Shape::kRows + r;
    tiles[turn / kTurns % 2].put(row, team.thread * kVecSize, bytes);
  }
  /// Of the group that a turn belongs to, by all threads of the block.
  __device__ __forceinline__ void store_columns(int turn, uint8_t* transposed, int64_t rows) const {
    __syncthreads();
    const int64_t begin = first_row(turn);
    tiles[turn / kTurns % 2].store_columns(transposed + begin, rows, rows - begin);
  }

  Tile* tiles;  // two, in turns: nobody is a barrier ahead of a reader
};

/// partial [blocks, 2 or 3, columns]: dgamma, dbeta, and with a branch dbias. kTransposedRows:
/// those above where dx_fp8 is wanted transposed, too, else 0.
template <class Shape, class Norm, Branch kBranch, int kTransposedRows>
__global__ void __launch_bounds__(Shape::kMostThreads, 1)
    layernorm_bwd_team_kernel(Norm p, DropoutBranch<typename Shape::Element> branch, int64_t rows,
                              int64_t columns) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  constexpr bool kHasDropout = kBranch != Branch::kNone;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  wait_for_kernel_before();
  RowTeam<Shape> team(columns);
  team.interleave_blocks();
  using Groups = TransposedGroups<Shape, kTransposedRows>;
  // Of the batch so many turns after that at `first`.
  const auto row_after = [&](int64_t first, int turn, int more) {
    if constexpr (kTransposedRows > 0) return Groups::row(team, turn + more);
    return first + more * team.row_stride;
  };
  const auto row_of = [&](int turn) { return row_after(team.first_row, 0, turn); };
  const T* const streams[2] = {p.dy.matrix, reinterpret_cast<const T*>(p.x.matrix)};
  constexpr int kStages = team_backward_stages<T>(kIsSm90aCode);
  using Ring = RowRing<Shape, 2, kStages>;
  Ring ring(slots, team, rows, streams, row_of);
  SavedRows<Shape> next;
  next.load(team, row_of(0), rows, p.mean, p.rstd, branch.mask);
  Vec<std::remove_cvref_t<decltype(*p.gamma)>, kVecSize> gamma{};
  if (team.inside) gamma = load_vec(p.gamma + team.thread * kVecSize);
  float sums[kHasDropout ? 3 : 2][kVecSize] = {};
  Fp8Rounding<T, __NV_E5M2> rounding(kBranch == Branch::kE5M2 ? *branch.dx_fp8.scale : 1.0f);
  const Groups groups{reinterpret_cast<typename Groups::Tile*>(
      slots + ring_bytes<Shape, 2>(kStages, team.columns) / static_cast<int>(sizeof(uint4)))};

  int turn = 0;
  for (int64_t first = row_of(0); first < rows; first = row_after(first, turn, 1), ++turn) {
    ring.refill(team, row_after(first, turn, Ring::kAhead), rows, streams);
    const SavedRows<Shape> saved = next;
    next.load(team, row_after(first, turn, 1), rows, p.mean, p.rstd, branch.mask);
    ring.wait();
    const int left = team.rows_left(first, rows);
    const auto beyond = [&](int r) { return RowPlace{r, 0, r * team.columns}; };
    const auto place = [&] { return RowPlace{first, team.thread * kVecSize, team.at(first)}; };
    const auto read = [&](int r, float(&dy)[kVecSize], float(&x)[kVecSize]) {
      numbers_of(p.dy, place() + beyond(r), ring.read(team, 0, r), dy);
      numbers_of(p.x, place() + beyond(r), ring.read(team, 1, r), x);
    };
    NormGradientSums<Shape> row_sums;
    RowStatistics statistics[kRows];
    saved.statistics_of_all(statistics);
    for_rows<kRows>(left, [&](int r) {
      float dy[kVecSize];
      float x[kVecSize];
      read(r, dy, x);
      row_sums.add_row(r, dy, x, gamma, statistics[r], sums[0], sums[1]);
    });
    row_sums.reduce(team, exchange, turn);
    keep_packed(gamma);
    const int64_t at = team.at(first);
    const auto to = store_from(p.dx, place());
    const int live = kBranch == Branch::kE5M2 ? live_rows_of(branch.dx_fp8, first, kRows) : 0;
    uint32_t kept[kRows];
    if constexpr (kHasDropout) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) kept[r] = saved.kept(team, r);
    }
    for_rows<kRows>(left, [&](int r) {
      float dy[kVecSize];
      float x[kVecSize];
      float dx[kVecSize];
      read(r, dy, x);
      row_sums.gradient(r, dy, x, gamma, statistics[r], dx);
      put_by([](auto* at, const auto& vec) { store_vec_global(at, vec); }, to, beyond(r), dx);
      if constexpr (kHasDropout) {
        float dropped[kVecSize];
#pragma unroll
        for (int i = 0; i < kVecSize; ++i) {
          dropped[i] = is_set(kept[r], i) ? dx[i] * branch.keep_factor : 0.0f;
          sums[2][i] += dropped[i];
        }
        const Vec<T, kVecSize> rounded[] = {to_vec<T>(dropped)};
        if constexpr (kBranch == Branch::kE5M2) {
          const uint2 bytes = rounding.round(rounded[0]);
          *reinterpret_cast<uint2*>(branch.dx_fp8.q + at + r * team.columns) = bytes;
          rounding.record(rounded, r < live ? 1 : 0);
          if constexpr (kTransposedRows > 0) groups.put(team, turn, r, bytes);
        } else {
          store_vec_global(branch.dx + at + r * team.columns, rounded[0]);
        }
      }
    });
    ring.advance();
    if constexpr (kTransposedRows > 0) {
      if ((turn + 1) % Groups::kTurns == 0) {
        groups.store_columns(turn, branch.dx_fp8.transposed, rows);
      }
    }
  }
  if constexpr (kTransposedRows > 0) {
    // Of the last 16 rows.
    if (turn % Groups::kTurns != 0) groups.store_columns(turn - 1, branch.dx_fp8.transposed, rows);
  }
  begin_next_kernel();
  if constexpr (kBranch == Branch::kE5M2) {
    __shared__ Fp8Extremes of_warp[Shape::kMostThreads / kWarpThreads];
    record_block_extremes(rounding.extremes(), of_warp, branch.dx_fp8);
  }
  // In the memory of the rows, of which no more are in flight.
  store_block_sums(team, sums, p.partial, reinterpret_cast<float*>(slots));
}

/// take_partial(blocks) allocates the sums of as many blocks, of none without rows.
template <Branch kBranch, int kTransposedRows = 0, class Norm, class TakePartial>
void launch_layernorm_bwd_team(const CudaContext& context, Norm p,
                               const DropoutBranch<typename Norm::Element>& branch, int64_t rows,
                               int64_t columns, const TakePartial& take_partial) {
  using T = typename Norm::Element;
  dispatch_team<T, kTeamBackwardThreads, kTeamBackwardRows>(columns, [&](auto shape) {
    using Shape = decltype(shape);
    // Other widths are not called with kTransposedRows.
    constexpr int kGroup = Shape::kWarps > 1 ? kTransposedRows : 0;
    const auto kernel = &layernorm_bwd_team_kernel<Shape, Norm, kBranch, kGroup>;
    int bytes =
        ring_bytes<Shape, 2>(team_backward_stages<T>(context.device.has_sm90a_code()), columns);
    if constexpr (kGroup > 0)
      bytes += 2 * static_cast<int>(sizeof(typename TransposedGroups<Shape, kGroup>::Tile));
    unsigned blocks = rows == 0 ? 0 : team_blocks<Shape>(context, kernel, rows, columns, bytes, 1);
    if constexpr (kGroup > 0) blocks = std::min(blocks, blocks_for(rows, kGroup, INT32_MAX));
    p.partial = take_partial(blocks);
    if (blocks == 0) return;
    allow_shared_bytes(kernel, bytes);
    launch_dependent(context, kernel,
                     {blocks, static_cast<int>(team_threads<Shape>(columns)), bytes}, p, branch,
                     rows, columns);
  });
}

}  // namespace bertha
