// Embedding: gather of three tables + LayerNorm + dropout, and its gradients.
//
// A team of threads per row (row_team.cuh), rows by cp.async through a pipeline in shared memory.
// Backward writes the gradient of the sum once; the word and the position table add its rows
// (embedding_tables.cu), the two rows of the segment table are column sums of this pass, as are
// gamma and beta.
//
// Bound by  instructions forward (the schedulers issue in 71 % of all cycles), memory backward.
// Figure    [24,576 x 1,024] bf16, dropout 0.1, one H200: forward 48 us, backward 113 us, 57 and 59
//           % of the rate of a copy; with atomic adds 276 us (kernels/measured/embedding.md).

#include "kernels/base/cuda/column_sums.cuh"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/cuda/row_norm.cuh"
#include "kernels/base/divide.h"
#include "kernels/cuda/chosen_options.h"
#include "kernels/cuda/embedding/embedding_tables.h"
#include "kernels/cuda/embedding/paired_atomic_add.cuh"
#include "kernels/ops/embedding.h"

namespace bertha {
namespace {

// Threads of a block, blocks of one SM and their batches of rows, as in residual_ln.cu.
constexpr int kThreads = 256;
constexpr int kRowsOfBatch = 4;
constexpr int kForwardBlocks = 2;
constexpr int kBackwardBlocks = 2;
constexpr int kForwardStages = 2;
constexpr int kBackwardStages = 3;

// Segment tables of one or two rows (sentences A and B) are column sums of the main pass.
constexpr int kSummedSegments = 2;

/// Number of stages of a ring: `wanted` on sm_90a. On other GPUs wide f32 rows have one, to fit
/// into 99 KiB of shared memory.
template <class Shape>
__host__ __device__ constexpr int ring_stages(int wanted, bool is_sm90a_code) {
  return is_sm90a_code || Shape::kFixed || sizeof(typename Shape::Element) == 2 ? wanted : 1;
}

struct TokenIds {
  const int32_t* word;
  const int32_t* position;
  const int32_t* segment;
};

template <class T>
struct ForwardPointers {
  TokenIds ids;
  const T* word_table;
  const T* position_table;
  const T* segment_table;
  const T* gamma;
  const T* beta;
  T* sum;
  T* y;
  float* mean;
  float* rstd;
  uint8_t* mask;
};

/// The ids of a batch, one per lane: words, then positions, then segments.
template <class Shape>
__device__ __forceinline__ int32_t load_ids(const RowTeam<Shape>& team, int first, int rows,
                                            const TokenIds& ids) {
  constexpr int kRows = Shape::kRows;
  static_assert(3 * kRows <= kWarpThreads);
  const int row = first + team.lane % kRows;
  if (team.lane >= 3 * kRows || row >= rows) return 0;
  const int table = team.lane / kRows;
  return (table == 0 ? ids.word : table == 1 ? ids.position : ids.segment)[row];
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kMostThreads, Shape::kFixed ? kForwardBlocks : 1)
    embedding_fwd_kernel(ForwardPointers<typename Shape::Element> p, int rows, int64_t columns,
                         DeviceDropout dropout, float epsilon) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  const RowTeam<Shape> team(columns);
  const int column = team.thread * kVecSize;
  constexpr int kStages = ring_stages<Shape>(kForwardStages, kIsSm90aCode);
  RowRing<Shape, 3, kStages> ring(slots, team);
  // The ids of a batch arrive before the batch is requested.
  int32_t next_ids = load_ids(team, team.first_row, rows, p.ids);
  const auto request = [&](int stage, int first) {
    int32_t ids[3 * kRows];  // shuffled by whole warps
#pragma unroll
    for (int i = 0; i < 3 * kRows; ++i) ids[i] = __shfl_sync(kFullWarp, next_ids, i);
    next_ids = load_ids(team, first + team.row_stride, rows, p.ids);
    ring.request(team, stage, team.rows_left(first, rows), [&](int tensor, int r) {
      const T* const table = tensor == 0   ? p.word_table
                             : tensor == 1 ? p.position_table
                                           : p.segment_table;
      return table + ids[tensor * kRows + r] * columns + column;
    });
  };
  for (int turn = 0; turn < kStages - 1; ++turn) {
    request(turn, team.first_row + turn * team.row_stride);
  }
  const bool drops = dropout.active();
  const uint64_t seed = drops ? dropout.random[0] : 0;
  const uint64_t step = drops ? dropout.random[1] : 0;
  Vec<T, kVecSize> gamma{};
  Vec<T, kVecSize> beta{};
  if (team.inside) {
    gamma = load_vec(p.gamma + column);
    beta = load_vec(p.beta + column);
  }

