// Stand-alone LayerNorm, forward and backward.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): forward
// 2 U, backward 3 U. Widths that divide into octets and fit a team of warps pass over memory once
// (row_team.cuh). Other widths take a block per row that reads the row again for each pass, mostly
// from the caches, and a kernel of its own for the column sums.
//
// Measured on an H200, CUDA 13.0, 2026-11-21, rotating buffers, median: forward 31.2 us (75 % of
// the floor), backward 48.9 us (72 %).

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/row_norm.cuh"

namespace bertha {
namespace {

// Blocks of 256 threads of one multiprocessor and their batches of rows, as in residual_ln.cu.
constexpr int kForwardBlocks = 3;
constexpr int kBackwardBlocks = 2;
constexpr int kStages = 3;

template <class T>
struct ForwardPointers {
  const T* x;
  const T* gamma;
  const T* beta;
  T* y;
  float* mean;
  float* rstd;
};

template <class T>
struct BackwardPointers {
  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  const T* gamma;
  T* dx;
  float* partial;  // f32 [blocks, 2, columns]: dgamma, dbeta
};

// --- rows of octets --------------------------------------------------------------------------

template <class Shape>
__global__ void __launch_bounds__(Shape::kMostThreads, Shape::kFixed ? kForwardBlocks : 1)
    team_fwd_kernel(ForwardPointers<typename Shape::Element> p, int64_t rows, int64_t columns,
                    float epsilon) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  const RowTeam<Shape> team(columns);
  RowPipeline<Shape, 1, kStages> pipeline(slots);
  const T* const streams[1] = {p.x};
  pipeline.start(team, rows, streams);
  Octet<T> gamma{};
  Octet<T> beta{};
  if (team.inside) {
    gamma = load_octet(p.gamma + team.thread * kOctet);
    beta = load_octet(p.beta + team.thread * kOctet);
  }
  int turn = 0;
  for (int64_t first = team.first_row; first < rows; first += team.row_stride, ++turn) {
    pipeline.request_rows(team, turn + kStages - 1, first + (kStages - 1) * team.row_stride, rows,
                          streams);
    pipeline.wait();
    float values[kRows][kOctet];
#pragma unroll
    for (int r = 0; r < kRows; ++r) to_floats(pipeline.read(turn, 0, r), values[r]);
    RowStatistics statistics[kRows];
    row_statistics(team, values, epsilon, exchange, turn, first, rows, p.mean, p.rstd, statistics);
    keep_packed(gamma);
    keep_packed(beta);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (!team.has(first, r, rows)) continue;
      const Octet<T> x = pipeline.read(turn, 0, r);
      float y[kOctet];
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        const float normalized = (element(x, i) - statistics[r].mean) * statistics[r].rstd;
        y[i] = fmaf(normalized, element(gamma, i), element(beta, i));
      }
      store_octet(p.y + team.at(first + r), rounded_octet<T>(y));
    }
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kMostThreads, Shape::kFixed ? kBackwardBlocks : 1)
    team_bwd_kernel(BackwardPointers<typename Shape::Element> p, int64_t rows, int64_t columns) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  const RowTeam<Shape> team(columns);
  RowPipeline<Shape, 2, kStages> pipeline(slots);
  const T* const streams[2] = {p.dy, p.x};
  pipeline.start(team, rows, streams);
  SavedRows<Shape> next;
  next.load(team, team.first_row, rows, p.mean, p.rstd, nullptr);
  Octet<T> gamma{};
  if (team.inside) gamma = load_octet(p.gamma + team.thread * kOctet);
  float sums[2][kOctet] = {};
  int turn = 0;
  for (int64_t first = team.first_row; first < rows; first += team.row_stride, ++turn) {
    pipeline.request_rows(team, turn + kStages - 1, first + (kStages - 1) * team.row_stride, rows,
                          streams);
    const SavedRows<Shape> saved = next;
    next.load(team, first + team.row_stride, rows, p.mean, p.rstd, nullptr);
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
      if (!team.has(first, r, rows)) continue;
      float dy[kOctet];
      float dx[kOctet];
      to_floats(pipeline.read(turn, 0, r), dy);
      row_sums.gradient(r, dy, pipeline.read(turn, 1, r), gamma, statistics, dx);
      store_octet(p.dx + team.at(first + r), rounded_octet<T>(dx));
    }
  }
  store_block_sums(team, sums, p.partial);
}

