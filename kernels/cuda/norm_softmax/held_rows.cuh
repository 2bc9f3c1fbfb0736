#pragma once

#include <cuda_pipeline_primitives.h>

#include <type_traits>

#include "kernels/cuda/common/compute.cuh"
#include "kernels/cuda/common/raw_pack.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/norm_softmax/row_packs.cuh"

namespace bertha {

// The skeleton of operations that pass over rows of 16 bits once: a team of warps holds a row in
// registers, takes row after row, and tells itself once per row what its warps found. A thread has
// the same columns of every row, so that what belongs to columns stays in registers too; the next
// row is on its way meanwhile. Rows that begin between the 16-byte words of memory come in words of
// 4 bytes or in single elements, neighbours in a warp next to each other: with the columns' places
// known to the compiler they cost little more than whole words.
//
// An operation is a value that the kernel gets as its argument:
//   Element, kInputs, inputs   its rows: kInputs matrices [rows, columns]
//   output                     where its result begins; may be an input
//   OfColumns<N, kPacks>       what a thread keeps of its columns: made from (operation, rows)
//   of_row(row, rows)          what a row has in memory beside its elements, loaded a row ahead
//   run(rows, of_columns, of_row)   its passes, in terms of HeldRows
//   finish(rows, of_columns, shared)   after the last row
//
// Deterministic: rows are dealt out by number, and every order of summation follows from the width
// and the device.

inline constexpr int kMostHeldTeams = 4;     // of a block, of a warp each
inline constexpr int kMostMeetingParts = 4;  // numbers that a warp tells the others

/// Where the next row is on its way to.
enum class Ahead : uint8_t {
  kNowhere,  // other teams of the SM are at work while one waits
  kRegisters,
  kShared,  // slots of shared memory that nobody but the thread reads, where rows then stay
};

/// Lanes that look at what `warps` warps left: a power of two.
__device__ __forceinline__ int meeting_lanes(int warps) {
  int lanes = 1;
  while (lanes < warps) lanes *= 2;
  return lanes;
}

/// kFull: one warp has a row, and all of its packs but the last: only there is anything to ask.
template <class Operation, int N, int kPackCount, Ahead kAhead, bool kFull>
class HeldRows {
 public:
  using T = typename Operation::Element;
  using Raw = RawPack<T, N>;
  static constexpr int kInputs = Operation::kInputs;
  static constexpr int kPackElements = N;
  static constexpr int kPacks = kPackCount;
  static constexpr int kWarpColumns = kWarpThreads * N * kPacks;
  using Parts = float[2][kWarpThreads][kMostMeetingParts];

  __device__ HeldRows(const Operation& operation, int64_t rows, int64_t columns, int warps,
                      uint4* slots, Parts& parts)
      : operation_(operation),
        slots_(reinterpret_cast<char*>(slots) + threadIdx.x * sizeof(Raw)),
        parts_(parts),
        rows_(rows),
        columns_(static_cast<int>(columns)),
        warps_(warps) {
    const int of_block = static_cast<int>(threadIdx.x) / kWarpThreads;
    lane_ = static_cast<int>(threadIdx.x) % kWarpThreads;
    team_ = of_block / warps;
    warp_ = of_block % warps;
    teams_ = static_cast<int>(blockDim.x) / (warps * kWarpThreads);
    first_column_ = warp_ * kWarpColumns + lane_ * N;
    left_ = columns_ - first_column_;
    row_ = static_cast<int64_t>(blockIdx.x) * teams_ + team_;
    step_ = static_cast<int64_t>(gridDim.x) * teams_;
  }

  __device__ int64_t row() const { return row_; }
  __device__ int64_t next_row() const { return row_ + step_; }
  __device__ int columns() const { return columns_; }
  __device__ int lane() const { return lane_; }
  __device__ int warp() const { return warp_; }
  __device__ int team() const { return team_; }
  __device__ int teams() const { return teams_; }
  /// Whether this thread stores what a row has once.
  __device__ bool is_first() const { return warp_ == 0 && lane_ == 0; }
  /// Whether pack p has columns of the row, and the first of them.
  __device__ __forceinline__ bool has(int p) const {
    return (kFull && p < kPacks - 1) || p * (kWarpThreads * N) < left_;
  }
  __device__ int column_of(int p) const { return first_column_ + p * (kWarpThreads * N); }

  /// Before the first row.
  __device__ __forceinline__ void start() {
    if constexpr (kAhead == Ahead::kRegisters) load(row_, next_);
    if constexpr (kAhead == Ahead::kShared) request(row_, 0);
  }
  /// Takes the team's row of the turn, and sends for the next.
  __device__ __forceinline__ void take(int turn) {
    turn_ = turn;
    if constexpr (kAhead == Ahead::kNowhere) {
      load(row_, own_);
    } else if constexpr (kAhead == Ahead::kRegisters) {
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
#pragma unroll
        for (int p = 0; p < kPacks; ++p) own_[k][p] = next_[k][p];
      }
      load(next_row(), next_);
    } else {
      request(next_row(), turn + 1);
      __pipeline_wait_prior(1);
    }
  }
  __device__ __forceinline__ void leave() { row_ += step_; }

