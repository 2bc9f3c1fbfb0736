#pragma once

#include <type_traits>

#include "kernels/cuda/common/raw_pack.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/norm_softmax/pivoted_moments.cuh"
#include "kernels/cuda/norm_softmax/plain_norm.cuh"
#include "kernels/cuda/norm_softmax/row_packs.cuh"
#include "kernels/cuda/tensor_core/barrier.cuh"

namespace bertha {

// LayerNorm forward of narrow rows of 16 bits that begin between the 16-byte words of memory: a
// multiple of eight neighbouring rows begins and ends with such a word, comes to shared memory as one
// piece by a bulk copy, and leaves it as one. There a power of two of lanes has a row in words of 4
// bytes, of which the first and the last may be half a neighbour's. The rows of a lane all begin at
// the same half of a word, so that gamma and beta of its columns stay in registers.
//
// All words of a lane but the last are whole and there, for the compiler to know: so there is a
// kernel for each number of them.
//
// A word that two rows share is stored in halves. Two rows of a warp load it whole, all before a
// __syncwarp and all stores; a row that has its warp for itself loads its half alone, which in the
// other kernels would cost up to 4 %.

inline constexpr int kNormChunkThreads = 64;
inline constexpr int64_t kMostChunkNormColumns = 2 * kWarpThreads * 17;

constexpr bool has_norm_chunks(int64_t columns) {
  return columns > 16 && columns <= kMostChunkNormColumns;
}

/// What takes the place of gamma and beta where they are not given: asking for each in the kernel, by
/// a branch or by choosing an address there, costs up to 11 % of it.
template <class T>
struct NeutralParameters {
  uint16_t ones[kMostChunkNormColumns];
  uint16_t zeros[kMostChunkNormColumns];

  constexpr NeutralParameters() : ones(), zeros() {
    for (uint16_t& one : ones) one = std::is_same_v<T, __half> ? 0x3c00 : 0x3f80;
  }
};
template <class T>
__device__ const NeutralParameters<T> neutral_parameters;

/// Blocks of an SM that leave a thread registers for so many words of x, gamma and beta.
constexpr int norm_chunk_blocks(int words) { return words <= 9 ? 14 : words <= 13 ? 10 : 8; }

/// gamma and beta are there. Rows of more than kLanes * (kWords - 1) words, at most kLanes * kWords; a
/// block does kTurns times the rows that it has side by side, in all a multiple of eight.
template <class T, int kLanes, int kWords, int kTurns, int kBlocks>
__global__ void __launch_bounds__(kNormChunkThreads, kBlocks)
    norm_chunk_forward_kernel(PlainNorm<T> p, int64_t rows, int columns) {
  using Pair = RawPack<T, 2>;
  constexpr int kGroups = kNormChunkThreads / kLanes;  // rows side by side: an even number
  constexpr int kRows = kGroups * kTurns;
  constexpr bool kHasWarp = kLanes == kWarpThreads;
  static_assert(kGroups % 2 == 0 && kRows % 8 == 0);
  extern __shared__ __align__(kCopyLineBytes) uint4 lines[];
  __shared__ uint64_t full;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes;
  const int group = thread / kLanes;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kRows;
  const int64_t first = first_row * columns;
  const int here = rows - first_row < kRows ? static_cast<int>(rows - first_row) : kRows;
  const int elements = here * columns;
  const int whole = elements / 8;  // 16-byte words
  T* const chunk = reinterpret_cast<T*>(lines) + first % kCopyLineElements;
  if (thread == 0) {
    barrier_init(shared_address(&full), 1);
    fence_barrier_init();
    barrier_arrive_expecting(shared_address(&full), static_cast<uint32_t>(whole * 16));
    if (whole > 0) {
      copy_bytes_async(shared_address(chunk), p.x + first, static_cast<uint32_t>(whole * 16),
                       shared_address(&full));
    }
  }
  const int last = whole * 8 + thread;  // the matrix may end within a word
  if (last < elements) chunk[last] = p.x[first + last];

  const int shift = group * columns % 2;  // elements of the first word that are the row's before
  const auto column = [&](int k) { return 2 * (k * kLanes + lane) - shift; };
  // Which halves of its first and of its last word are the row's.
  const int last_column = column(kWords - 1);
  const uint32_t of_first = lane == 0 && shift != 0 ? 0xffff0000u : 0xffffffffu;
  const uint32_t of_last =
      (last_column < columns ? 0xffffu : 0u) | (last_column + 1 < columns ? 0xffff0000u : 0u);
  const auto kept = [&](int k) {
    return k == 0 ? of_first : (k == kWords - 1 ? of_last : 0xffffffffu);
  };
  Pair gamma[kWords];
  Pair beta[kWords];
  const auto get_parameter = [&](const T* from, Pair& to, int k) {
    const auto* const bits = reinterpret_cast<const uint16_t*>(from);
    int low = column(k);  // where a word is half a neighbour's, any
    int high = low + 1;
    if (k == 0) low = max(low, 0);
    if (k == kWords - 1) {
      low = min(low, columns - 1);
      high = min(high, columns - 1);
    }
    to.word[0] = bits[low] | static_cast<uint32_t>(bits[high]) << 16;
  };
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    get_parameter(p.gamma, gamma[k], k);
    get_parameter(p.beta, beta[k], k);
  }
  const float per_column = 1.0f / static_cast<float>(columns);
  __syncthreads();
  barrier_wait(shared_address(&full), 0);

