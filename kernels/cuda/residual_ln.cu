// Dropout + residual + LayerNorm, forward and backward.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): forward
// reads x and the residual and writes the sum, y and a bit per element, 4.06 U; backward reads dy,
// the sum and the bits and writes dresidual and dx, 4.06 U.
//
// Measured on an H200, CUDA 13.0, 2026-11-22, by a small program of its own: operands in no cache,
// medians of 30, the kernels before in the same run; backward with the kernel that finishes the
// column sums. A plain copy of two tensors, the same bytes, takes 57.5 us there (54 in `bertha bench
// kernels`, which gave 62.7 and 64.6 for the kernels before, at 491cf8f).
//   p      forward us   of the copy   before   backward us   of the copy   before
//   0.1    61.0         94 %          64.0     61.3          94 %          65.1
// Neither is bound by instructions: ncu saw 43 and 40 % of issue slots in use, L2 at 82 %.
// What brought it, us: forward, bulk copies and one block of 512 threads on a multiprocessor (three
// of 256: 67.5; each thread's own copies 63.6). Backward, batches of two rows (of four 65.7), and the
// finishing kernel placed early (3). Rows of a batch with nothing asked between them: 1.
// Also tried, us forward / backward: L2 told to forget what was read 65.2 / 65.3, what was stored
// 62.8 / 65.9; backward in bulk copies, four rows, 66; three stages forward 62; rows straight into
// registers instead of through shared memory 64 / 71 (the kernels before 62.7 / 64.6).

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/row_norm.cuh"

namespace bertha {
namespace {

// Threads of a block, of which a multiprocessor holds one: half as many teams as registers have room
// for leave fewer partial sums behind, and fewer rows on their way at once.
constexpr int kThreads = 512;
// Rows of a batch. Four give each lane of a warp one word of 32 dropout decisions to draw.
constexpr int kForwardRows = 4;
constexpr int kBackwardRows = 2;
// Batches of rows on their way or at work.
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
__global__ void __launch_bounds__(Shape::kMostThreads, 1)
    residual_ln_fwd_kernel(ForwardPointers<typename Shape::Element> p, int64_t rows,
                           int64_t columns, DeviceDropout dropout, float epsilon) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  const RowTeam<Shape> team(columns);
  const T* const streams[2] = {p.x, p.residual};
  using Ring = RowRing<Shape, 2, kForwardStages, false>;
  __shared__ typename Ring::Barriers barriers;
  Ring ring(slots, barriers, team, rows, streams);
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

  uint32_t drawn = 0;
  int turn = 0;
  for (int64_t first = team.first_row; first < rows; first += team.row_stride, ++turn) {
    uint32_t kept[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) kept[r] = ~0u;
    if (drops) draw_kept(team, turn, first, rows, dropout, seed, step, p.mask, drawn, kept);

    keep_packed(bias);
    ring.wait();
    T* const sum_at = p.sum + team.at(first);
    const int left = team.rows_left(first, rows);
    Octet<T> rounded[kRows] = {};
    float sum[kRows][kOctet] = {};
    for_rows<kRows>(left, [&](int r) {
      const Octet<T> x = ring.read(team, 0, r);
      const Octet<T> residual = ring.read(team, 1, r);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        const float input = element(x, i) + element(bias, i);
        const float passed = is_set(kept[r], i) ? input : 0.0f;
        sum[r][i] = fmaf(passed, dropout.keep_factor, element(residual, i));
      }
      rounded[r] = rounded_octet<T>(sum[r]);
      store_octet_once(sum_at + r * team.columns, rounded[r]);
      to_floats(rounded[r], sum[r]);  // statistics of what backward will read
    });