  /// The first element of the warp, or anything where it has none.
  __device__ __forceinline__ float pivot() const {
    float v[N];
    pack(0, 0).unpack(v);
    return __shfl_sync(kFullWarp, v[0], 0);
  }

  /// work(p, v) for the thread's packs, with numbers v[kInputs][N].
  template <class Work>
  __device__ __forceinline__ void for_packs(const Work& work) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!has(p)) continue;
      float v[kInputs][N];
#pragma unroll
      for (int k = 0; k < kInputs; ++k) pack(k, p).unpack(v[k]);
      work(p, v);
    }
  }

  /// Between passes, where unpacking again is cheaper than the registers of the numbers.
  __device__ __forceinline__ void keep_packed() {
    if constexpr (kAhead != Ahead::kShared) {
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
#pragma unroll
        for (int p = 0; p < kPacks; ++p) own_[k][p].keep();
      }
    }
  }

  /// The result of pack p.
  __device__ __forceinline__ void store(int p, const float (&values)[N]) const {
    Raw raw;
    raw.pack(values);
    raw.store(operation_.output + row_ * columns_ + column_of(p));
  }

  /// Once between a row's passes: every warp leaves K numbers, the same in its lanes, and waits for
  /// the others.
  template <int K>
  __device__ __forceinline__ void meet(const float (&numbers)[K]) {
    static_assert(K <= kMostMeetingParts);
    if (warps_ == 1) return;
    if (lane_ == 0) {
#pragma unroll
      for (int k = 0; k < K; ++k) parts_[turn_ % 2][warp_][k] = numbers[k];
    }
    __syncthreads();  // of one team; two turns are apart by the barrier between them
  }
  __device__ bool has_others() const { return warps_ > 1; }
  __device__ int meeting_warps() const { return warps_; }
  /// What a warp left: K numbers.
  template <int K>
  __device__ __forceinline__ void left_by(int warp, float (&numbers)[K]) const {
#pragma unroll
    for (int k = 0; k < K; ++k) numbers[k] = parts_[turn_ % 2][warp][k];
  }
  /// The columns of a warp.
  __device__ float columns_of_warp(int warp) const {
    const int left = columns_ - warp * kWarpColumns;
    return static_cast<float>(left < 0 ? 0 : (left < kWarpColumns ? left : kWarpColumns));
  }

 private:
  // Packs in registers; the slots of shared memory keep them as well.
  static constexpr int kHeldPacks = kAhead == Ahead::kShared ? 1 : kPacks;

  __device__ __forceinline__ Raw pack(int input, int p) const {
    if constexpr (kAhead == Ahead::kShared) {
      Raw raw;
      raw.load(slot(turn_, input, p));
      return raw;
    } else {
      return own_[input][p];
    }
  }
  __device__ __forceinline__ const T* from(int input, int64_t row) const {
    return operation_.inputs[input] + row * columns_ + first_column_;
  }
  __device__ __forceinline__ void load(int64_t row, Raw (&to)[kInputs][kPacks]) const {
    if (row >= rows_) return;
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      const T* const first = from(k, row);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (has(p)) to[k][p].load(first + p * (kWarpThreads * N));
      }
    }
  }
  __device__ __forceinline__ T* slot(int turn, int input, int p) const {
    const int index = ((turn % 2) * kInputs + input) * kPacks + p;
    return reinterpret_cast<T*>(slots_ + index * static_cast<int>(blockDim.x * sizeof(Raw)));
  }
  __device__ __forceinline__ void request(int64_t row, int turn) const {
    if (row < rows_) {
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        const T* const first = from(k, row);
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
          if (has(p)) {
            __pipeline_memcpy_async(slot(turn, k, p), first + p * (kWarpThreads * N),
                                    N * sizeof(T));
          }
        }
      }
    }
    __pipeline_commit();
  }

  const Operation& operation_;
  char* slots_;
  Parts& parts_;
  int64_t rows_;
  int64_t row_;
  int64_t step_;
  int columns_;
  int warps_;  // of the team
  int teams_;  // of the block
  int team_;
  int warp_;
  int lane_;
  int first_column_;
  int left_;  // columns of the row from there on
  int turn_ = 0;
  Raw own_[kInputs][kHeldPacks] = {};
  Raw next_[kInputs][kAhead == Ahead::kRegisters ? kPacks : 1] = {};
};

