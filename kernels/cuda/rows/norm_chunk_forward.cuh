#pragma once

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/pieces/raw_pack.cuh"
#include "kernels/cuda/pieces/reduce.cuh"
#include "kernels/cuda/pieces/shared_memory.cuh"
#include "kernels/cuda/rows/norm_narrow_forward.cuh"
#include "kernels/cuda/rows/row_packs.cuh"
#include "kernels/cuda/tensor_core/barrier.cuh"

namespace bertha {

// LayerNorm forward of narrow rows of 16 bits that begin between the 16-byte words of memory: eight
// neighbouring rows, or a multiple, begin and end with such a word, come to shared memory as one
// piece by a bulk copy, and leave it as one. There a power of two of lanes has a row in words of 4
// bytes, of which the first and the last may be half a neighbour's. The rows of a lane all begin at
// the same half of a word, so that gamma and beta of its columns stay in registers.
//
// A word that two rows share is loaded whole by both, and stored in halves: what a row loads of its
// neighbour's half, perhaps while the neighbour stores it, is not used. racecheck names these words.

inline constexpr int kNormChunkThreads = 64;

constexpr bool has_norm_chunks(int64_t columns) {
  return columns >= 16 && columns <= 2 * kWarpThreads * 17;
}

/// Rows of more than kFewestWords, at most kLanes * kWords words; kBlockRows of them in a block, a
/// multiple of eight and of the rows side by side.
template <class T, int kLanes, int kWords, int kFewestWords>
__global__ void __launch_bounds__(kNormChunkThreads, kWords > 9 ? 8 : 14)
    norm_chunk_forward_kernel(PlainNorm<T> p, int64_t rows, int columns, int block_rows) {
  using Pair = RawPack<T, 2>;
  constexpr int kGroups = kNormChunkThreads / kLanes;  // rows side by side: an even number
  constexpr int kSure = kFewestWords / kLanes;         // packs that every row has whole
  static_assert(kGroups % 2 == 0);
  extern __shared__ __align__(kCopyLineBytes) uint4 lines[];
  __shared__ uint64_t full;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes;
  const int group = thread / kLanes;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * block_rows;
  const int64_t first = first_row * columns;
  const int here = rows - first_row < block_rows ? static_cast<int>(rows - first_row) : block_rows;
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
  const auto word = [&](int k) { return k * kLanes + lane; };
  const auto column = [&](int k) { return 2 * word(k) - shift; };
  const int words = (shift + columns + 1) / 2;
  const auto has = [&](int k) { return k < kSure || word(k) < words; };
  // Which halves of a word are the row's.
  const uint32_t of_first = lane == 0 && shift != 0 ? 0xffff0000u : 0xffffffffu;
  const auto kept = [&](int k) {
    uint32_t keep = k == 0 ? of_first : 0xffffffffu;
    if (k >= kSure && column(k) + 1 >= columns) keep &= column(k) < columns ? 0xffffu : 0u;
    return keep;
  };
  Pair gamma[kWords];
  Pair beta[kWords];
  // Where a word is half a neighbour's, anything. Whether there are parameters is asked once: within
  // a branch for each, their loads would be waited for one after the other.
  const auto get_parameters = [&](const T* from, float otherwise, Pair(&to)[kWords]) {
    if (from == nullptr) {
      const float values[2] = {otherwise, otherwise};
#pragma unroll
      for (int k = 0; k < kWords; ++k) to[k].pack(values);
      return;
    }
    const auto* const bits = reinterpret_cast<const uint16_t*>(from);
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      int low = column(k);
      int high = low + 1;
      if (k == 0) low = max(low, 0);
      if (k >= kSure) {
        low = min(low, columns - 1);
        high = min(high, columns - 1);
      }
      to[k].word[0] = bits[low] | static_cast<uint32_t>(bits[high]) << 16;
    }
  };
  get_parameters(p.gamma, 1.0f, gamma);
  get_parameters(p.beta, 0.0f, beta);
  const float per_column = 1.0f / static_cast<float>(columns);
  __syncthreads();
  barrier_wait(shared_address(&full), 0);

