// Dropout + residual + LayerNorm, forward and backward.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): forward
// reads x and the residual and writes the sum, y and a bit per element, 4.06 U; backward reads dy,
// the sum and the bits and writes dresidual and dx, 4.06 U.
//
// Measured on an H200, CUDA 13.0, 2026-11-22, `bertha bench kernels` at 491cf8f, operands in no cache,
// medians of 30; backward with the kernel that finishes the column sums. A plain copy of the same
// bytes takes 54 us.
//   p      forward us   of floor   of the copy   backward us   of floor   of the copy
//   0.1    62.7         76 %       87 %          64.6          74 %       83 %
// Instructions weigh as much as memory: forward's schedulers issue in 71 % of all cycles, and the
// random bits cost 4 us. Backward's blocks leave 3 MB of partial sums to the finishing kernel.
// Also tried, us forward / backward at p = 0.1: rows straight into registers instead of through
// shared memory 64 / 71; two rows of a team at a time instead of four 71 / 82.

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/row_norm.cuh"

namespace bertha {
namespace {

// Blocks of 256 threads that one multiprocessor holds: they decide how many registers a thread may
// have. One more would spill.
constexpr int kForwardBlocks = 3;
constexpr int kBackwardBlocks = 2;
// Batches of rows on their way or at work: what the blocks' share of shared memory holds. Two
// blocks of three batches are as fast forward as three of two.
constexpr int kForwardStages = 2;
constexpr int kBackwardStages = 3;

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

template <class Shape>
__global__ void __launch_bounds__(Shape::kMostThreads, Shape::kFixed ? kForwardBlocks : 1)
    residual_ln_fwd_kernel(ForwardPointers<typename Shape::Element> p, int64_t rows,
                           int64_t columns, DeviceDropout dropout, float epsilon) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  const RowTeam<Shape> team(columns);
  RowPipeline<Shape, 2, kForwardStages> pipeline(slots);
  const T* const streams[2] = {p.x, p.residual};
  pipeline.start(team, rows, streams);
  const bool drops = dropout.active();
  const uint64_t seed = drops ? dropout.random[0] : 0;
  const uint64_t step = drops ? dropout.random[1] : 0;
  Octet<T> bias{};
  Octet<T> gamma{};
  Octet<T> beta{};
  if (team.inside) {
    bias = load_octet(p.bias + team.thread * kOctet);
    gamma = load_octet(p.gamma + team.thread * kOctet);
    beta = load_octet(p.beta + team.thread * kOctet);
  }

  int turn = 0;
  for (int64_t first = team.first_row; first < rows; first += team.row_stride, ++turn) {
    pipeline.request_rows(team, turn + kForwardStages - 1,
                          first + (kForwardStages - 1) * team.row_stride, rows, streams);
    uint32_t kept[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) kept[r] = ~0u;
    if (drops) draw_kept(team, first, rows, dropout, seed, step, p.mask, kept);

    keep_packed(bias);
    pipeline.wait();
    Octet<T> rounded[kRows];
    float sum[kRows][kOctet];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Octet<T> x = pipeline.read(turn, 0, r);
      const Octet<T> residual = pipeline.read(turn, 1, r);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        const float input = element(x, i) + element(bias, i);
        const float passed = is_set(kept[r], i) ? input : 0.0f;
        sum[r][i] = fmaf(passed, dropout.keep_factor, element(residual, i));
      }
      rounded[r] = rounded_octet<T>(sum[r]);
      if (team.has(first, r, rows)) store_octet(p.sum + team.at(first + r), rounded[r]);
      to_floats(rounded[r], sum[r]);  // statistics of what backward will read
    }

