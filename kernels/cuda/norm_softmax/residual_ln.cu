// Dropout + residual + LayerNorm, forward and backward.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): forward
// reads x and the residual and writes the sum, y and a bit per element, 4.06 U; backward reads dy,
// the sum and the bits and writes dresidual and dx, 4.06 U.
//
// Forward, a one-shot grid of blocks as small as a team: 55.5 us on an H200 with dropout, where a
// plain copy of as many bytes takes 51.7. Backward, a persistent grid with batches of rows in flight
// in shared memory, and a second kernel that adds up the blocks' column sums: 59.6 us. What else was
// tried: kernels/measured/rows.md.

#include <algorithm>

#include "kernels/cuda/common/column_sums.cuh"
#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/norm_softmax/row_norm.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/ops/residual_ln.h"

namespace bertha {
namespace {

// Forward, a block is as small as a team allows.
constexpr int kForwardThreads = 64;
constexpr int kForwardRows = 2;
/// Blocks that an SM holds: in 16 bits a thread does with 64 registers.
template <class Shape>
constexpr int kForwardBlocks = std::max((sizeof(typename Shape::Element) == 2 ? 1024 : 512) /
                                            Shape::kMostThreads,
                                        1);
// Backward, an SM holds one block: half as many teams as registers have room for leave
// fewer partial sums behind, and fewer rows in flight at once.
constexpr int kBackwardThreads = 512;
constexpr int kBackwardRows = 2;
/// Batches of rows in flight or at work; more of f32 shared memory does not hold.
template <class T>
constexpr int kBackwardStages = sizeof(T) == 2 ? 4 : 3;

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

/// A batch of rows per team; the grid is one-shot.
template <class Shape>
__global__ void __launch_bounds__(Shape::kMostThreads, kForwardBlocks<Shape>)
    residual_ln_fwd_kernel(ForwardPointers<typename Shape::Element> p, int64_t rows,
                           int64_t columns, DeviceDropout dropout, float epsilon) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  wait_for_kernel_before();
  begin_next_kernel();
  const RowTeam<Shape> team(columns);
  const int64_t first = team.first_row;
  if (first >= rows) return;
  const int left = team.rows_left(first, rows);
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
    uint32_t drawn = 0;
    draw_kept(team, 0, first, rows, dropout, dropout.random[0], dropout.random[1], p.mask, drawn,
              kept);
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
  row_statistics(team, sum, epsilon, exchange, 0, first, rows, p.mean, p.rstd, statistics);
  for_rows<kRows>(left, [&](int r) {
    const float shift = -statistics[r].mean * statistics[r].rstd;
    float y[kVecSize];
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      const float normalized = fmaf(sum[r][i], statistics[r].rstd, shift);
      y[i] = fmaf(normalized, element(gamma, i), element(beta, i));
    }
    store_vec_global(p.y + at + r * team.columns, to_vec<T>(y));
  });
}

