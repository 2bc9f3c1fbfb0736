// Dropout + residual + LayerNorm, forward and backward.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): forward
// reads x and the residual and writes the sum, y and a bit per element, 4.06 U; backward reads dy,
// the sum and the bits and writes dresidual and dx, 4.06 U.
//
// Forward, a one-shot grid of blocks as small as a team: 55.5 us on an H200 with dropout, where a
// plain copy of as many bytes takes 51.7. Backward, a persistent grid with batches of rows in
// flight in shared memory, and a second kernel that adds up the blocks' column sums: 59.6 us. What
// else was tried: kernels/measured/rows.md.
//
// With y_fp8 forward also stores e4m3 of y by rows and by columns, 1 U. The bytes of a block's rows
// meet in shared memory; it owns 32 rows, so that each column leaves in a whole sector of 32 bytes,
// and there are enough blocks to hide the phases of one by the others. Where that is not so, blocks
// of 16 rows have a team for every batch: a small step waits for latency alone. With dx_fp8
// backward stores e5m2 in place of dx, likewise.

#include <algorithm>

#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/byte_tile.cuh"
#include "kernels/cuda/norm_softmax/layernorm_bwd_team.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/residual_ln.h"

namespace bertha {
namespace {

// Forward, a block is as small as a team allows.
constexpr int kForwardThreads = 64;
constexpr int kForwardRows = 2;
/// Blocks that an SM holds: with 16 bits a thread needs only 64 registers.
template <class Shape>
constexpr int kForwardBlocks = std::max((sizeof(typename Shape::Element) == 2 ? 1024 : 512) /
                                            Shape::kMostThreads,
                                        1);
// With y_fp8, teams of a block and batches of a team: 32 rows, or 16.
constexpr int kFp8Teams = 2;
constexpr int kFp8Turns = 8;
constexpr int kFewRowsTeams = 8;
constexpr int kFewRowsTurns = 1;
/// A block of so many teams of that shape.
template <class Shape, int kTeams>
using WithTeams =
    TeamShape<typename Shape::Element, Shape::kWarps,
              kTeams * kWarpThreads*(Shape::kWarps == 3 ? 4 : Shape::kWarps), Shape::kRows>;

template <class T>
struct ForwardPointers {
  const T* x;
  const T* bias;
  const T* residual;
  const T* gamma;
  const T* beta;
  T* sum;
  T* y;
  float* mean;
  float* rstd;
  uint8_t* mask;
};

/// kTurns batches of rows per team, 1 without kFp8; the grid is one-shot. kFp8: y_fp8 is wanted.
template <class Shape, int kTurns, bool kFp8>
__global__ void __launch_bounds__(Shape::kMostThreads, kForwardBlocks<Shape>)
    residual_ln_fwd_kernel(ForwardPointers<typename Shape::Element> p, Fp8Sink y_fp8, int64_t rows,
                           int64_t columns, DeviceDropout dropout, float epsilon) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  constexpr int kBlockRows = kTurns * Shape::kTeams * kRows;
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  __shared__ std::conditional_t<kFp8, ByteTile<kBlockRows, Shape::kWarps * kWarpColumns>, char>
      tile;
  wait_for_kernel_before();
  begin_next_kernel();
  RowTeam<Shape> team(columns);
  if constexpr (kTurns > 1) team.keep_together(kTurns);
  Fp8Rounding<T, __NV_E4M3> rounding(kFp8 ? *y_fp8.scale : 1.0f);
  uint32_t drawn = 0;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t first = kTurns > 1 ? team.row_of_turn(turn) : team.first_row;
    if (first >= rows) break;
    // Of fp8 rows are a multiple of 16.
    const int left = kFp8 ? kRows : team.rows_left(first, rows);
    const int64_t at = team.at(first);
    Vec<T, kVecSize> x[kRows] = {};
    Vec<T, kVecSize> residual[kRows] = {};
    for_rows<kRows>(left, [&](int r) {
      x[r] = load_vec(p.x + at + r * team.columns);
      residual[r] = load_vec(p.residual + at + r * team.columns);
    });
    const auto parameter = [&](const T* values) {
      return team.inside ? load_vec(values + team.thread * kVecSize) : Vec<T, kVecSize>{};
    };
    const Vec<T, kVecSize> bias = parameter(p.bias);