  uint32_t drawn = 0;
  int turn = 0;
  for (int first = team.first_row; first < rows; first += team.row_stride, ++turn) {
    request(ring.free_stage(), first + (kStages - 1) * team.row_stride);
    uint32_t kept[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) kept[r] = ~0u;
    if (drops) draw_kept(team, turn, first, rows, dropout, seed, step, p.mask, drawn, kept);

    ring.wait();
    Vec<T, kVecSize> rounded[kRows];
    float sum[kRows][kVecSize];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      // Undefined beyond the last row, of which nothing is stored.
      const Vec<T, kVecSize> word = ring.read(team, 0, r);
      const Vec<T, kVecSize> position = ring.read(team, 1, r);
      const Vec<T, kVecSize> segment = ring.read(team, 2, r);
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        sum[r][i] = element(word, i) + element(position, i) + element(segment, i);
      }
      rounded[r] = to_vec<T>(sum[r]);
      if (team.has(first, r, rows)) store_vec(p.sum + team.at(first + r), rounded[r]);
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
      float y[kVecSize];
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        const float normalized = (element(rounded[r], i) - statistics[r].mean) * statistics[r].rstd;
        const float scaled = fmaf(normalized, element(gamma, i), element(beta, i));
        y[i] = is_set(kept[r], i) ? scaled * dropout.keep_factor : 0.0f;
      }
      store_vec(p.y + team.at(first + r), to_vec<T>(y));
    }
    ring.advance();
  }
}