template <class T>
struct BackwardPointers {
  const T* dy;
  const T* sum;
  const float* mean;
  const float* rstd;
  const uint8_t* mask;
  const T* gamma;
  T* dresidual;
  T* dx;
  float* partial;  // f32 [blocks, 3, columns]: dgamma, dbeta, dbias
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kMostThreads, 1)
    residual_ln_bwd_kernel(BackwardPointers<typename Shape::Element> p, int64_t rows,
                           int64_t columns, DeviceDropout dropout) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  wait_for_kernel_before();
  RowTeam<Shape> team(columns);
  team.interleave_blocks();
  const T* const streams[2] = {p.dy, p.sum};
  RowRing<Shape, 2, kBackwardStages<T>> ring(slots, team, rows, streams);
  SavedRows<Shape> next;
  next.load(team, team.first_row, rows, p.mean, p.rstd, p.mask);
  Vec<T, kVecSize> gamma{};
  if (team.inside) gamma = load_vec(p.gamma + team.thread * kVecSize);
  float sums[3][kVecSize] = {};

  int turn = 0;
  for (int64_t first = team.first_row; first < rows; first += team.row_stride, ++turn) {
    ring.refill(team, first, rows, streams);
    const SavedRows<Shape> saved = next;
    next.load(team, first + team.row_stride, rows, p.mean, p.rstd, p.mask);
    ring.wait();
    const int left = team.rows_left(first, rows);
    NormGradientSums<Shape> row_sums;
    RowStatistics statistics[kRows];
    saved.statistics_of_all(statistics);
    for_rows<kRows>(left, [&](int r) {
      float dy[kVecSize];
      to_floats(ring.read(team, 0, r), dy);
      row_sums.add_row(r, dy, ring.read(team, 1, r), gamma, statistics[r], sums[0], sums[1]);
    });
    row_sums.reduce(team, exchange, turn);
    keep_packed(gamma);
    T* const dresidual_at = p.dresidual + team.at(first);
    T* const dx_at = p.dx + team.at(first);
    uint32_t kept[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) kept[r] = saved.kept(team, r);
    for_rows<kRows>(left, [&](int r) {
      float dy[kVecSize];
      float dresidual[kVecSize];
      float dx[kVecSize];
      to_floats(ring.read(team, 0, r), dy);
      row_sums.gradient(r, dy, ring.read(team, 1, r), gamma, statistics[r], dresidual);
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        dx[i] = is_set(kept[r], i) ? dresidual[i] * dropout.keep_factor : 0.0f;
        sums[2][i] += dx[i];
      }
      store_vec_global(dresidual_at + r * team.columns, to_vec<T>(dresidual));
      store_vec_global(dx_at + r * team.columns, to_vec<T>(dx));
    });
    ring.advance();
  }
  begin_next_kernel();
  // In the memory of the rows, of which no more are in flight.
  store_block_sums(team, sums, p.partial, reinterpret_cast<float*>(slots));
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const ResidualLnFwd& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  if (rows == 0) return;
  const DeviceDropout dropout = device_dropout(args.dropout);
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
        .mask = dropout.active() ? aligned_elements<uint8_t>(args.mask) : nullptr};
    dispatch_team<T, kForwardThreads, kForwardRows>(columns, [&](auto shape) {
      using Shape = decltype(shape);
      const unsigned blocks = blocks_for(rows, Shape::kTeams * Shape::kRows, INT32_MAX);
      launch_dependent(context.stream, residual_ln_fwd_kernel<Shape>,
                       {blocks, static_cast<int>(team_threads<Shape>(columns))}, pointers, rows,
                       columns, dropout, args.epsilon);
    });
  });
}

template <>
void run_cuda(CudaContext& context, const ResidualLnBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const DeviceDropout dropout = device_dropout(args.dropout);
  const bool add = args.accumulate == Accumulate::kYes;
  dispatch_io(args.dy.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    dispatch_team<T, kBackwardThreads, kBackwardRows>(columns, [&](auto shape) {
      using Shape = decltype(shape);
      const unsigned blocks =
          rows == 0 ? 0 : team_blocks<Shape>(rows, columns, context.sm_count, 1);
      auto* partial =
          static_cast<float*>(context.scratch.take(column_sum_bytes(blocks, columns, 3)));
      if (blocks > 0) {
        const BackwardPointers<T> pointers{
            .dy = aligned_elements<T>(args.dy),
            .sum = aligned_elements<T>(args.sum),
            .mean = elements<float>(args.mean),
            .rstd = elements<float>(args.rstd),
            .mask = dropout.active() ? aligned_elements<uint8_t>(args.mask) : nullptr,
            .gamma = aligned_elements<T>(args.gamma),
            .dresidual = aligned_elements<T>(args.dresidual),
            .dx = aligned_elements<T>(args.dx),
            .partial = partial};
        const int bytes = ring_bytes<Shape, 2, kBackwardStages<T>>(columns);
        allow_shared_bytes(residual_ln_bwd_kernel<Shape>, bytes);
        launch_dependent(context.stream, residual_ln_bwd_kernel<Shape>,
                         {blocks, static_cast<int>(team_threads<Shape>(columns)), bytes}, pointers,
                         rows, columns, dropout);
      }
      finish_column_sums<T, 3>(context, partial, blocks, columns,
                               {{{elements<T>(args.dgamma), add},
                                 {elements<T>(args.dbeta), add},
                                 {elements<T>(args.dbias), add}}});
    });
  });
}

}  // namespace bertha
