#pragma once

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/base/error.h"

namespace bertha {

// How the kernels around a LayerNorm divide a matrix of rows: a team of warps processes a few rows
// at a time, and each of its threads the same eight neighboring columns of all its rows. So the
// parameters of those columns (gamma, beta, bias) and the column sums of their gradients remain in
// registers; sums over whole rows are exchanged within the team once per few rows.

inline constexpr int kWarpColumns = kVecSize * kWarpThreads;
inline constexpr int64_t kMostTeamColumns = 1024 * kVecSize;
inline constexpr int64_t kMostTeamRows = 1 << 30;  // with row_stride added still 32 bits

/// Sizes known when the kernel is compiled. kTeamWarps 0: the width is known only at launch; then a
/// block is one team, and its last threads may stand beyond the row. Else a block has at most
/// kBlockThreads, or one team. kBatchRows: rows of a batch of 16 bits.
template <class T, int kTeamWarps, int kBlockThreads, int kBatchRows>
struct TeamShape {
  using Element = T;
  static constexpr bool kFixed = kTeamWarps > 0;
  static constexpr int kWarps = kTeamWarps;
  static constexpr int kTeams =
      !kFixed ? 1 : std::max(kBlockThreads / kWarpThreads / (kTeamWarps == 3 ? 4 : kTeamWarps), 1);
  static constexpr int kRows = !kFixed ? 1 : (sizeof(T) == 2 ? kBatchRows : 2);
  static constexpr int kMostWarps = kFixed ? kWarps : 32;  // per team
  static constexpr int kMostThreads = kTeams * kMostWarps * kWarpThreads;
};

/// Whether a team of this width is compiled in, as for the widths of the published models.
constexpr bool has_fixed_team(int64_t columns) {
  return columns % kWarpColumns == 0 && columns >= kWarpColumns && columns <= 4 * kWarpColumns;
}

/// Calls work(TeamShape) for `rows` rows of `columns`. Teams count rows in 32 bits: with 64, tests
/// and addresses of rows take a tenth of a kernel's instructions.
template <class T, int kBlockThreads, int kBatchRows, class Work>
void dispatch_team(int64_t rows, int64_t columns, const Work& work) {
  BERTHA_CHECK(rows <= kMostTeamRows, rows, " rows on CUDA, want at most ", kMostTeamRows);
  BERTHA_CHECK(columns % kVecSize == 0 && columns <= kMostTeamColumns, "rows of ", columns,
               " columns on CUDA, want a multiple of ", kVecSize, " up to ", kMostTeamColumns);
  if (!has_fixed_team(columns)) return work(TeamShape<T, 0, kBlockThreads, kBatchRows>{});
  switch (columns / kWarpColumns) {
    case 1:
      return work(TeamShape<T, 1, kBlockThreads, kBatchRows>{});
    case 2:
      return work(TeamShape<T, 2, kBlockThreads, kBatchRows>{});
    case 3:
      return work(TeamShape<T, 3, kBlockThreads, kBatchRows>{});
    default:
      return work(TeamShape<T, 4, kBlockThreads, kBatchRows>{});
  }
}

/// Threads of a block.
template <class Shape>
unsigned team_threads(int64_t columns) {
  if (Shape::kFixed) return Shape::kMostThreads;
  return static_cast<unsigned>((columns + kWarpColumns - 1) / kWarpColumns) * kWarpThreads;
}

/// Blocks of a persistent grid: as many as run at once, at most one per batch of rows. `bytes`: of
/// dynamic shared memory.
template <class Shape, class Kernel>
unsigned team_blocks(const CudaContext& context, Kernel* kernel, int64_t rows, int64_t columns,
                     int64_t bytes, int per_sm) {
  const int64_t threads = team_threads<Shape>(columns);
  // As many threads as registers allow, and for f32 shared memory. With 512 LayerNorm's backward
  // took 192 us instead of 166 at 2,048 columns, 392 instead of 335 at 4,096 (49,152 rows, f16,
  // H200).
  const int64_t most = sizeof(typename Shape::Element) == 2 ? 1024 : 512;
  const int64_t tuned = Shape::kFixed ? per_sm : (threads > most ? 1 : most / threads);
  return blocks_for(rows, Shape::kTeams * Shape::kRows,
                    blocks_per_sm(context, kernel, threads, bytes, tuned) * context.sm_count);
}

/// A thread's place.
template <class Shape>
struct RowTeam {
  static constexpr int kRows = Shape::kRows;