    uint32_t kept[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) kept[r] = ~0u;
    if (dropout.active()) {
      draw_kept(team, turn, first, rows, dropout, dropout.random[0], dropout.random[1], p.mask,
                drawn, kept);
    }
    float sum[kRows][kVecSize] = {};
    for_rows<kRows>(left, [&](int r) {
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        const float input = element(x[r], i) + element(bias, i);
        const float passed = is_set(kept[r], i) ? input : 0.0f;
        sum[r][i] = fmaf(passed, dropout.keep_factor, element(residual[r], i));
      }
      const Vec<T, kVecSize> rounded = to_vec<T>(sum[r]);
      store_vec_global(p.sum + at + r * team.columns, rounded);
      to_floats(rounded, sum[r]);  // statistics of what backward will read
    });

    // In flight during the reduction of the team.
    const Vec<T, kVecSize> gamma = parameter(p.gamma);
    const Vec<T, kVecSize> beta = parameter(p.beta);
    RowStatistics statistics[kRows];
    row_statistics(team, sum, epsilon, exchange, turn, first, rows, p.mean, p.rstd, statistics);
    const int live = kFp8 ? live_rows_of(y_fp8, first, kRows) : 0;
    for_rows<kRows>(left, [&](int r) {
      const float shift = -statistics[r].mean * statistics[r].rstd;
      float y[kVecSize];
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        const float normalized = fmaf(sum[r][i], statistics[r].rstd, shift);
        y[i] = fmaf(normalized, element(gamma, i), element(beta, i));
      }
      const Vec<T, kVecSize> rounded[] = {to_vec<T>(y)};
      store_vec_global(p.y + at + r * team.columns, rounded[0]);
      if constexpr (kFp8) {
        const int row = (turn * Shape::kTeams + team.team) * kRows + r;
        const uint2 bytes = rounding.round(rounded[0]);
        rounding.record(rounded, r < live ? 1 : 0);
        *reinterpret_cast<uint2*>(y_fp8.q + at + r * team.columns) = bytes;
        tile.put(row, team.thread * kVecSize, bytes);
      }
    });
  }
  if constexpr (kFp8) {
    __shared__ Fp8Extremes of_warp[Shape::kMostThreads / kWarpThreads];
    record_block_extremes(rounding.extremes(), of_warp, y_fp8);
    if (y_fp8.transposed == nullptr) return;
    __syncthreads();
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * kBlockRows;
    tile.store_columns(y_fp8.transposed + begin, rows, rows - begin);
  }
}

/// Whether an SM would have one block of 32 rows, or none.
bool has_few_rows(const CudaContext& context, int64_t rows) { return rows < 64 * context.sm_count; }

/// Whether the kernels store such a result by columns, too.
bool can_transpose(const View& x, const Fp8Result& result) {
  return has_fixed_team(x.extent(1)) && x.extent(1) > kWarpColumns && x.extent(0) % 16 == 0 &&
         is_aligned({result.q.data, result.transposed.data});
}

/// Whether the forward kernel stores y_fp8 itself.
bool rounds_as_stored(const ResidualLnFwd& args) {
  const Fp8Result& result = args.y_fp8;
  return result.q.has_data() && result.q.dtype == DType::kE4M3 && args.x.dtype != DType::kF32 &&
         can_transpose(args.x, result);
}

template <class Shape, int kTurns, bool kFp8>
void launch_forward(const CudaContext& context, const ForwardPointers<typename Shape::Element>& p,
                    const ResidualLnFwd& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  const unsigned blocks = blocks_for(rows, kTurns * Shape::kTeams * Shape::kRows, INT32_MAX);
  launch_dependent(context, residual_ln_fwd_kernel<Shape, kTurns, kFp8>,
                   {blocks, static_cast<int>(team_threads<Shape>(columns))}, p,
                   kFp8 ? sink_of(args.y_fp8) : Fp8Sink{}, rows, columns,
                   device_dropout(args.dropout), args.epsilon);
}

