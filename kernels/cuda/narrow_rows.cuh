#pragma once

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/raw_pack.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bertha {

// The skeleton of plain operations on narrow rows of 16 bits: a power of two of lanes, which the
// compiler knows, has a row in registers, in the words that it has in memory.
//
// An operation is a value that the kernel gets as its argument:
//   Element, kInputs, inputs   its rows: kInputs matrices [rows, columns]
//   output                     where its result begins; may be an input
//   absent()                   a pair of elements that changes no result: what stands beyond a row
//   run<kLanes>(packs)         its passes over packs[kInputs][kPacks]; the result in packs[0]
//
// Deterministic: every order of summation follows from the width alone.

inline constexpr int kNarrowThreads = 128;
inline constexpr int kNarrowBlocks = 64;  // of a multiprocessor, in a few waves

/// Rows of at most kLanes * kPacks * N columns, a multiple of N; kRows at a time.
template <class Operation, int kLanes, int N, int kPacks, int kRows>
__global__ void __launch_bounds__(kNarrowThreads)
    narrow_rows_kernel(const __grid_constant__ Operation operation, int64_t rows, int columns) {
  using Raw = RawPack<typename Operation::Element, N>;
  constexpr int kInputs = Operation::kInputs;
  constexpr int kGroups = kNarrowThreads / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * (kGroups * kRows);
  // The same number of turns for the whole block: the shuffles are of whole warps.
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * (kGroups * kRows); first < rows;
       first += step) {
    Raw packs[kRows][kInputs][kPacks];
    int64_t at[kRows];
    int end[kRows];  // 0: there is no such row
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first + r * kGroups + group;
      at[r] = row * columns;
      end[r] = row < rows ? columns : 0;
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
          const int column = (p * kLanes + lane) * N;
          packs[r][k][p].fill(operation.absent());
          const auto* const from = operation.inputs[k] + at[r] + column;
          if (column < end[r]) packs[r][k][p].load(from);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) operation.template run<kLanes>(packs[r]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const int column = (p * kLanes + lane) * N;
        auto* const to = operation.output + at[r] + column;
        if (column < end[r]) packs[r][0][p].store(to);
      }
    }
  }
}

/// With kLanes lanes, or as many more as the columns need.
template <int kLanes, int N, int kPacks, int kRows, class Operation>
void launch_narrow_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                        int64_t columns) {
  if constexpr (kLanes < kWarpThreads) {
    if (columns > kLanes * kPacks * N) {
      return launch_narrow_rows<2 * kLanes, N, kPacks, kRows>(context, operation, rows, columns);
    }
  }
  constexpr int kRowsOfBlock = kNarrowThreads / kLanes * kRows;
  const unsigned blocks =
      blocks_for(rows, kRowsOfBlock, static_cast<int64_t>(context.multiprocessors) * kNarrowBlocks);
  narrow_rows_kernel<Operation, kLanes, N, kPacks, kRows>
      <<<blocks, kNarrowThreads, 0, context.stream>>>(operation, rows, static_cast<int>(columns));
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