  __device__ explicit RowTeam(int64_t row_columns)
      : columns(Shape::kFixed ? Shape::kWarps * kWarpColumns : row_columns) {
    const int thread_of_block = static_cast<int>(threadIdx.x);
    warps = Shape::kFixed ? Shape::kWarps : static_cast<int>(blockDim.x) / kWarpThreads;
    team = Shape::kFixed ? thread_of_block / (warps * kWarpThreads) : 0;
    thread = thread_of_block - team * warps * kWarpThreads;
    warp = thread / kWarpThreads;
    lane = thread % kWarpThreads;
    inside = Shape::kFixed || thread * kVecSize < columns;
    first_row = (static_cast<int>(blockIdx.x) * Shape::kTeams + team) * kRows;
    row_stride = static_cast<int>(gridDim.x) * Shape::kTeams * kRows;
  }

  /// Neighbouring batches to neighbouring blocks instead of to the teams of a block: in the last
  /// turn, which not all teams have, all blocks have about as many. The teams of a block then take
  /// different numbers of turns.
  __device__ void interleave_blocks() {
    first_row = (team * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)) * kRows;
  }
  /// Whether row r of the batch at `first` exists and the thread has columns of it.
  __device__ bool has(int first, int r, int rows) const { return inside && first + r < rows; }
  /// Rows of the batch at `first` in which the thread has columns.
  __device__ int rows_left(int first, int rows) const {
    if (!inside || first >= rows) return 0;
    return rows - first < kRows ? rows - first : kRows;
  }
  /// Element of the thread's first column in `row`.
  __device__ int64_t at(int row) const { return row * columns + thread * kVecSize; }

  /// 1 / columns; a compile-time constant if the width is.
  __device__ float per_column() const {
    if constexpr (Shape::kFixed) return 1.0f / static_cast<float>(Shape::kWarps * kWarpColumns);
    return 1.0f / static_cast<float>(columns);
  }

  /// Waits for the team.
  __device__ void sync() const {
    if constexpr (Shape::kFixed && Shape::kWarps == 1) {
      __syncwarp();
    } else if constexpr (Shape::kTeams == 1) {
      __syncthreads();
    } else {
      // Barrier 0 is the block's.
      __barrier_sync_count(static_cast<unsigned>(team) + 1, Shape::kWarps * kWarpThreads);
    }
  }

  int64_t columns;  // per row
  int first_row;    // first row of the team's first batch
  int row_stride;   // from a batch to the next
  int team;         // in the block
  int warps;        // per team
  int thread;       // in the team
  int warp;         // in the team
  int lane;
  bool inside;  // whether the thread's columns are columns of the matrix
};

/// work(r) for the first `left` of kRows rows. A full batch has no test between rows, so that
/// loads of one row overlap the work on another.
template <int kRows, class Work>
__device__ __forceinline__ void for_rows(int left, const Work& work) {
  if (left == kRows) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) work(r);
  } else {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r < left) work(r);
    }
  }
}

/// Batches of neighboring rows in flight. Each thread copies its own vectors asynchronously into
/// places of shared memory that no other thread reads, kStages - 1 batches ahead of the current
/// one: these loads in flight need no registers and no barrier. No thread waits for a batch beyond
/// the last row; values read from such a row are undefined. In backward, this is faster than bulk
/// copies. Without `from` nothing is requested yet, and the rows may come from any matrix.
template <class Shape, int kTensors, int kStages>
class RowRing {
 public:
  using T = typename Shape::Element;
  static constexpr int kRows = Shape::kRows;