template <class T>
struct BackwardPointers {
  const T* dy;
  TokenIds ids;
  const T* sum;
  const float* mean;
  const float* rstd;
  const uint8_t* mask;
  const T* gamma;
  T* dsum;
  T* dword_table;  // receives atomic adds; null when the sorted sum follows
  float* partial;  // f32 [blocks, 4, columns]: dgamma, dbeta, segment 0, segment 1
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kMostThreads, Shape::kFixed ? kBackwardBlocks : 1)
    embedding_bwd_kernel(BackwardPointers<typename Shape::Element> p, int rows, int64_t columns,
                         DeviceDropout dropout) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  const RowTeam<Shape> team(columns);
  const int column = team.thread * kVecSize;
  const T* const streams[2] = {p.dy, p.sum};
  RowRing<Shape, 2, ring_stages<Shape>(kBackwardStages, kIsSm90aCode)> ring(slots, team, rows,
                                                                            streams);
  SavedRows<Shape> next;
  next.load(team, team.first_row, rows, p.mean, p.rstd, p.mask);
  int32_t next_ids = load_ids(team, team.first_row, rows, p.ids);
  Vec<T, kVecSize> gamma{};
  if (team.inside) gamma = load_vec(p.gamma + column);
  float sums[2 + kSummedSegments][kVecSize] = {};

  int turn = 0;
  for (int first = team.first_row; first < rows; first += team.row_stride, ++turn) {
    ring.refill(team, first, rows);
    const SavedRows<Shape> saved = next;
    next.load(team, first + team.row_stride, rows, p.mean, p.rstd, p.mask);
    const int32_t ids = next_ids;
    next_ids = load_ids(team, first + team.row_stride, rows, p.ids);
    ring.wait();
    const int left = team.rows_left(first, rows);
    RowStatistics statistics[kRows];
    uint32_t kept[kRows];
    int32_t words[kRows];
    int32_t segments[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      statistics[r] = saved.statistics(r);
      kept[r] = saved.kept(team, r);
      words[r] = __shfl_sync(kFullWarp, ids, r);
      segments[r] = __shfl_sync(kFullWarp, ids, 2 * kRows + r);
    }
    const auto read_dy = [&](int r, float(&dy)[kVecSize]) {
      const Vec<T, kVecSize> vec = ring.read(team, 0, r);
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        dy[i] = is_set(kept[r], i) ? element(vec, i) * dropout.keep_factor : 0.0f;
      }
    };
    NormGradientSums<Shape> row_sums;
    for_rows<kRows>(left, [&](int r) {
      float dy[kVecSize];
      read_dy(r, dy);
      row_sums.add_row(r, dy, ring.read(team, 1, r), gamma, statistics[r], sums[0], sums[1]);
    });
    row_sums.reduce(team, exchange, turn);
    keep_packed(gamma);
    for_rows<kRows>(left, [&](int r) {
      float dy[kVecSize];
      float dsum[kVecSize];
      read_dy(r, dy);
      row_sums.gradient(r, dy, ring.read(team, 1, r), gamma, statistics[r], dsum);
      store_vec(p.dsum + team.at(first + r), to_vec<T>(dsum));
      if (segments[r] == 0) {
#pragma unroll
        for (int i = 0; i < kVecSize; ++i) sums[2][i] += dsum[i];
      } else {
#pragma unroll
        for (int i = 0; i < kVecSize; ++i) sums[3][i] += dsum[i];
      }
      if (p.dword_table != nullptr) {
        add_run_atomically(p.dword_table + words[r] * columns + column, dsum);
      }
    });
    ring.advance();
  }
  // The sums use the memory of the rows, of which no more are in flight.
  store_block_sums(team, sums, p.partial, reinterpret_cast<float*>(slots));
}

TokenIds token_ids(const View& words, const View& positions, const View& segments) {
  return {.word = elements<int32_t>(words),
          .position = elements<int32_t>(positions),
          .segment = elements<int32_t>(segments)};
}

