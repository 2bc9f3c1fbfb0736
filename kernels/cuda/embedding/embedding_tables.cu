// Gradients of embedding tables, without atomics.
//
// Sorted    The rows in the order of their ids are cut into chunks of 32. A group of 128 threads
//           sums a chunk, run of equal ids by run. A run inside its chunk is added to the table;
//           the parts of a run across chunks go to scratch, and a second kernel adds them up. So no
//           thread adds the thousands of rows of a frequent token ([MASK] is 12 % of all), and
//           every table row has one writer.
// Scanned   Each block reads all ids (98 KB, from L2), lists the rows of its four table rows in a
//           fixed order and adds them up.
//
// Bound by  memory: each row is read once, and some thousand table rows are read and written.
// Figure    [24,576 x 1,024] bf16, one H200: sorted (words) 35 us, scanned (positions) 27 us, where
//           reading the rows takes 12.

#include "kernels/cuda/embedding/embedding_tables.h"

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/base/divide.h"

namespace bertha {
namespace {

constexpr int kGroupThreads = 128;  // share a row: 1,024 columns; wider rows take more blocks
constexpr int kGroupColumns = kGroupThreads * kVecSize;
constexpr int kGroups = 2;  // per block
constexpr int kChunkRows = kWarpThreads;
constexpr int kRowsInFlight = 4;
constexpr int kNone = -1;

/// The columns of a group's threads, and whether these exist.
struct Columns {
  __device__ explicit Columns(int64_t row_columns)
      : group(static_cast<int>(threadIdx.x) / kGroupThreads),
        thread(static_cast<int>(threadIdx.x) % kGroupThreads),
        first(static_cast<int64_t>(blockIdx.y) * kGroupColumns + thread * kVecSize),
        inside(first < row_columns) {}
  int group;
  int thread;
  int64_t first;
  bool inside;
};

template <class T>
__device__ __forceinline__ void add_vec(const Vec<T, kVecSize>& vec, float (&sum)[kVecSize]) {
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) sum[i] += element(vec, i);
}

struct SortedScratch {
  float* head;       // f32 [chunks, H]  part of a run that began before the chunk
  float* tail;       // f32 [chunks, H]  part of a run that begins in the chunk and continues
  int32_t* head_id;  // i32 [chunks]     its id, or kNone
  int32_t* tail_id;  // i32 [chunks]
};

__device__ __forceinline__ int32_t id_at(const int32_t* order, const int32_t* ids, int64_t rows,
                                         int64_t at) {
  if (at < 0 || at >= rows) return kNone;
  const int32_t row = order[at];
  return row < 0 ? kNone : ids[row];
}

template <class T>
__global__ void __launch_bounds__(kGroups* kGroupThreads)
    sum_chunks_kernel(const T* from, const int32_t* ids, const int32_t* order, int64_t rows,
                      int64_t columns, int64_t chunks, T* table, SortedScratch scratch) {
  const Columns mine(columns);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kGroups + mine.group;
  if (chunk >= chunks) return;

  // Each warp has the whole chunk: lane k its k-th entry.
  const int64_t at = chunk * kChunkRows + lane;
  const int32_t row = at < rows ? order[at] : kNone;
  const int32_t id = row < 0 ? kNone : ids[row];
  const int32_t id_before = id_at(order, ids, rows, chunk * kChunkRows - 1);
  const int32_t id_behind = id_at(order, ids, rows, (chunk + 1) * kChunkRows);
  int32_t next_id = __shfl_down_sync(kFullWarp, id, 1);
  if (lane == kWarpThreads - 1) next_id = id_behind;
  const unsigned live = __ballot_sync(kFullWarp, id != kNone);
  const unsigned run_ends = __ballot_sync(kFullWarp, id != kNone && id != next_id);
  const int32_t first_id = __shfl_sync(kFullWarp, id, 0);
  const int32_t last_id = __shfl_sync(kFullWarp, id, kWarpThreads - 1);
  const bool continues = first_id != kNone && first_id == id_before;
  const bool goes_on = last_id != kNone && last_id == id_behind;
  const bool through =
      continues && goes_on && run_ends == 0;  // one run, from before the chunk to past it
  if (mine.thread == 0 && blockIdx.y == 0) {
    scratch.head_id[chunk] = continues ? first_id : kNone;
    scratch.tail_id[chunk] = goes_on && !through ? last_id : kNone;
  }

  float sum[kVecSize] = {};
  bool in_head = continues;
  for (int k = 0; k < kChunkRows; k += kRowsInFlight) {
    if ((live >> k) == 0) break;
    Vec<T, kVecSize> vecs[kRowsInFlight]{};
    Vec<T, kVecSize> before[kRowsInFlight]{};
#pragma unroll
    for (int j = 0; j < kRowsInFlight; ++j) {
      const int32_t row_j = __shfl_sync(kFullWarp, row, k + j);
      const int32_t id_j = __shfl_sync(kFullWarp, id, k + j);
      if (row_j < 0 || !mine.inside) continue;
      vecs[j] = load_vec(from + row_j * columns + mine.first);
      if ((run_ends >> (k + j)) & 1u) before[j] = load_vec(table + id_j * columns + mine.first);
    }
#pragma unroll
    for (int j = 0; j < kRowsInFlight; ++j) {
      const int32_t id_j = __shfl_sync(kFullWarp, id, k + j);
      add_vec(vecs[j], sum);
      if (((run_ends >> (k + j)) & 1u) == 0) continue;
      if (mine.inside) {
        if (in_head) {
          store_vec(scratch.head + chunk * columns + mine.first, to_vec<float>(sum));
        } else {
          add_vec(before[j], sum);
          store_vec(table + id_j * columns + mine.first, to_vec<T>(sum));
        }
      }
      in_head = false;
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) sum[i] = 0.0f;
    }
  }
  if (goes_on && mine.inside) {
    float* part = through ? scratch.head : scratch.tail;
    store_vec(part + chunk * columns + mine.first, to_vec<float>(sum));
  }
}