/// Whether the backward kernel stores dx_fp8 itself.
bool rounds_as_stored(const ResidualLnBwd& args) {
  const Fp8Result& result = args.dx_fp8;
  return result.q.has_data() && result.q.dtype == DType::kE5M2 && args.dy.dtype != DType::kF32 &&
         (!result.transposed.has_data() || can_transpose(args.dy, result));
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const ResidualLnFwd& args) {
  const int64_t rows = args.x.extent(0);
  if (rows == 0) return;
  const bool has_mask = args.dropout.probability > 0.0f;
  const bool rounds = rounds_as_stored(args);
  if (args.y_fp8.q.has_data()) context.require_fp8(ResidualLnFwd::kName);
  dispatch_io(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const ForwardPointers<T> pointers{
        .x = aligned_elements<T>(args.x),
        .bias = aligned_elements<T>(args.bias),
        .residual = aligned_elements<T>(args.residual),
        .gamma = aligned_elements<T>(args.gamma),
        .beta = aligned_elements<T>(args.beta),
        .sum = aligned_elements<T>(args.sum),
        .y = aligned_elements<T>(args.y),
        .mean = elements<float>(args.mean),
        .rstd = elements<float>(args.rstd),
        .mask = has_mask ? aligned_elements<uint8_t>(args.mask) : nullptr};
    dispatch_team<T, kForwardThreads, kForwardRows>(args.x.extent(1), [&](auto shape) {
      using Shape = decltype(shape);
      if constexpr (sizeof(T) == 2 && Shape::kWarps > 1) {
        using Many = WithTeams<Shape, kFp8Teams>;
        using Few = WithTeams<Shape, kFewRowsTeams>;
        if (rounds && has_few_rows(context, rows)) {
          return launch_forward<Few, kFewRowsTurns, true>(context, pointers, args);
        }
        if (rounds) return launch_forward<Many, kFp8Turns, true>(context, pointers, args);
      }
      launch_forward<Shape, 1, false>(context, pointers, args);
    });
  });
  if (args.y_fp8.q.has_data() && !rounds) run_cuda(context, quantize_to(args.y_fp8, args.y));
}

template <>
void run_cuda(CudaContext& context, const ResidualLnBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const DeviceDropout dropout = device_dropout(args.dropout);
  const bool add = args.accumulate == Accumulate::kYes;
  if (args.dx_fp8.q.has_data()) context.require_fp8(ResidualLnBwd::kName);
  dispatch_io(args.dy.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    float* partial = nullptr;
    unsigned blocks = 0;
    const auto take = [&](unsigned count) {
      blocks = count;
      return partial =
                 static_cast<float*>(context.scratch.take(column_sum_bytes(count, columns, 3)));
    };
    const NormBackward<T> norm{.dy = {aligned_elements<T>(args.dy)},
                               .x = {aligned_elements<T>(args.sum)},
                               .gamma = aligned_elements<T>(args.gamma),
                               .mean = elements<float>(args.mean),
                               .rstd = elements<float>(args.rstd),
                               .dx = {aligned_elements<T>(args.dresidual)},
                               .partial = nullptr};
    DropoutBranch<T> branch{
        .mask = dropout.active() ? aligned_elements<uint8_t>(args.mask) : nullptr,
        .dx = aligned_elements<T>(args.dx),
        .keep_factor = dropout.keep_factor};
    if (rounds_as_stored(args)) {
      branch.dx_fp8 = sink_of(args.dx_fp8);
      if constexpr (sizeof(T) == 2) {
        const auto launch = [&](auto transposed_rows) {
          launch_layernorm_bwd_team<Branch::kE5M2, decltype(transposed_rows)::value>(
              context, norm, branch, rows, columns, take);
        };
        if (!args.dx_fp8.transposed.has_data()) {
          launch(std::integral_constant<int, 0>{});
        } else if (has_few_rows(context, rows)) {
          launch(std::integral_constant<int, kFewGroupRows>{});
        } else {
          launch(std::integral_constant<int, kGroupRows>{});
        }
      }
    } else {
      launch_layernorm_bwd_team<Branch::kIo>(context, norm, branch, rows, columns, take);
    }
    finish_column_sums<T, 3>(context, partial, blocks, columns,
                             {{{elements<T>(args.dgamma), add},
                               {elements<T>(args.dbeta), add},
                               {elements<T>(args.dbias), add}}});
  });
  if (args.dx_fp8.q.has_data() && !rounds_as_stored(args)) {
    run_cuda(context, quantize_to(args.dx_fp8, args.dx));
  }
}

}  // namespace bertha