template <class T, class Shape>
void run_backward(CudaContext& context, const EmbeddingBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const DeviceDropout dropout = device_dropout(args.dropout);
  const bool sorted = args.rows_by_word.has_data() && chosen_options(context).embedding_gradient ==
                                                          CudaOptions::EmbeddingGradient::kSorted;
  const int bytes = ring_bytes<Shape, 2>(
      ring_stages<Shape>(kBackwardStages, context.device.has_sm90a_code()), columns);
  const unsigned blocks = rows == 0 ? 0
                                    : team_blocks<Shape>(context, &embedding_bwd_kernel<Shape>,
                                                         rows, columns, bytes, kBackwardBlocks);
  // Parts of one block of scratch, each aligned.
  const int64_t partial_bytes =
      round_up(column_sum_bytes(blocks, columns, 2 + kSummedSegments), 256);
  const int64_t dsum_bytes = round_up(args.dy.bytes(), 256);
  const int64_t sorted_bytes = sorted ? sorted_rows_scratch_bytes(rows, columns) : 0;
  auto* scratch =
      static_cast<char*>(context.scratch.take(partial_bytes + dsum_bytes + sorted_bytes));
  auto* partial = reinterpret_cast<float*>(scratch);
  const View dsum(scratch + partial_bytes, args.dy.dtype, {rows, columns});

  if (rows > 0) {
    const BackwardPointers<T> pointers{
        .dy = aligned_elements<T>(args.dy),
        .ids = token_ids(args.word_ids, args.position_ids, args.segment_ids),
        .sum = aligned_elements<T>(args.sum),
        .mean = elements<float>(args.mean),
        .rstd = elements<float>(args.rstd),
        .mask = dropout.active() ? elements<uint8_t>(args.mask) : nullptr,
        .gamma = aligned_elements<T>(args.gamma),
        .dsum = elements<T>(dsum),
        .dword_table = sorted ? nullptr : elements<T>(args.dword_table),
        .partial = partial};
    launch_kernel(context.stream, embedding_bwd_kernel<Shape>,
                  {blocks, team_threads<Shape>(columns), bytes}, pointers, static_cast<int>(rows),
                  columns, dropout);
  }
  const bool add = args.accumulate == Accumulate::kYes;
  const int64_t segments = args.dsegment_table.extent(0);
  const bool few_segments = segments <= kSummedSegments;
  T* first_segment = few_segments ? elements<T>(args.dsegment_table) : nullptr;
  T* second_segment = segments == 2 ? elements<T>(args.dsegment_table) + columns : nullptr;
  finish_column_sums<T, 2 + kSummedSegments>(context, partial, blocks, columns,
                                             {{{elements<T>(args.dgamma), add},
                                               {elements<T>(args.dbeta), add},
                                               {first_segment, true},
                                               {second_segment, true}}});
  if (sorted) {
    add_rows_sorted(context, {.rows = dsum,
                              .ids = args.word_ids,
                              .order = args.rows_by_word,
                              .table = args.dword_table,
                              .scratch = scratch + partial_bytes + dsum_bytes});
  }
  add_rows_scanned(context,
                   {.rows = dsum, .ids = args.position_ids, .table = args.dposition_table});
  if (!few_segments) {
    add_rows_scanned(context,
                     {.rows = dsum, .ids = args.segment_ids, .table = args.dsegment_table});
  }
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const EmbeddingFwd& args) {
  const int64_t rows = args.y.extent(0);
  const int64_t columns = args.y.extent(1);
  if (rows == 0) return;
  const DeviceDropout dropout = device_dropout(args.dropout);
  dispatch_io(args.y.dtype, [&]<class T>(TypeTag<T>) {
    const ForwardPointers<T> pointers{
        .ids = token_ids(args.word_ids, args.position_ids, args.segment_ids),
        .word_table = aligned_elements<T>(args.word_table),
        .position_table = aligned_elements<T>(args.position_table),
        .segment_table = aligned_elements<T>(args.segment_table),
        .gamma = aligned_elements<T>(args.gamma),
        .beta = aligned_elements<T>(args.beta),
        .sum = aligned_elements<T>(args.sum),
        .y = aligned_elements<T>(args.y),
        .mean = elements<float>(args.mean),
        .rstd = elements<float>(args.rstd),
        .mask = dropout.active() ? aligned_elements<uint8_t>(args.mask) : nullptr};
    dispatch_team<T, kThreads, kRowsOfBatch>(rows, columns, [&]<class Shape>(Shape) {
      const int bytes = ring_bytes<Shape, 3>(
          ring_stages<Shape>(kForwardStages, context.device.has_sm90a_code()), columns);
      const unsigned blocks = team_blocks<Shape>(context, &embedding_fwd_kernel<Shape>, rows,
                                                 columns, bytes, kForwardBlocks);
      launch_kernel(context.stream, embedding_fwd_kernel<Shape>,
                    {blocks, team_threads<Shape>(columns), bytes}, pointers, static_cast<int>(rows),
                    columns, dropout, args.epsilon);
    });
  });
}

template <>
void run_cuda(CudaContext& context, const EmbeddingBwd& args) {
  dispatch_io(args.dy.dtype, [&]<class T>(TypeTag<T>) {
    dispatch_team<T, kThreads, kRowsOfBatch>(args.dy.extent(0), args.dy.extent(1), [&](auto shape) {
      run_backward<T, decltype(shape)>(context, args);
    });
  });
}

}  // namespace bertha
