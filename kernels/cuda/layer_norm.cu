// Stand-alone LayerNorm, forward and backward.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): forward
// 2 U, backward 3 U. Widths that divide into octets and fit a team of warps pass over memory once
// (row_team.cuh). Other widths, f64, a residual and missing parameters are rows of
// generic_rows.cuh, with a kernel of its own for the column sums.
//
// Measured on an H200, CUDA 13.0, 2026-11-21, rotating buffers, median, by teams: forward 31.2 us
// (75 % of the floor), backward 48.9 us (72 %). The generic rows have not yet run on a GPU.

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/generic_rows.cuh"
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
  for (int64_t first = team.first_row; team.block_has(first, rows);
       first += team.row_stride, ++turn) {
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

__device__ __forceinline__ float reciprocal_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double reciprocal_root(double x) { return rsqrt(x); }

/// A pack of gamma or beta; without data, the same value for every column.
template <int N, class T>
__device__ __forceinline__ void load_parameter(const T* from, int64_t column, Compute<T> otherwise,
                                               Compute<T> (&to)[N]) {
  if (from != nullptr) return load_compute(from + column, to);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = otherwise;
}

template <class T>
struct NormForward {
  using Element = T;
  static constexpr int kInputs = 1;
  const T* inputs[kInputs];  // x
  const T* residual;         // null: none
  const T* gamma;            // null: 1
  const T* beta;             // null: 0
  T* sum;                    // with a residual
  T* y;
  Compute<T>* mean;
  Compute<T>* rstd;
  Compute<T> epsilon;
  int64_t columns;

  template <int N>
  __device__ void values(const Pack<T, N> (&raw)[1], int64_t row, int64_t column,
                         Compute<T> (&v)[1][N]) const {
    to_compute(raw[0], v[0]);
    if (residual == nullptr) return;
    Compute<T> added[N];
    load_compute(residual + row * columns + column, added);
    // Rounded as backward will see it.
#pragma unroll
    for (int i = 0; i < N; ++i) v[0][i] = to_compute(from_compute<T>(v[0][i] + added[i]));
  }

  template <class Rows>
  __device__ void run(Rows& rows) const {
    using Number = Compute<T>;
    constexpr int kRows = Rows::kRows;
    constexpr int N = Rows::kPackElements;
    const auto count = static_cast<Number>(columns);
    Number first_mean[kRows] = {};
    rows.for_packs([&](int r, int64_t, auto& v) {
#pragma unroll
      for (int i = 0; i < N; ++i) first_mean[r] += v[0][i];
    });
    rows.reduce(first_mean, Add());
    // What the mean lost in rounding is a sum of small differences, and comes with the squares.
    Number parts[2 * kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) first_mean[r] /= count;
    rows.for_packs([&](int r, int64_t, auto& v) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number difference = v[0][i] - first_mean[r];
        parts[2 * r] += difference;
        parts[2 * r + 1] += difference * difference;
      }
    });
    rows.reduce(parts, Add());
    Number lost[kRows];
    Number scale[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      lost[r] = parts[2 * r] / count;
      const Number variance = parts[2 * r + 1] / count - lost[r] * lost[r];
      scale[r] = reciprocal_root((variance < Number(0) ? Number(0) : variance) + epsilon);
      if (rows.is_first() && rows.has_row(r)) {
        mean[rows.row(r)] = first_mean[r] + lost[r];
        rstd[rows.row(r)] = scale[r];
      }
    }
    rows.for_packs([&](int r, int64_t column, auto& v) {
      const int64_t at = rows.row(r) * columns + column;
      if (residual != nullptr) store_compute(sum + at, v[0]);
      Number factor[N];
      Number term[N];
      load_parameter(gamma, column, Number(1), factor);
      load_parameter(beta, column, Number(0), term);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number normalized = ((v[0][i] - first_mean[r]) - lost[r]) * scale[r];
        term[i] += normalized * factor[i];
      }
      store_compute(y + at, term);
    });
  }
};

template <class T>
struct NormBackward {
  using Element = T;
  static constexpr int kInputs = 2;
  const T* inputs[kInputs];  // dy, x
  const T* gamma;            // null: 1
  const Compute<T>* mean;
  const Compute<T>* rstd;
  T* dx;

