#pragma once

#include "kernels/base/cuda/column_sums.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/fp8.cuh"
#include "kernels/base/cuda/row_norm.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_operands.cuh"

namespace bertha {

// LayerNorm backward, alone or with the dropout and the residual before it, of rows of a multiple
// of 8 columns up to 8,192, at 16-byte aligned addresses.
//
// A persistent grid of row teams (row_team.cuh): batches of rows are in flight in shared memory,
// and a thread keeps the column sums of dgamma, dbeta and the bias in registers; a second kernel
// adds the sums of the blocks up. Loads have matrices; their `values` are applied in both passes.
//
// Registers (layer_norm_bwd_registers.cuh) take 15 % longer at 256 columns, 38 % at 512, 25 % at
// 1,024, 2 % at 2,048.
//
// Bound by memory: with dropout 24,576 x 1,024 bf16 take 59.6 us on an H200, where a copy of as
// many bytes takes 51.7 (kernels/rows/measured/rows.md).

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

/// partial [blocks, 2 or 3, columns]: dgamma, dbeta, and with a branch dbias.
template <class Shape, class Norm, Branch kBranch>
__global__ void __launch_bounds__(Shape::kMostThreads, 1)
    layer_norm_bwd_team_kernel(Norm p, DropoutBranch<typename Shape::Element> branch, int rows,
                               int64_t columns) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  constexpr bool kHasDropout = kBranch != Branch::kNone;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  wait_for_kernel_before();
  RowTeam<Shape> team(columns);
  team.interleave_blocks();
  const T* const streams[2] = {p.dy.matrix, reinterpret_cast<const T*>(p.x.matrix)};
  RowRing<Shape, 2, team_backward_stages<T>(kIsSm90aCode)> ring(slots, team, rows, streams);
  SavedRows<Shape> next;
  next.load(team, team.first_row, rows, p.mean, p.rstd, branch.mask);
  Vec<std::remove_cvref_t<decltype(*p.gamma)>, kVecSize> gamma{};
  const int column = team.thread * kVecSize;
  if (team.inside) gamma = load_vec(p.gamma + column);
  float sums[kHasDropout ? 3 : 2][kVecSize] = {};
  constexpr bool kRounds = kBranch == Branch::kE5M2;
  Fp8Rounding<T, __NV_E5M2, true> rounding(kRounds ? *branch.dx_fp8.scale : 1.0f);
  const int live_rows = kRounds ? live_rows_of(branch.dx_fp8, 0, INT32_MAX) : 0;

  int turn = 0;
  int64_t at = team.at(team.first_row);
  for (int first = team.first_row; first < rows; first += team.row_stride, ++turn) {
    ring.refill(team, first, rows);
    const SavedRows<Shape> saved = next;
    next.load(team, first + team.row_stride, rows, p.mean, p.rstd, branch.mask);
    ring.wait();
    const int left = team.rows_left(first, rows);
    const auto place = [&](int r) { return RowPlace{first + r, column, at + r * team.columns}; };
    const auto read = [&](int r, float(&dy)[kVecSize], float(&x)[kVecSize]) {
      numbers_of(p.dy, place(r), ring.read(team, 0, r), dy);
      numbers_of(p.x, place(r), ring.read(team, 1, r), x);
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
      put_by([](auto* to, const auto& vec) { store_vec_global(to, vec); }, p.dx, place(r), dx);
      if constexpr (kHasDropout) {
        float dropped[kVecSize];
        for (int i = 0; i < kVecSize; ++i) {
          dropped[i] = is_set(kept[r], i) ? dx[i] * branch.keep_factor : 0.0f;
          sums[2][i] += dropped[i];
        }
        const Vec<T, kVecSize> rounded[] = {to_vec<T>(dropped)};
        if constexpr (kRounds) {
          *reinterpret_cast<uint2*>(branch.dx_fp8.q + place(r).dense) = rounding.round(rounded[0]);
          rounding.record(rounded, first + r < live_rows ? 1 : 0);
        } else {
          store_vec_global(branch.dx + place(r).dense, rounded[0]);
        }
      }
    });
    ring.advance();
    at += team.row_stride * team.columns;
  }
  begin_next_kernel();
  if constexpr (kRounds) {
    __shared__ Fp8Extremes of_warp[Shape::kMostThreads / kWarpThreads];
    record_block_extremes(rounding.extremes(), of_warp, branch.dx_fp8);
  }
  // In the memory of the rows, of which no more are in flight.
  store_block_sums(team, sums, p.partial, reinterpret_cast<float*>(slots));
}

/// take_partial(blocks) allocates the sums of as many blocks, of none without rows.
template <Branch kBranch, class Norm, class TakePartial>
void launch_layer_norm_bwd_team(const CudaContext& context, Norm p,
                                const DropoutBranch<typename Norm::Element>& branch, int64_t rows,
                                int64_t columns, const TakePartial& take_partial) {
  using T = typename Norm::Element;
  dispatch_team<T, kTeamBackwardThreads, kTeamBackwardRows>(rows, columns, [&](auto shape) {
    using Shape = decltype(shape);
    const auto kernel = &layer_norm_bwd_team_kernel<Shape, Norm, kBranch>;
    const int bytes =
        ring_bytes<Shape, 2>(team_backward_stages<T>(context.device.has_sm90a_code()), columns);
    const unsigned blocks =
        rows == 0 ? 0 : team_blocks<Shape>(context, kernel, rows, columns, bytes, 1);
    p.partial = take_partial(blocks);
    if (blocks == 0) return;
    launch_dependent(context, kernel, {blocks, team_threads<Shape>(columns), bytes}, p, branch,
                     static_cast<int>(rows), columns);
  });
}

}  // namespace bertha