    RowStatistics statistics[kRows];
    row_statistics(team, sum, epsilon, exchange, turn, first, rows, p.mean, p.rstd, statistics);
    ring.refill(team, first, rows, streams);
    ring.advance();
    keep_packed(gamma);
    keep_packed(beta);
    T* const y_at = p.y + team.at(first);
    for_rows<kRows>(left, [&](int r) {
      keep_packed(rounded[r]);
      const float shift = -statistics[r].mean * statistics[r].rstd;
      float y[kOctet];
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        const float normalized = fmaf(element(rounded[r], i), statistics[r].rstd, shift);
        y[i] = fmaf(normalized, element(gamma, i), element(beta, i));
      }
      store_octet_once(y_at + r * team.columns, rounded_octet<T>(y));
    });
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
__global__ void __launch_bounds__(Shape::kMostThreads, 1)
    residual_ln_bwd_kernel(BackwardPointers<typename Shape::Element> p, int64_t rows,
                           int64_t columns, DeviceDropout dropout) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  const RowTeam<Shape> team(columns);
  const T* const streams[2] = {p.dy, p.sum};
  OctetRing<Shape, 2, kBackwardStages> ring(slots, team, rows, streams);
  SavedRows<Shape> next;
  next.load(team, team.first_row, rows, p.mean, p.rstd, p.mask);
  Octet<T> gamma{};
  if (team.inside) gamma = load_octet(p.gamma + team.thread * kOctet);
  float sums[3][kOctet] = {};

  int turn = 0;
  for (int64_t first = team.first_row; team.block_has(first, rows);
       first += team.row_stride, ++turn) {
    ring.refill(team, first, rows, streams);
    const SavedRows<Shape> saved = next;
    next.load(team, first + team.row_stride, rows, p.mean, p.rstd, p.mask);
    ring.wait();
    const int left = team.rows_left(first, rows);
    NormGradientSums<Shape> row_sums;
    RowStatistics statistics[kRows];
    saved.statistics_of_all(statistics);
    for_rows<kRows>(left, [&](int r) {
      float dy[kOctet];
      to_floats(ring.read(team, 0, r), dy);
      row_sums.add_row(r, dy, ring.read(team, 1, r), gamma, statistics[r], sums[0], sums[1]);
    });
    row_sums.meet(team, exchange, turn);
    keep_packed(gamma);
    T* const dresidual_at = p.dresidual + team.at(first);
    T* const dx_at = p.dx + team.at(first);
    uint32_t kept[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) kept[r] = saved.kept(team, r);
    for_rows<kRows>(left, [&](int r) {
      float dy[kOctet];
      float dresidual[kOctet];
      float dx[kOctet];
      to_floats(ring.read(team, 0, r), dy);
      row_sums.gradient(r, dy, ring.read(team, 1, r), gamma, statistics[r], dresidual);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        dx[i] = is_set(kept[r], i) ? dresidual[i] * dropout.keep_factor : 0.0f;
        sums[2][i] += dx[i];
      }
      store_octet_once(dresidual_at + r * team.columns, rounded_octet<T>(dresidual));
      store_octet_once(dx_at + r * team.columns, rounded_octet<T>(dx));
    });
    ring.advance();
  }
  begin_next_kernel();
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
    dispatch_team<T, kThreads, kForwardRows>(columns, [&](auto shape) {
      using Shape = decltype(shape);
      const unsigned blocks = team_blocks<Shape>(rows, columns, context.multiprocessors, 1);
      launch_ring_teams<Shape, 2, kForwardStages>(context.stream, residual_ln_fwd_kernel<Shape>,
                                                  blocks, columns, pointers, rows, columns, dropout,
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
    dispatch_team<T, kThreads, kBackwardRows>(columns, [&](auto shape) {
      using Shape = decltype(shape);
      const unsigned blocks =
          rows == 0 ? 0 : team_blocks<Shape>(rows, columns, context.multiprocessors, 1);
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
        launch_ring_teams<Shape, 2, kBackwardStages>(context.stream, residual_ln_bwd_kernel<Shape>,
                                                     blocks, columns, pointers, rows, columns,
                                                     dropout);
      }
      finish_column_sums<T, 3>(context, partial, blocks, columns,
                               {{{elements<T>(args.dgamma), add},
                                 {elements<T>(args.dbeta), add},
                                 {elements<T>(args.dbias), add}}});
    });
  });
}

}  // namespace bertha
