#pragma once

#include "kernels/cuda/common/raw_pack.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/tensor_core/barrier.cuh"

namespace bertha {

// The skeleton of plain operations on narrow rows of 16 bits that begin between the 16-byte words of
// memory: a multiple of eight neighbouring rows begins and ends with such a word, comes to shared
// memory as one piece by a bulk copy, and leaves it as one. There a power of two of lanes, which
// the compiler knows, has a row in words of 4 bytes; of a word at a row's edge the neighbour's half
// is left alone. It is loaded with the word though: so a row of even number and the next one, which
// share a word, are of the same warp, side by side or one after the other, and a __syncwarp stands
// between the loads of one and the stores of the other.
//
// Operations are those of narrow_rows.cuh.
//
// Deterministic: every order of summation follows from the width alone.

inline constexpr int kChunkThreads = 128;

/// Where a row lies in the chunk, in words of 4 bytes.
struct ChunkRow {
  int first;
  int words;        // 0: there is no such row
  bool skips_low;   // whether the low half of the first word is of the row before
  bool skips_high;  // whether the high half of the last word is of the row behind

  __device__ ChunkRow(int row, int rows, int columns)
      : first(row * columns / 2),
        words(row < rows ? (row * columns % 2 + columns + 1) / 2 : 0),
        skips_low(row * columns % 2 != 0),
        skips_high((row + 1) * columns % 2 != 0) {}
};

/// Rows of a block: so many that they begin and end with a 16-byte word.
__host__ __device__ constexpr int chunk_rows(int lanes) {
  const int groups = kChunkThreads / lanes;
  return groups < 8 ? 8 : groups;
}

/// 16-byte words of an input: whole lines for a chunk that begins anywhere in one.
__host__ __device__ constexpr int chunk_slot(int elements) {
  return (elements + 2 * kCopyLineElements - 8) / kCopyLineElements * (kCopyLineBytes / 16);
}

/// Rows of at most 2 * kLanes * kWords columns; all operands begin with a 16-byte word.
template <class Operation, int kLanes, int kWords>
__global__ void __launch_bounds__(kChunkThreads)
    chunk_rows_kernel(const __grid_constant__ Operation operation, int64_t rows, int columns) {
  using T = typename Operation::Element;
  constexpr int kInputs = Operation::kInputs;
  constexpr int kGroups = kChunkThreads / kLanes;
  constexpr int kRows = chunk_rows(kLanes);
  constexpr int kTurns = kRows / kGroups;
  static_assert(kTurns == 1 || kLanes == kWarpThreads, "who shares words comes before or behind");
  static_assert(kWarpThreads / kLanes * kTurns % 2 == 0, "two warps share no word");
  extern __shared__ __align__(kCopyLineBytes) uint4 chunk_cells[];
  __shared__ uint64_t full;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kRows;
  const int64_t first = first_row * columns;
  const int here = rows - first_row < kRows ? static_cast<int>(rows - first_row) : kRows;
  const int elements = here * columns;
  const int whole = elements / 8;  // 16-byte words
  const int slot = chunk_slot(kRows * columns);
  // As far behind a line as in memory.
  uint4* const chunk =
      chunk_cells + reinterpret_cast<uintptr_t>(operation.inputs[0] + first) % kCopyLineBytes / 16;
  if (thread == 0) {
    barrier_init(shared_address(&full), 1);
    fence_barrier_init();
    barrier_arrive_expecting(shared_address(&full), static_cast<uint32_t>(kInputs * whole * 16));
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      if (whole == 0) break;
      copy_bytes_async(shared_address(chunk + k * slot), operation.inputs[k] + first,
                       static_cast<uint32_t>(whole * 16), shared_address(&full));
    }
  }
  const int last = whole * 8 + thread;  // the matrix may end within a word
  if (last < elements) {
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      reinterpret_cast<T*>(chunk + k * slot)[last] = operation.inputs[k][first + last];
    }
  }
  __syncthreads();
  barrier_wait(shared_address(&full), 0);

  const int lane = thread % kLanes;
  const int first_of_group = thread / kLanes * kTurns;
  // The same number of turns for the whole block: the shuffles are of whole warps. Two rows of a warp
  // at once take more registers, and 513 columns forward 32.4 us instead of 30.8 (f16, 49,152 rows);
  // counting the turns by ones has nvcc take more for log-softmax, and 771 columns 51.7 for 48.2.