// --- rows of any width -----------------------------------------------------------------------

constexpr int kThreads = 256;
constexpr int kAnyWidthBlocks = 8;  // of a multiprocessor

/// Sum over the block, in every thread. `shared` is for this sum alone.
struct SumForAll {
  float partial[kWarpThreads];
  float total;
};
__device__ __forceinline__ float sum_for_all(float value, SumForAll& shared) {
  const float sum = block_sum(value, shared.partial);
  if (threadIdx.x == 0) shared.total = sum;
  __syncthreads();
  return shared.total;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    any_width_fwd_kernel(ForwardPointers<T> p, int64_t rows, int64_t columns, float epsilon) {
  __shared__ SumForAll sum_partial;
  __shared__ SumForAll square_partial;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* x = p.x + row * columns;
    T* y = p.y + row * columns;
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) sum += to_float(x[i]);
    const float mean = sum_for_all(sum, sum_partial) / static_cast<float>(columns);
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const float difference = to_float(x[i]) - mean;
      squares = fmaf(difference, difference, squares);
    }
    const float variance = sum_for_all(squares, square_partial) / static_cast<float>(columns);
    const float rstd = rsqrtf(variance + epsilon);
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const float normalized = (to_float(x[i]) - mean) * rstd;
      y[i] = from_float<T>(fmaf(normalized, to_float(p.gamma[i]), to_float(p.beta[i])));
    }
    if (threadIdx.x == 0) {
      p.mean[row] = mean;
      p.rstd[row] = rstd;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    any_width_bwd_kernel(BackwardPointers<T> p, int64_t rows, int64_t columns) {
  __shared__ SumForAll g_partial;
  __shared__ SumForAll gn_partial;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* dy = p.dy + row * columns;
    const T* x = p.x + row * columns;
    T* dx = p.dx + row * columns;
    const RowStatistics statistics{p.mean[row], p.rstd[row]};
    float sum_g = 0.0f;
    float sum_gn = 0.0f;
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const float g = to_float(dy[i]) * to_float(p.gamma[i]);
      sum_g += g;
      sum_gn = fmaf(g, (to_float(x[i]) - statistics.mean) * statistics.rstd, sum_gn);
    }
    const float mean_g = sum_for_all(sum_g, g_partial) / static_cast<float>(columns);
    const float mean_gn = sum_for_all(sum_gn, gn_partial) / static_cast<float>(columns);
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const float g = to_float(dy[i]) * to_float(p.gamma[i]);
      const float normalized = (to_float(x[i]) - statistics.mean) * statistics.rstd;
      dx[i] = from_float<T>(statistics.rstd * (g - mean_g - normalized * mean_gn));
    }
  }
}

/// A block's share of the rows, a column per thread. Runs before dx is written, which may be dy.
template <class T>
__global__ void __launch_bounds__(kThreads)
    any_width_sums_kernel(BackwardPointers<T> p, int64_t rows, int64_t columns) {
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (column >= columns) return;
  float dgamma = 0.0f;
  float dbeta = 0.0f;
#pragma unroll 4
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float dy = to_float(p.dy[row * columns + column]);
    const float x = to_float(p.x[row * columns + column]);
    dgamma = fmaf(dy, (x - p.mean[row]) * p.rstd[row], dgamma);
    dbeta += dy;
  }
  float* partial = p.partial + 2 * blockIdx.x * columns + column;
  partial[0] = dgamma;
  partial[columns] = dbeta;
}

// --- launchers
// ------------------------------------------------------------------------------------

bool has_octets(int64_t columns, std::initializer_list<const View*> views) {
  uintptr_t bits = 0;
  for (const View* view : views) bits |= reinterpret_cast<uintptr_t>(view->data);
  return columns % kOctet == 0 && columns <= kMostTeamColumns && bits % 16 == 0;
}

