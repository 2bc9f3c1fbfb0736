#pragma once

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/raw_pack.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bertha {

// The skeleton of plain operations on narrow rows of 16 bits: a power of two of lanes, which the
// compiler knows, has a row in registers, in the words that it has in memory. Rows of odd length
// move in words of 4 bytes too, but for the element at an edge that shares its word with a
// neighbouring row.
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

/// A row's words: `begin` is 1 where its first element is the second of a word, and columns count
/// from that word on.
struct NarrowSpan {
  int64_t at;  // element of column 0
  int begin;
  int end;  // 0: there is no such row
};

template <bool kShifted>
__device__ __forceinline__ NarrowSpan narrow_span(int64_t row, int64_t rows, int columns) {
  const int64_t first = row * columns;
  const int begin = kShifted ? static_cast<int>(first & 1) : 0;
  return {first - begin, begin, row < rows ? columns + begin : 0};
}

template <bool kShifted, class T, int N>
__device__ __forceinline__ void load_span(RawPack<T, N>& pack, const T* from,
                                          const NarrowSpan& span, int column, uint32_t absent) {
#pragma unroll
  for (int i = 0; i < RawPack<T, N>::kWords; ++i) pack.word[i] = absent;
  const T* const own = from + span.at + column;
  if constexpr (kShifted) {
    static_assert(N == 2);
    const bool has_low = column >= span.begin && column < span.end;
    const bool has_high = column + 1 < span.end;
    const auto* const bits = reinterpret_cast<const uint16_t*>(own);
    if (has_low && has_high) {
      pack.load(own);
    } else if (has_low) {
      pack.word[0] = (absent & 0xffff0000u) | bits[0];
    } else if (has_high) {
      pack.word[0] = (absent & 0x0000ffffu) | static_cast<uint32_t>(bits[1]) << 16;
    }
  } else {
    if (column < span.end) pack.load(own);
  }
}

template <bool kShifted, class T, int N>
__device__ __forceinline__ void store_span(const RawPack<T, N>& pack, T* to, const NarrowSpan& span,
                                           int column) {
  T* const own = to + span.at + column;
  if constexpr (kShifted) {
    const bool has_low = column >= span.begin && column < span.end;
    const bool has_high = column + 1 < span.end;
    auto* const bits = reinterpret_cast<uint16_t*>(own);
    if (has_low && has_high) {
      pack.store(own);
    } else if (has_low) {
      bits[0] = static_cast<uint16_t>(pack.word[0]);
    } else if (has_high) {
      bits[1] = static_cast<uint16_t>(pack.word[0] >> 16);
    }
  } else {
    if (column < span.end) pack.store(own);
  }
}

/// Rows of at most kLanes * kPacks * N columns, one less where they are shifted; kRows at a time.
template <class Operation, int kLanes, int N, int kPacks, int kRows, bool kShifted>
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
    NarrowSpan spans[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      spans[r] = narrow_span<kShifted>(first + r * kGroups + group, rows, columns);
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
          load_span<kShifted>(packs[r][k][p], operation.inputs[k], spans[r],
                              (p * kLanes + lane) * N, operation.absent());
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) operation.template run<kLanes>(packs[r]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        store_span<kShifted>(packs[r][0][p], operation.output, spans[r], (p * kLanes + lane) * N);
      }
    }
  }
}

/// With kLanes lanes, or as many more as the columns need.
template <int kLanes, int N, int kPacks, int kRows, bool kShifted, class Operation>
void launch_narrow_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                        int64_t columns) {
  if constexpr (kLanes < kWarpThreads) {
    if (columns > kLanes * kPacks * N - (kShifted ? 1 : 0)) {
      return launch_narrow_rows<2 * kLanes, N, kPacks, kRows, kShifted>(context, operation, rows,
                                                                        columns);
    }
  }
  constexpr int kRowsOfBlock = kNarrowThreads / kLanes * kRows;
  const unsigned blocks =
      blocks_for(rows, kRowsOfBlock, static_cast<int64_t>(context.multiprocessors) * kNarrowBlocks);
  narrow_rows_kernel<Operation, kLanes, N, kPacks, kRows, kShifted>
      <<<blocks, kNarrowThreads, 0, context.stream>>>(operation, rows, static_cast<int>(columns));
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