  // The same number of turns for the whole block: the shuffles are of whole warps.
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    const int row = turn * kGroups + group;
    const bool is_there = row < here;
    if (kHasWarp && !is_there) break;
    uint32_t* const own = reinterpret_cast<uint32_t*>(chunk + (row * columns - shift)) + lane;
    auto* const last_halves = reinterpret_cast<uint16_t*>(own + (kWords - 1) * kLanes);
    Pair x[kWords];
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      const bool has_any = (kHasWarp || is_there) && kept(k) != 0;
      const bool has_whole = kHasWarp ? kept(k) == 0xffffffffu : has_any;
      x[k].word[0] = has_whole ? own[k * kLanes] : 0;
    }
    if (kHasWarp) {
      auto* const halves = reinterpret_cast<uint16_t*>(own);
      if (of_first == 0xffff0000u) x[0].word[0] = static_cast<uint32_t>(halves[1]) << 16;
      if (of_last == 0xffffu) x[kWords - 1].word[0] = last_halves[0];
    } else {
      __syncwarp();
    }
    // Around the low half of the row's second word; what is not the row's is made to equal it.
    Pair pivots;
    pivots.word[0] = __shfl_sync(kFullWarp, x[0].word[0] & 0xffffu, 1, kLanes) * 0x10001u;
    float pivot[2];
    pivots.unpack(pivot);
    float sums[2] = {};  // of differences to it, and of their squares
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      x[k].word[0] = (x[k].word[0] & kept(k)) | (pivots.word[0] & ~kept(k));
      float v[2];
      x[k].unpack(v);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float difference = v[i] - pivot[0];
        sums[0] += difference;
        sums[1] = fmaf(difference, difference, sums[1]);
      }
    }
    reduce_lanes(sums, kLanes, Add());
    if (!is_there) continue;
    const PivotedMoments moments = pivoted_moments(sums, per_column, p.epsilon);
    if (lane == 0) {
      p.mean[first_row + row] = pivot[0] + moments.rest;
      p.rstd[first_row + row] = moments.rstd;
    }
    const float offset = moments.shift();
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (kept(k) == 0) continue;
      x[k].keep();
      gamma[k].keep();
      beta[k].keep();
      float v[2];
      float factor[2];
      float term[2];
      x[k].unpack(v);
      gamma[k].unpack(factor);
      beta[k].unpack(term);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        v[i] = fmaf(fmaf(v[i] - pivot[0], moments.rstd, offset), factor[i], term[i]);
      }
      Pair y;
      y.pack(v);
      auto* const halves = reinterpret_cast<uint16_t*>(own + k * kLanes);
      if (kept(k) == 0xffffffffu) {
        own[k * kLanes] = y.word[0];
      } else if (k == 0) {
        halves[1] = static_cast<uint16_t>(y.word[0] >> 16);
      } else {
        halves[0] = static_cast<uint16_t>(y.word[0]);
      }
    }
  }
  fence_proxy_async();
  __syncthreads();
  if (last < elements) p.y[first + last] = chunk[last];
  if (thread == 0 && whole > 0) {
    store_bytes_async(p.y + first, shared_address(chunk), static_cast<uint32_t>(whole * 16));
    wait_for_stores();
  }
}

/// With kWords words of a lane, or as many less as the rows need, which is kFewest at least.
template <int kLanes, int kFewest, int kWords, int kTurns, class T>
void launch_norm_chunks(const CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                        int64_t columns) {
  if constexpr (kWords > kFewest) {
    if ((columns + 1) / 2 <= kLanes * (kWords - 1)) {
      return launch_norm_chunks<kLanes, kFewest, kWords - 1, kTurns>(context, p, rows, columns);
    }
  }
  constexpr int kRows = kNormChunkThreads / kLanes * kTurns;
  const auto kernel =
      &norm_chunk_forward_kernel<T, kLanes, kWords, kTurns, norm_chunk_blocks(kWords)>;
  const int64_t bytes = kRows * columns * 2 + kCopyLineBytes;
  allow_shared_bytes(kernel, bytes);
  kernel<<<blocks_for(rows, kRows, int64_t{1} << 31), kNormChunkThreads, static_cast<size_t>(bytes),
           context.stream>>>(p, rows, static_cast<int>(columns));
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

/// Rows of widths of has_norm_chunks(), of which there is at least one; x and y begin with a 16-byte
/// word.
template <class T>
void launch_norm_chunk_forward(const CudaContext& context, PlainNorm<T> p, int64_t rows,
                               int64_t columns) {
  if (p.gamma == nullptr || p.beta == nullptr) {
    void* neutral;
    BERTHA_CUDA_CHECK(cudaGetSymbolAddress(&neutral, neutral_parameters<T>));
    const auto* const parameters = static_cast<const NeutralParameters<T>*>(neutral);
    if (p.gamma == nullptr) p.gamma = reinterpret_cast<const T*>(parameters->ones);
    if (p.beta == nullptr) p.beta = reinterpret_cast<const T*>(parameters->zeros);
  }
  const int64_t words = (columns + 1) / 2;
  if (words <= 20) return launch_norm_chunks<4, 3, 5, 2>(context, p, rows, columns);
  if (words <= 64) return launch_norm_chunks<8, 3, 8, 2>(context, p, rows, columns);
  if (words <= 144) return launch_norm_chunks<16, 5, 9, 4>(context, p, rows, columns);
  launch_norm_chunks<32, 5, 17, 4>(context, p, rows, columns);
}

}  // namespace bertha