constexpr int kFinishGroups = 8;  // share the parts of a run: [MASK] has a hundred

/// A block per chunk in which a crossing run begins: adds its parts to the table.
template <class T>
__global__ void __launch_bounds__(kFinishGroups* kGroupThreads)
    finish_runs_kernel(int64_t columns, int64_t chunks, T* table, SortedScratch scratch) {
  __shared__ float others[kFinishGroups - 1][kVecSize][kGroupThreads];
  const int64_t chunk = blockIdx.x;
  const int32_t id = scratch.tail_id[chunk];
  if (id == kNone) return;
  const Columns mine(columns);
  int64_t heads = 0;  // later chunks that the run reaches: all in one piece, for ids are sorted
  for (;;) {
    const int64_t at = chunk + 1 + heads + threadIdx.x;
    const int found = __syncthreads_count(at < chunks && scratch.head_id[at] == id);
    heads += found;
    if (found < static_cast<int>(blockDim.x)) break;
  }
  float sum[kVecSize] = {};
  if (mine.inside) {
    if (mine.group == 0) add_vec(load_vec(scratch.tail + chunk * columns + mine.first), sum);
#pragma unroll 4
    for (int64_t k = mine.group; k < heads; k += kFinishGroups) {
      add_vec(load_vec(scratch.head + (chunk + 1 + k) * columns + mine.first), sum);
    }
  }
  if (mine.group > 0) {
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) others[mine.group - 1][i][mine.thread] = sum[i];
  }
  __syncthreads();
  if (mine.group > 0 || !mine.inside) return;
#pragma unroll
  for (int other = 0; other < kFinishGroups - 1; ++other) {
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) sum[i] += others[other][i][mine.thread];
  }
  T* target = table + id * columns + mine.first;
  add_vec(load_vec(target), sum);
  store_vec(target, to_vec<T>(sum));
}

// A block of the scan serves four table rows with two groups each. Low positions occur in every
// sequence and high ones in few: rows a quarter of the table apart make the blocks alike.
constexpr int kScanIds = 4;
constexpr int kScanThreads = 1024;
constexpr int kScanWarps = kScanThreads / kWarpThreads;
constexpr int kLaneIds = 32;  // ids that a lane looks at between two barriers: a bit of a word each
constexpr int kTileIds = kScanThreads * kLaneIds;
constexpr int kScanBytes = kTileIds * static_cast<int>(sizeof(uint16_t));
static_assert(kScanThreads == kScanIds * kGroups * kGroupThreads && kTileIds <= 65536);