  __device__ RowRing(uint4* shared, const RowTeam<Shape>& team)
      : slots_(reinterpret_cast<T*>(shared) +
               team.team * (kStages * kTensors * kRows * team.columns)) {}
  __device__ RowRing(uint4* shared, const RowTeam<Shape>& team, int rows,
                     const T* const (&from)[kTensors])
      : RowRing(shared, team) {
#pragma unroll
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      next_[tensor] = from[tensor] + team.at(team.first_row);
    }
#pragma unroll
    for (int turn = 0; turn < kStages - 1; ++turn) {
      request_next(team, turn, team.first_row + turn * team.row_stride, rows);
    }
  }
  /// Requests another batch of `from`, before the wait for the current one, `first`. Called once
  /// for each batch in order, because the addresses advance by team.row_stride.
  __device__ __forceinline__ void refill(const RowTeam<Shape>& team, int first, int rows) {
    request_next(team, free_stage(), first + (kStages - 1) * team.row_stride, rows);
  }
  /// Starts the copies of a batch of `left` rows; from(tensor, r) is the thread's vector of row r.
  template <class From>
  __device__ __forceinline__ void request(const RowTeam<Shape>& team, int stage, int left,
                                          const From& from) const {
#pragma unroll
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      T* const to =
          slots_ + (stage * kTensors + tensor) * kRows * team.columns + team.thread * kVecSize;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r < left) {
          const T* const at = from(tensor, r);
#pragma unroll
          for (int w = 0; w < Vec<T, kVecSize>::kWords / 4; ++w)
            __pipeline_memcpy_async(reinterpret_cast<uint4*>(to + r * team.columns) + w,
                                    reinterpret_cast<const uint4*>(at) + w, 16);
        }
      }
    }
    __pipeline_commit();
  }
  /// The slot that the next request fills.
  __device__ __forceinline__ int free_stage() const {
    return stage_ == 0 ? kStages - 1 : stage_ - 1;
  }
  __device__ __forceinline__ void wait() const { __pipeline_wait_prior(kStages - 1); }
  __device__ __forceinline__ Vec<T, kVecSize> read(const RowTeam<Shape>& team, int tensor,
                                                   int r) const {
    if (!team.inside) return {};
    return load_vec(slots_ + ((stage_ * kTensors + tensor) * kRows + r) * team.columns +
                    team.thread * kVecSize);
  }
  __device__ __forceinline__ void advance() {
    if (++stage_ < kStages) return;
    stage_ = 0;
  }

 private:
  __device__ __forceinline__ void request_next(const RowTeam<Shape>& team, int stage, int first,
                                               int rows) {
    request(team, stage, team.rows_left(first, rows),
            [&](int tensor, int r) { return next_[tensor] + r * team.columns; });
#pragma unroll
    for (const T*& next : next_) next += team.row_stride * team.columns;
  }
  T* slots_;
  const T* next_[kTensors] = {};  // the thread's columns of the next batch to request
  int stage_ = 0;
};

/// Shared-memory bytes of a ring with `stages` stages.
template <class Shape, int kTensors>
int ring_bytes(int stages, int64_t columns) {
  return stages * kTensors * Shape::kRows * Shape::kTeams * static_cast<int>(columns) *
         static_cast<int>(sizeof(typename Shape::Element));
}

/// Sums of `kCount` values over the warp, with kCount - 1 + log2(32 / kCount) shuffles instead of
/// 5 kCount: each step halves the values that a lane still carries. Returns, in lane l, the sum of
/// value l / (32 / kCount). The order of additions is fixed.
template <int kCount>
__device__ __forceinline__ float warp_sums(float (&values)[kCount], int lane) {
  static_assert((kCount & (kCount - 1)) == 0 && kCount <= kWarpThreads);
  int step = kWarpThreads / 2;
#pragma unroll
  for (int carried = kCount / 2; carried > 0; carried /= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < carried; ++i) {
      const float given = upper ? values[i] : values[i + carried];
      const float kept = upper ? values[i + carried] : values[i];
      values[i] = kept + __shfl_xor_sync(kFullWarp, given, step);
    }
    step /= 2;
  }
  float sum = values[0];
#pragma unroll
  for (int rest = kWarpThreads / 2 / kCount; rest > 0; rest /= 2) {
    sum += __shfl_xor_sync(kFullWarp, sum, rest);
  }
  return sum;
}

/// Shared memory through which the warps of a block's teams exchange sums; two buffers, so that one
/// barrier per exchange is enough: nobody can be two exchanges ahead of a reader.
template <class Shape, int kCount>
struct alignas(16) TeamExchange {
  float values[2][Shape::kTeams][Shape::kMostWarps][kCount];
};

/// Replaces values[i] by `scale` times its sum over the team, in every thread. `turn` counts the
/// exchanges.
template <class Shape, int kCount>
__device__ __forceinline__ void team_sums(const RowTeam<Shape>& team, float (&values)[kCount],
                                          TeamExchange<Shape, kCount>& exchange, int turn,
                                          float scale) {
  constexpr int kLanes = kWarpThreads / kCount;  // lanes with the same sum
  const float sum = warp_sums<kCount>(values, team.lane);
  if constexpr (Shape::kFixed && Shape::kWarps == 1) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = scale * __shfl_sync(kFullWarp, sum, i * kLanes);
  } else {
    float(&parts)[Shape::kMostWarps][kCount] = exchange.values[turn % 2][team.team];
    if (team.lane % kLanes == 0) parts[team.warp][team.lane / kLanes] = sum;
    team.sync();
    // Each lane adds up one of the values, and broadcasts it.
    const int mine = team.lane % kCount;
    float total = parts[0][mine];
#pragma unroll
    for (int warp = 1; warp < (Shape::kFixed ? Shape::kWarps : team.warps); ++warp) {
      total += parts[warp][mine];
    }
    total *= scale;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = __shfl_sync(kFullWarp, total, i);
  }
}

}  // namespace bertha