template <class Operation, int N, int kPacks, Ahead kAhead, bool kFull, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    held_rows_kernel(const __grid_constant__ Operation operation, int64_t rows, int64_t columns,
                     int warps) {
  using Rows = HeldRows<Operation, N, kPacks, kAhead, kFull>;
  extern __shared__ uint4 held_rows_shared[];
  __shared__ typename Rows::Parts parts;
  Rows held(operation, rows, columns, warps, held_rows_shared, parts);
  held.start();
  typename Operation::template OfColumns<N, kPacks> of_columns(operation, held);
  auto next = operation.of_row(held.row(), rows);
  for (int turn = 0; held.row() < rows; ++turn) {
    const auto of_row = next;
    next = operation.of_row(held.next_row(), rows);
    held.take(turn);
    operation.run(held, of_columns, of_row);
    held.leave();
  }
  operation.finish(held, of_columns, reinterpret_cast<float*>(held_rows_shared));
}

/// Rows of at most kThreads * N * kPacks columns. `shared` bytes for finish(); with_blocks(operation,
/// blocks) before the launch.
template <int N, int kPacks, Ahead kAhead, int kThreads, int kBlocks, class Operation,
          class WithBlocks>
void launch_held_rows(const CudaContext& context, Operation operation, int64_t rows,
                      int64_t columns, int64_t shared, const WithBlocks& with_blocks) {
  const int warps = static_cast<int>(blocks_for(columns, N * kPacks * kWarpThreads, kWarpThreads));
  const int teams = warps == 1 ? kMostHeldTeams : 1;
  const int threads = teams * warps * kWarpThreads;
  auto kernel = &held_rows_kernel<Operation, N, kPacks, kAhead, false, kThreads, kBlocks>;
  if constexpr (N < 8 && kThreads == kMostHeldTeams * kWarpThreads) {
    if (warps == 1 && columns > (kPacks - 1) * N * kWarpThreads) {
      kernel = &held_rows_kernel<Operation, N, kPacks, kAhead, true, kThreads, kBlocks>;
    }
  }
  int64_t bytes = teams > 1 ? shared : 0;
  if (kAhead == Ahead::kShared) {
    const int64_t slots = int64_t{2} * Operation::kInputs * kPacks * N * 2 * threads;
    bytes = bytes < slots ? slots : bytes;
  }
  allow_shared_bytes(kernel, bytes);
  int resident = 0;
  BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads,
                                                                  static_cast<size_t>(bytes)));
  const unsigned blocks = blocks_for(rows, teams, int64_t{resident} * context.sm_count);
  with_blocks(operation, blocks);
  kernel<<<blocks, threads, static_cast<size_t>(bytes), context.stream>>>(operation, rows, columns,
                                                                          warps);
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

/// The widest packs in which rows can be read: of 8, 2 or 1 elements.
inline int held_pack(int64_t columns, uintptr_t address_bits) {
  if (columns % 8 == 0 && address_bits % 16 == 0) return 8;
  return columns % 2 == 0 && address_bits % 4 == 0 ? 2 : 1;
}

/// Widest rows that an operation without sums of columns holds, by packs.
constexpr int64_t most_held_columns(int pack) { return pack == 1 ? 512 * 20 : 1024 * 32; }

/// Rows of up to most_held_columns, of an operation with one input that keeps at most two parameters
/// of a column. LayerNorm forward has packs of 8 for it where gamma or beta does not begin with a
/// 16-byte word, narrower ones for 1,089 to 8,192 columns, and for all where x or y does not.
template <class Operation>
void hold_rows(const CudaContext& context, const Operation& operation, int64_t rows,
               int64_t columns, int pack) {
  static_assert(Operation::kInputs == 1);
  constexpr Ahead kNext = Ahead::kRegisters;
  const auto nothing = [](Operation&, unsigned) {};
  if (pack == 8) {
    return launch_held_rows<8, 4, Ahead::kShared, 1024, 1>(context, operation, rows, columns, 0,
                                                           nothing);
  }
  if (pack == 2 && columns <= 1024) {  // a warp a row
    return launch_held_rows<2, 16, Ahead::kNowhere, 128, 4>(context, operation, rows, columns, 0,
                                                            nothing);
  }
  if (pack == 2 && columns <= 16384) {
    return launch_held_rows<2, 8, kNext, 1024, 1>(context, operation, rows, columns, 0, nothing);
  }
  if (pack == 2) {
    return launch_held_rows<2, 16, Ahead::kNowhere, 1024, 1>(context, operation, rows, columns, 0,
                                                             nothing);
  }
  if (columns <= 544) {
    return launch_held_rows<1, 17, kNext, 128, 5>(context, operation, rows, columns, 0, nothing);
  }
  launch_held_rows<1, 20, kNext, 512, 1>(context, operation, rows, columns, 0, nothing);
}

}  // namespace bertha