  template <int N>
  __device__ void values(const Pack<T, N> (&raw)[2], int64_t, int64_t,
                         Compute<T> (&v)[2][N]) const {
    to_compute(raw[0], v[0]);
    to_compute(raw[1], v[1]);
  }

  template <class Rows>
  __device__ void run(Rows& rows) const {
    using Number = Compute<T>;
    constexpr int kRows = Rows::kRows;
    constexpr int N = Rows::kPackElements;
    Number shift[kRows];
    Number scale[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      shift[r] = rows.has_row(r) ? mean[rows.row(r)] : Number(0);
      scale[r] = rows.has_row(r) ? rstd[rows.row(r)] : Number(0);
    }
    Number parts[2 * kRows] = {};  // the sums of g = dy * gamma, and of g * normalized
    rows.for_packs([&](int r, int64_t column, auto& v) {
      Number factor[N];
      load_parameter(gamma, column, Number(1), factor);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number g = v[0][i] * factor[i];
        parts[2 * r] += g;
        parts[2 * r + 1] += g * ((v[1][i] - shift[r]) * scale[r]);
      }
    });
    rows.reduce(parts, Add());
#pragma unroll
    for (int k = 0; k < 2 * kRows; ++k) parts[k] /= static_cast<Number>(rows.columns());
    rows.for_packs([&](int r, int64_t column, auto& v) {
      Number factor[N];
      Number gradient[N];
      load_parameter(gamma, column, Number(1), factor);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number normalized = (v[1][i] - shift[r]) * scale[r];
        const Number g = v[0][i] * factor[i];
        gradient[i] = scale[r] * (g - parts[2 * r] - normalized * parts[2 * r + 1]);
      }
      store_compute(dx + rows.row(r) * rows.columns() + column, gradient);
    });
  }
};

/// A block's share of the rows, a column per thread; partial [blocks, 2, columns]: dgamma, dbeta.
/// Runs before dx is written, which may be dy.
template <class T>
__global__ void __launch_bounds__(kThreads)
    column_parts_kernel(NormBackward<T> norm, Compute<T>* partial, int64_t rows, int64_t columns) {
  using Number = Compute<T>;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= columns) return;
  Number dgamma = 0;
  Number dbeta = 0;
#pragma unroll 4
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const Number dy = to_compute(norm.inputs[0][row * columns + column]);
    const Number x = to_compute(norm.inputs[1][row * columns + column]);
    dgamma += dy * ((x - norm.mean[row]) * norm.rstd[row]);
    dbeta += dy;
  }
  Number* own = partial + 2 * blockIdx.y * columns + column;
  own[0] = dgamma;
  own[columns] = dbeta;
}

// --- launchers
// ------------------------------------------------------------------------------------

/// Whether a team can take these rows: with both parameters, without a residual, and not f64.
bool fits_team(int64_t columns, std::initializer_list<const View*> views) {
  bool is_there = true;
  for (const View* view : views) is_there = is_there && view->has_data();
  return is_there && views.begin()[0]->dtype != DType::kF64 && columns % kOctet == 0 &&
         columns <= kMostTeamColumns && address_bits(views) % 16 == 0;
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
const float* run_team_backward(CudaContext& context, const LayerNormBwd& args, unsigned blocks) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  float* partial = take_partial(context, blocks, columns);
  launch_teams<Shape, 2, kStages>(context.stream, team_bwd_kernel<Shape>, blocks, columns,
                                  pointers_of<T>(args, partial), rows, columns);
  return partial;
}

template <class T>
void run_generic_forward(const CudaContext& context, const LayerNormFwd& args) {
  const View unread;
  const View& sum = args.residual.has_data() ? args.sum : unread;
  const NormForward<T> norm{.inputs = {elements<T>(args.x)},
                            .residual = optional_elements<T>(args.residual),
                            .gamma = optional_elements<T>(args.gamma),
                            .beta = optional_elements<T>(args.beta),
                            .sum = optional_elements<T>(sum),
                            .y = elements<T>(args.y),
                            .mean = elements<Compute<T>>(args.mean),
                            .rstd = elements<Compute<T>>(args.rstd),
                            .epsilon = static_cast<Compute<T>>(args.epsilon),
                            .columns = args.x.extent(1)};
  launch_rows(context, norm, args.x.extent(0), args.x.extent(1),
              address_bits({&args.x, &args.residual, &args.gamma, &args.beta, &sum, &args.y}));
}