/// table[id] += the rows whose id it is, for id = blockIdx.x + k * gridDim.x.
template <class T>
__global__ void __launch_bounds__(kScanThreads)
    add_rows_scanned_kernel(const T* from, const int32_t* ids, int64_t rows, int64_t columns,
                            T* table, int64_t table_rows) {
  extern __shared__ uint16_t found[];  // rows of the tile, id by id
  __shared__ int counts[kScanIds][kScanWarps];
  __shared__ float other_half[kScanIds][kVecSize][kGroupThreads];
  const Columns mine(columns);
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int served = mine.group / kGroups;  // which of the ids the group works for
  const int half = mine.group % kGroups;
  const auto id_of = [](int k) { return static_cast<int32_t>(blockIdx.x + k * gridDim.x); };
  float sum[kVecSize] = {};
  bool any = false;
  for (int64_t tile = 0; tile < rows; tile += kTileIds) {
    uint32_t hits[kScanIds] = {};
#pragma unroll 8
    for (int step = 0; step < kLaneIds; ++step) {
      const int64_t at = tile + step * kScanThreads + threadIdx.x;
      const int32_t id = at < rows ? ids[at] : kNone;
#pragma unroll
      for (int k = 0; k < kScanIds; ++k) {
        if (id == id_of(k)) hits[k] |= 1u << step;
      }
    }
    // Places in the list: by id, then warp, lane, step. Any order would do, if it stays the same.
    int place[kScanIds];
#pragma unroll
    for (int k = 0; k < kScanIds; ++k) {
      place[k] = __popc(hits[k]);
#pragma unroll
      for (int step = 1; step < kWarpThreads; step *= 2) {
        const int lower = __shfl_up_sync(kFullWarp, place[k], step);
        if (lane >= step) place[k] += lower;
      }
      if (lane == kWarpThreads - 1) counts[k][warp] = place[k];
      place[k] -= __popc(hits[k]);
    }
    __syncthreads();
    int begin = 0;  // begin of the id's part of the list
    int own_begin = 0;
    int own_count = 0;
#pragma unroll
    for (int k = 0; k < kScanIds; ++k) {
      const int warp_count = counts[k][lane];
      const int before = warp_sum(lane < warp ? warp_count : 0);
      const int all = warp_sum(warp_count);
      uint32_t left = hits[k];
      for (int at = begin + before + place[k]; left != 0; left &= left - 1, ++at) {
        const int step = __ffs(static_cast<int>(left)) - 1;
        found[at] = static_cast<uint16_t>(step * kScanThreads + static_cast<int>(threadIdx.x));
      }
      if (k == served) {
        own_begin = begin;
        own_count = all;
      }
      begin += all;
    }
    __syncthreads();
    any = any || own_count > 0;
    if (mine.inside) {
#pragma unroll 4
      for (int k = half; k < own_count; k += kGroups) {
        add_vec(load_vec(from + (tile + found[own_begin + k]) * columns + mine.first), sum);
      }
    }
    __syncthreads();
  }
  static_assert(kScanWarps == kWarpThreads && kGroups == 2);
  if (half == 1) {
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) other_half[served][i][mine.thread] = sum[i];
  }
  __syncthreads();
  if (half == 1 || !mine.inside || !any || id_of(served) >= table_rows) return;
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) sum[i] += other_half[served][i][mine.thread];
  T* target = table + id_of(served) * columns + mine.first;
  add_vec(load_vec(target), sum);
  store_vec(target, to_vec<T>(sum));
}

/// (ids or chunks by `per_block`, columns)
GridSize grid_of(int64_t count, int per_block, int64_t columns) {
  return {ceil_div(count, per_block), ceil_div(columns, kGroupColumns)};
}

}  // namespace

int64_t sorted_rows_scratch_bytes(int64_t rows, int64_t columns) {
  return ceil_div(rows, kChunkRows) * 2 * (columns + 1) * static_cast<int64_t>(sizeof(float));
}

void add_rows_sorted(CudaContext& context, const SortedRows& args) {
  const int64_t rows = args.rows.extent(0);
  const int64_t columns = args.rows.extent(1);
  const int64_t chunks = ceil_div(rows, kChunkRows);
  if (rows == 0) return;
  auto* head = static_cast<float*>(args.scratch);
  auto* head_id = reinterpret_cast<int32_t*>(head + 2 * chunks * columns);
  const SortedScratch scratch{.head = head,
                              .tail = head + chunks * columns,
                              .head_id = head_id,
                              .tail_id = head_id + chunks};
  dispatch_io(args.rows.dtype, [&]<class T>(TypeTag<T>) {
    T* table = aligned_elements<T>(args.table);
    launch_kernel(context.stream, sum_chunks_kernel<T>,
                  {grid_of(chunks, kGroups, columns), kGroups * kGroupThreads},
                  aligned_elements<T>(args.rows), elements<int32_t>(args.ids),
                  elements<int32_t>(args.order), rows, columns, chunks, table, scratch);
    launch_kernel(context.stream, finish_runs_kernel<T>,
                  {grid_of(chunks, 1, columns), kFinishGroups * kGroupThreads}, columns, chunks,
                  table, scratch);
  });
}

void add_rows_scanned(CudaContext& context, const ScannedRows& args) {
  const int64_t rows = args.rows.extent(0);
  const int64_t columns = args.rows.extent(1);
  if (rows == 0) return;
  const int64_t table_rows = args.table.extent(0);
  dispatch_io(args.rows.dtype, [&]<class T>(TypeTag<T>) {
    launch_kernel(context.stream, add_rows_scanned_kernel<T>,
                  {grid_of(table_rows, kScanIds, columns), kScanThreads, kScanBytes},
                  aligned_elements<T>(args.rows), elements<int32_t>(args.ids), rows, columns,
                  aligned_elements<T>(args.table), table_rows);
  });
}

}  // namespace bertha