template <class T>
ForwardPointers<T> pointers_of(const LayerNormFwd& args) {
  return {.x = elements<T>(args.x),
          .gamma = elements<T>(args.gamma),
          .beta = elements<T>(args.beta),
          .y = elements<T>(args.y),
          .mean = elements<float>(args.mean),
          .rstd = elements<float>(args.rstd)};
}

template <class T>
BackwardPointers<T> pointers_of(const LayerNormBwd& args, float* partial) {
  return {.dy = elements<T>(args.dy),
          .x = elements<T>(args.x),
          .mean = elements<float>(args.mean),
          .rstd = elements<float>(args.rstd),
          .gamma = elements<T>(args.gamma),
          .dx = elements<T>(args.dx),
          .partial = partial};
}

float* take_partial(CudaContext& context, unsigned blocks, int64_t columns) {
  return static_cast<float*>(context.scratch.take(column_sum_bytes(blocks, columns, 2)));
}

/// Leaves the column sums of `blocks` blocks in scratch.
template <class T, class Shape>
float* run_team_backward(CudaContext& context, const LayerNormBwd& args, unsigned blocks) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  float* partial = take_partial(context, blocks, columns);
  launch_teams<Shape, 2, kStages>(context.stream, team_bwd_kernel<Shape>, blocks, columns,
                                  pointers_of<T>(args, partial), rows, columns);
  return partial;
}

template <class T>
float* run_any_width_backward(CudaContext& context, const LayerNormBwd& args, unsigned blocks) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  float* partial = take_partial(context, blocks, columns);
  const BackwardPointers<T> pointers = pointers_of<T>(args, partial);
  const dim3 grid(blocks, static_cast<unsigned>((columns + kThreads - 1) / kThreads));
  any_width_sums_kernel<T><<<grid, kThreads, 0, context.stream>>>(pointers, rows, columns);
  BERTHA_CUDA_CHECK(cudaGetLastError());
  const unsigned row_blocks =
      blocks_for(rows, 1, static_cast<int64_t>(context.multiprocessors) * kAnyWidthBlocks);
  any_width_bwd_kernel<T><<<row_blocks, kThreads, 0, context.stream>>>(pointers, rows, columns);
  BERTHA_CUDA_CHECK(cudaGetLastError());
  return partial;
}

}  // namespace

void run_cuda(CudaContext& context, const LayerNormFwd& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  if (rows == 0) return;
  dispatch_io(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (has_octets(columns, {&args.x, &args.gamma, &args.beta, &args.y})) {
      dispatch_team<T>(columns, [&](auto shape) {
        using Shape = decltype(shape);
        const unsigned blocks =
            team_blocks<Shape>(rows, columns, context.multiprocessors, kForwardBlocks);
        launch_teams<Shape, 1, kStages>(context.stream, team_fwd_kernel<Shape>, blocks, columns,
                                        pointers_of<T>(args), rows, columns, args.epsilon);
      });
    } else {
      const unsigned blocks =
          blocks_for(rows, 1, static_cast<int64_t>(context.multiprocessors) * kAnyWidthBlocks);
      any_width_fwd_kernel<T><<<blocks, kThreads, 0, context.stream>>>(pointers_of<T>(args), rows,
                                                                       columns, args.epsilon);
    }
  });
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

void run_cuda(CudaContext& context, const LayerNormBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const bool add = args.accumulate == Accumulate::kYes;
  dispatch_io(args.dy.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    float* partial = nullptr;
    unsigned blocks = 0;
    if (rows > 0 && has_octets(columns, {&args.dy, &args.x, &args.gamma, &args.dx})) {
      dispatch_team<T>(columns, [&](auto shape) {
        using Shape = decltype(shape);
        blocks = team_blocks<Shape>(rows, columns, context.multiprocessors, kBackwardBlocks);
        partial = run_team_backward<T, Shape>(context, args, blocks);
      });
    } else if (rows > 0) {
      blocks = blocks_for(rows, 16, context.multiprocessors);
      partial = run_any_width_backward<T>(context, args, blocks);
    }
    finish_column_sums<T, 2>(context, partial, blocks, columns,
                             {{{elements<T>(args.dgamma), add}, {elements<T>(args.dbeta), add}}});
  });
}

}  // namespace bertha