template <class T>
void run_generic_backward(CudaContext& context, const LayerNormBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const bool add = args.accumulate == Accumulate::kYes;
  const NormBackward<T> norm{.inputs = {elements<T>(args.dy), elements<T>(args.x)},
                             .gamma = optional_elements<T>(args.gamma),
                             .mean = elements<Compute<T>>(args.mean),
                             .rstd = elements<Compute<T>>(args.rstd),
                             .dx = elements<T>(args.dx)};
  if (args.dgamma.has_data() || args.dbeta.has_data()) {
    Compute<T>* partial = nullptr;
    unsigned blocks = 0;
    if (rows > 0) {
      blocks = blocks_for(rows, 16, context.multiprocessors);
      partial = static_cast<Compute<T>*>(
          context.scratch.take(column_sum_bytes<Compute<T>>(blocks, columns, 2)));
      const dim3 grid(static_cast<unsigned>((columns + kThreads - 1) / kThreads), blocks);
      column_parts_kernel<T><<<grid, kThreads, 0, context.stream>>>(norm, partial, rows, columns);
      BERTHA_CUDA_CHECK(cudaGetLastError());
    }
    finish_column_sums<T, 2>(
        context, partial, blocks, columns,
        {{{optional_elements<T>(args.dgamma), add}, {optional_elements<T>(args.dbeta), add}}});
  }
  launch_rows(context, norm, rows, columns,
              address_bits({&args.dy, &args.x, &args.gamma, &args.dx}));
}

template <class T>
void run_by_teams(const CudaContext& context, const LayerNormFwd& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  dispatch_team<T>(columns, [&](auto shape) {
    using Shape = decltype(shape);
    launch_teams<Shape, 1, kStages>(
        context.stream, team_fwd_kernel<Shape>,
        team_blocks<Shape>(rows, columns, context.multiprocessors, kForwardBlocks), columns,
        pointers_of<T>(args), rows, columns, args.epsilon);
  });
}

template <class T>
void run_by_teams(CudaContext& context, const LayerNormBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const bool add = args.accumulate == Accumulate::kYes;
  dispatch_team<T>(columns, [&](auto shape) {
    using Shape = decltype(shape);
    const unsigned blocks =
        team_blocks<Shape>(rows, columns, context.multiprocessors, kBackwardBlocks);
    const float* partial = run_team_backward<T, Shape>(context, args, blocks);
    finish_column_sums<T, 2>(
        context, partial, blocks, columns,
        {{{optional_elements<T>(args.dgamma), add}, {optional_elements<T>(args.dbeta), add}}});
  });
}

}  // namespace

void run_cuda(CudaContext& context, const LayerNormFwd& args) {
  if (args.x.extent(0) == 0) return;
  // Teams subtract the mean as it is stored: in f32 rows far from zero deserve better.
  if (size_bytes(args.x.dtype) == 2 && !args.residual.has_data() &&
      fits_team(args.x.extent(1), {&args.x, &args.gamma, &args.beta, &args.y})) {
    dispatch_16bit(args.x.dtype,
                   [&](auto tag) { run_by_teams<typename decltype(tag)::Type>(context, args); });
  } else {
    dispatch_floating(args.x.dtype, [&](auto tag) {
      run_generic_forward<typename decltype(tag)::Type>(context, args);
    });
  }
}

void run_cuda(CudaContext& context, const LayerNormBwd& args) {
  if (args.dy.extent(0) > 0 &&
      fits_team(args.dy.extent(1), {&args.dy, &args.x, &args.gamma, &args.dx})) {
    dispatch_io(args.dy.dtype,
                [&](auto tag) { run_by_teams<typename decltype(tag)::Type>(context, args); });
  } else {
    dispatch_floating(args.dy.dtype, [&](auto tag) {
      run_generic_backward<typename decltype(tag)::Type>(context, args);
    });
  }
}

}  // namespace bertha