  // The same number of turns for the whole block: the shuffles are of whole warps.
#pragma unroll 1
  for (int turn = 0; turn < block_rows; turn += kGroups) {
    const int row = turn + group;
    const bool is_there = row < here;
    if (kLanes == kWarpThreads && !is_there) break;  // the whole warp
    uint32_t* const own = reinterpret_cast<uint32_t*>(chunk) + (row * columns - shift) / 2 + lane;
    Pair x[kWords];
#pragma unroll
    for (int k = 0; k < kWords; ++k)
      x[k].word[0] = (kLanes == kWarpThreads || is_there) && has(k) ? own[k * kLanes] : 0;
    // Around the low half of the row's second word; what is not the row's is made to equal it.
    Pair pivots;
    pivots.word[0] = __shfl_sync(kFullWarp, x[0].word[0] & 0xffffu, 1, kLanes) * 0x10001u;
    float pivot[2];
    pivots.unpack(pivot);
    float sums[2] = {};  // of differences to it, and of their squares
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (k == 0 || k >= kSure) {
        x[k].word[0] = (x[k].word[0] & kept(k)) | (pivots.word[0] & ~kept(k));
      }
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
    const float rest = sums[0] * per_column;
    const float variance = fmaf(-sums[0], rest, sums[1]) * per_column;
    const float scale = rsqrtf((variance < 0.0f ? 0.0f : variance) + p.epsilon);  // NaN stays
    if (lane == 0) {
      p.mean[first_row + row] = pivot[0] + rest;
      p.rstd[first_row + row] = scale;
    }
    const float offset = -rest * scale;
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (!has(k)) continue;
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
        v[i] = fmaf(fmaf(v[i] - pivot[0], scale, offset), factor[i], term[i]);
      }
      Pair y;
      y.pack(v);
      uint32_t* const to = own + k * kLanes;
      if ((k != 0 && k < kSure) || kept(k) == 0xffffffffu) {
        *to = y.word[0];
      } else {
        auto* const halves = reinterpret_cast<uint16_t*>(to);
        if (kept(k) == 0xffffu) {
          halves[0] = static_cast<uint16_t>(y.word[0]);
        } else {
          halves[1] = static_cast<uint16_t>(y.word[0] >> 16);
        }
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

template <int kLanes, int kWords, int kFewestWords, class T>
void launch_norm_chunks(const CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                        int64_t columns) {
  constexpr int kGroups = kNormChunkThreads / kLanes;
  constexpr int kBlockRows = kGroups < 8 ? 8 : kGroups;
  const auto kernel = &norm_chunk_forward_kernel<T, kLanes, kWords, kFewestWords>;
  const int64_t bytes = kBlockRows * columns * 2 + kCopyLineBytes;
  allow_shared_bytes(kernel, bytes);
  kernel<<<blocks_for(rows, kBlockRows, int64_t{1} << 31), kNormChunkThreads,
           static_cast<size_t>(bytes), context.stream>>>(p, rows, static_cast<int>(columns),
                                                         kBlockRows);
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

/// Rows of widths of has_norm_chunks(), of which there is at least one; x and y begin with a 16-byte
/// word.
template <class T>
void launch_norm_chunk_forward(const CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                               int64_t columns) {
  const int64_t words = (columns + 1) / 2;
  if (words <= 20) return launch_norm_chunks<4, 5, 4>(context, p, rows, columns);
  if (words <= 40) return launch_norm_chunks<8, 5, 20>(context, p, rows, columns);
  if (words <= 80) return launch_norm_chunks<16, 5, 40>(context, p, rows, columns);
  if (words <= 160) return launch_norm_chunks<32, 5, 80>(context, p, rows, columns);
  if (words <= 256) return launch_norm_chunks<32, 9, 160>(context, p, rows, columns);
  if (words <= 288) return launch_norm_chunks<32, 9, 256>(context, p, rows, columns);
  launch_norm_chunks<32, 17, 288>(context, p, rows, columns);
}

}  // namespace bertha
