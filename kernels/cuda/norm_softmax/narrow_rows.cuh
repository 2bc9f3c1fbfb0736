#pragma once

#include "kernels/cuda/common/raw_pack.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"

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

/// Rows of at most kLanes * kPacks * N columns, a multiple of N.
template <class Operation, int kLanes, int N, int kPacks, int kThreads>
__global__ void __launch_bounds__(kThreads)
    narrow_rows_kernel(const __grid_constant__ Operation operation, int64_t rows, int columns) {
  constexpr int kInputs = Operation::kInputs;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes) +
                      static_cast<int>(threadIdx.x) / kLanes;
  // Beyond the last row there are none; the shuffles are of whole warps.
  const int end = row < rows ? columns : 0;
  RawPack<typename Operation::Element, N> packs[kInputs][kPacks];
#pragma unroll
  for (int k = 0; k < kInputs; ++k) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int column = (p * kLanes + lane) * N;
      packs[k][p].fill(operation.absent());
      if (column < end) packs[k][p].load(operation.inputs[k] + row * columns + column);
    }
  }
  operation.template run<kLanes>(packs);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int column = (p * kLanes + lane) * N;
    if (column < end) packs[0][p].store(operation.output + row * columns + column);
  }
}

/// With kLanes lanes, or as many more as the columns need. Blocks do their rows and leave.
template <int kLanes, int N, int kPacks, int kThreads = 128, class Operation>
void launch_narrow_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                        int64_t columns) {
  if constexpr (kLanes < kWarpThreads) {
    if (columns > kLanes * kPacks * N) {
      return launch_narrow_rows<2 * kLanes, N, kPacks, kThreads>(context, operation, rows, columns);
    }
  }
  constexpr int kRows = kThreads / kLanes;
  const auto blocks = static_cast<unsigned>((rows + kRows - 1) / kRows);
  narrow_rows_kernel<Operation, kLanes, N, kPacks, kThreads>
      <<<blocks, kThreads, 0, context.stream>>>(operation, rows, static_cast<int>(columns));
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