    RowStatistics statistics[kRows];
    row_statistics(team, sum, epsilon, exchange, turn, first, rows, p.mean, p.rstd, statistics);
    keep_packed(gamma);
    keep_packed(beta);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      keep_packed(rounded[r]);
      if (!team.has(first, r, rows)) continue;
      float y[kOctet];
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        const float normalized = (element(rounded[r], i) - statistics[r].mean) * statistics[r].rstd;
        y[i] = fmaf(normalized, element(gamma, i), element(beta, i));
      }
      store_octet(p.y + team.at(first + r), rounded_octet<T>(y));
    }
  }
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
__global__ void __launch_bounds__(Shape::kMostThreads, Shape::kFixed ? kBackwardBlocks : 1)
    residual_ln_bwd_kernel(BackwardPointers<typename Shape::Element> p, int64_t rows,
                           int64_t columns, DeviceDropout dropout) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  const RowTeam<Shape> team(columns);
  RowPipeline<Shape, 2, kBackwardStages> pipeline(slots);
  const T* const streams[2] = {p.dy, p.sum};
  pipeline.start(team, rows, streams);
  SavedRows<Shape> next;
  next.load(team, team.first_row, rows, p.mean, p.rstd, p.mask);
  Octet<T> gamma{};
  if (team.inside) gamma = load_octet(p.gamma + team.thread * kOctet);
  float sums[3][kOctet] = {};

  int turn = 0;
  for (int64_t first = team.first_row; team.block_has(first, rows);
       first += team.row_stride, ++turn) {
    pipeline.request_rows(team, turn + kBackwardStages - 1,
                          first + (kBackwardStages - 1) * team.row_stride, rows, streams);
    const SavedRows<Shape> saved = next;
    next.load(team, first + team.row_stride, rows, p.mean, p.rstd, p.mask);
    pipeline.wait();
    NormGradientSums<Shape> row_sums;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float dy[kOctet];
      to_floats(pipeline.read(turn, 0, r), dy);
      row_sums.add_row(r, dy, pipeline.read(turn, 1, r), gamma, saved.statistics(r), sums[0],
                       sums[1]);
    }
    row_sums.meet(team, exchange, turn);
    keep_packed(gamma);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const RowStatistics statistics = saved.statistics(r);
      const uint32_t kept = saved.kept(team, r);
      if (!team.has(first, r, rows)) continue;
      float dy[kOctet];
      float dresidual[kOctet];
      float dx[kOctet];
      to_floats(pipeline.read(turn, 0, r), dy);
      row_sums.gradient(r, dy, pipeline.read(turn, 1, r), gamma, statistics, dresidual);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        dx[i] = is_set(kept, i) ? dresidual[i] * dropout.keep_factor : 0.0f;
        sums[2][i] += dx[i];
      }
      store_octet(p.dresidual + team.at(first + r), rounded_octet<T>(dresidual));
      store_octet(p.dx + team.at(first + r), rounded_octet<T>(dx));
    }
  }
  store_block_sums(team, sums, p.partial);
}

}  // namespace

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
    dispatch_team<T>(columns, [&](auto shape) {
      using Shape = decltype(shape);
      const unsigned blocks =
          team_blocks<Shape>(rows, columns, context.multiprocessors, kForwardBlocks);
      launch_teams<Shape, 2, kForwardStages>(context.stream, residual_ln_fwd_kernel<Shape>, blocks,
                                             columns, pointers, rows, columns, dropout,
                                             args.epsilon);
    });
  });
}

void run_cuda(CudaContext& context, const ResidualLnBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const DeviceDropout dropout = device_dropout(args.dropout);
  const bool add = args.accumulate == Accumulate::kYes;
  dispatch_io(args.dy.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    dispatch_team<T>(columns, [&](auto shape) {
      using Shape = decltype(shape);
      const unsigned blocks =
          rows == 0 ? 0
                    : team_blocks<Shape>(rows, columns, context.multiprocessors, kBackwardBlocks);
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
        launch_teams<Shape, 2, kBackwardStages>(context.stream, residual_ln_bwd_kernel<Shape>,
                                                blocks, columns, pointers, rows, columns, dropout);
      }
      finish_column_sums<T, 3>(context, partial, blocks, columns,
                               {{{elements<T>(args.dgamma), add},
                                 {elements<T>(args.dbeta), add},
                                 {elements<T>(args.dbias), add}}});
    });
  });
}

}  // namespace bertha