#pragma unroll 1
  for (int turn = 0; turn < kRows; turn += kGroups) {
    const ChunkRow row(first_of_group + turn / kGroups, here, columns);
    auto* const own = reinterpret_cast<uint32_t*>(chunk) + row.first + lane;
    RawPack<T, 2> words[kInputs][kWords];
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
#pragma unroll
      for (int p = 0; p < kWords; ++p) {
        const int word = p * kLanes + lane;
        const uint32_t absent = operation.absent();
        uint32_t pair = absent;
        if (word < row.words) pair = own[k * slot * 4 + p * kLanes];
        if (word == 0 && row.skips_low) pair = (pair & 0xffff0000u) | (absent & 0xffffu);
        if (word == row.words - 1 && row.skips_high) {
          pair = (pair & 0xffffu) | (absent & 0xffff0000u);
        }
        words[k][p].word[0] = pair;
      }
    }
    if (kTurns == 1) __syncwarp();
    operation.template run<kLanes>(words);
#pragma unroll
    for (int p = 0; p < kWords; ++p) {
      const int word = p * kLanes + lane;
      if (word >= row.words) continue;
      const uint32_t pair = words[0][p].word[0];
      const bool has_low = word != 0 || !row.skips_low;
      const bool has_high = word != row.words - 1 || !row.skips_high;
      if (has_low && has_high) {
        own[p * kLanes] = pair;
      } else {
        auto* const halves = reinterpret_cast<uint16_t*>(own + p * kLanes);
        if (has_low) halves[0] = static_cast<uint16_t>(pair);
        if (has_high) halves[1] = static_cast<uint16_t>(pair >> 16);
      }
    }
    if (kTurns > 1) __syncwarp();
  }
  fence_proxy_async();
  __syncthreads();
  if (last < elements) operation.output[first + last] = reinterpret_cast<const T*>(chunk)[last];
  if (thread == 0 && whole > 0) {
    store_bytes_async(operation.output + first, shared_address(chunk),
                      static_cast<uint32_t>(whole * 16));
    wait_for_stores();
  }
}

template <int kLanes, int kWords, class Operation>
void launch_chunks(const CudaContext& context, const Operation& operation, int64_t rows,
                   int64_t columns) {
  constexpr int kRows = chunk_rows(kLanes);
  const int64_t bytes =
      int64_t{16} * chunk_slot(kRows * static_cast<int>(columns)) * Operation::kInputs;
  const auto kernel = &chunk_rows_kernel<Operation, kLanes, kWords>;
  allow_shared_bytes(kernel, bytes);
  const auto blocks = static_cast<unsigned>((rows + kRows - 1) / kRows);
  kernel<<<blocks, kChunkThreads, static_cast<size_t>(bytes), context.stream>>>(
      operation, rows, static_cast<int>(columns));
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

/// Widest rows: with one input, or with more, of which a thread would have to hold too many words.
constexpr int most_chunk_columns(int inputs) { return 2 * kWarpThreads * (inputs == 1 ? 17 : 9); }

/// Rows of at most most_chunk_columns.
template <class Operation>
void run_chunks(const CudaContext& context, const Operation& operation, int64_t rows,
                int64_t columns) {
  if (columns <= 40) return launch_chunks<4, 5>(context, operation, rows, columns);
  if (columns <= 80) return launch_chunks<8, 5>(context, operation, rows, columns);
  if (columns <= 144) return launch_chunks<8, 9>(context, operation, rows, columns);
  if (columns <= 288) return launch_chunks<16, 9>(context, operation, rows, columns);
  if (columns <= 576) return launch_chunks<32, 9>(context, operation, rows, columns);
  if constexpr (Operation::kInputs == 1) {
    launch_chunks<32, 17>(context, operation, rows, columns);
  }
}

}  // namespace bertha
