#pragma once

#include <numeric>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/pieces/octet.cuh"
#include "kernels/cuda/pieces/raw_pack.cuh"
#include "kernels/cuda/pieces/reduce.cuh"
#include "kernels/cuda/pieces/shared_memory.cuh"
#include "kernels/cuda/rows/norm_narrow_forward.cuh"
#include "kernels/cuda/rows/row_packs.cuh"
#include "kernels/cuda/tensor_core/barrier.cuh"

namespace bertha {

// LayerNorm forward of wide rows of 16 bits that begin between the 16-byte words of memory. A block
// stays; its number of rows in between is such that all of its rows begin at the same place of a
// word. So a thread has the same columns of all of them in whole words, with gamma and beta in
// registers, and only a row's first and last word, partly a neighbour's, are taken apart. Rows come
// by bulk copies, two ahead, to a ring of shared memory.

inline constexpr int kWideForwardThreads = 384;
inline constexpr int kWideForwardPacks = 11;  // of a thread
inline constexpr int kWideForwardStages = 3;

constexpr bool is_wide_norm(int64_t columns) {
  // With the elements beside the first and the last.
  return columns > 8'192 &&
         columns <= int64_t{kWideForwardThreads} * kWideForwardPacks * kOctet - (kOctet - 1);
}

/// Elements of a row's place, where it lies as far behind a line as in memory.
__host__ __device__ constexpr int wide_slot(int columns) {
  return (columns + 2 * (kCopyLineElements - 1)) / kCopyLineElements * kCopyLineElements;
}

/// An octet of a row that begins at `column` of it, of which some elements may be a neighbour's.
template <class T>
struct EdgeOctet {
  int column;
  int columns;

  __device__ bool is_whole() const { return column >= 0 && column + kOctet <= columns; }
  __device__ bool has(int i) const { return column + i >= 0 && column + i < columns; }
  /// Of single elements; 0 where it has none.
  __device__ RawPack<T, kOctet> load(const T* from, float otherwise) const {
    float values[kOctet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      values[i] = from != nullptr && has(i) ? to_float(from[column + i]) : otherwise;
    }
    RawPack<T, kOctet> raw;
    raw.pack(values);
    return raw;
  }
  /// `pair` in the places of the neighbours.
  __device__ void fill(RawPack<T, kOctet>& raw, uint32_t pair) const {
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      const uint32_t half = i % 2 == 0 ? 0xffffu : 0xffff0000u;
      if (!has(i)) raw.word[i / 2] = (raw.word[i / 2] & ~half) | (pair & half);
    }
  }
  __device__ void store(T* row, const Octet<T>& octet) const {
    auto* const to = reinterpret_cast<uint16_t*>(row + column);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if (has(i)) to[i] = static_cast<uint16_t>(octet.word[i / 2] >> (i % 2 * 16));
    }
  }
};

template <class T, int kThreads, int kPacks>
__global__ void __launch_bounds__(kThreads, 1)
    norm_wide_forward_kernel(PlainNorm<T> p, int64_t rows, int columns) {
  constexpr int kSure = kPacks * 3 / 4;  // packs that every row has whole
  using Raw = RawPack<T, kOctet>;
  extern __shared__ __align__(kCopyLineBytes) uint4 ring[];
  __shared__ uint64_t barriers[kWideForwardStages];
  __shared__ float2 parts[2][kWarpThreads];
  T* const slots = reinterpret_cast<T*>(ring);
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int lane = thread % kWarpThreads;
  const int warp = thread / kWarpThreads;
  const int slot = wide_slot(columns);
  // Elements of a row's first word that are the row's before.
  const int shift = static_cast<int>(static_cast<int64_t>(blockIdx.x) * columns % kOctet);
  const auto full = [&](int stage) { return shared_address(&barriers[stage]); };
  // A row's first word in memory, and in the ring.
  const auto first_of = [&](int64_t row) { return row * columns - shift; };
  const auto place_of = [&](int stage, int64_t row) {
    return slots + stage * slot + first_of(row) % kCopyLineElements;
  };
  const auto request = [&](int stage, int64_t row) {
    if (row >= rows) return;
    const T* const from = p.x + first_of(row);
    T* const to = place_of(stage, row);
    const int there = shift + columns;
    int copied = (there + kOctet - 1) / kOctet * kOctet;
    if (row == rows - 1 && copied > there) {  // what is behind the matrix is nobody's
      copied -= kOctet;
      for (int i = copied; i < there; ++i) to[i] = from[i];
    }
    barrier_arrive_expecting(full(stage), static_cast<uint32_t>(copied) * 2);
    copy_bytes_async(shared_address(to), from, static_cast<uint32_t>(copied) * 2, full(stage));
  };
  if (thread == 0) {
    for (int stage = 0; stage < kWideForwardStages; ++stage) barrier_init(full(stage), 1);
    fence_barrier_init();
  }
  __syncthreads();
  if (thread == 0) {
    for (int stage = 0; stage < kWideForwardStages; ++stage) {
      request(stage, blockIdx.x + static_cast<int64_t>(stage) * gridDim.x);
    }
  }

  const auto octet = [&](int k) {
    return EdgeOctet<T>{(k * threads + thread) * kOctet - shift, columns};
  };
  const auto has = [&](int k) { return k < kSure || octet(k).column < columns; };
  // Only the first octet of the block and the last ones may be a neighbour's in part.
  const auto is_whole = [&](int k) { return (k > 0 && k < kSure) || octet(k).is_whole(); };
  Raw gamma[kPacks];
  Raw beta[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    gamma[k] = octet(k).load(p.gamma, 1.0f);
    beta[k] = octet(k).load(p.beta, 0.0f);
  }
  const float per_column = 1.0f / static_cast<float>(columns);
  const int sample = shift + lane * (columns / kWarpThreads);

  int stage = 0;
  uint32_t parity = 0;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, ++turn) {
    barrier_wait(full(stage), parity);
    const T* const place = place_of(stage, row);
    const T* const own = place + thread * kOctet;
    // Around the mean of 32 elements: a large mean then costs nothing, and neither does any of them
    // that lies far from the others.
    float pivots[2];
    pivots[0] = pivots[1] = warp_sum(to_float(place[sample])) / kWarpThreads;
    RawPack<T, 2> pair;
    pair.pack(pivots);
    pair.unpack(pivots);
    const float pivot = pivots[0];
    float sums[2] = {};  // of differences to it, and of their squares
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
      Raw raw;
      raw.load(own + k * threads * kOctet);
      if (!is_whole(k)) octet(k).fill(raw, pair.word[0]);
      float x[kOctet];
      raw.unpack(x);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        const float difference = x[i] - pivot;
        sums[0] += difference;
        sums[1] = fmaf(difference, difference, sums[1]);
      }
    }
    reduce_lanes(sums, kWarpThreads, Add());
    if (lane == 0) parts[turn % 2][warp] = make_float2(sums[0], sums[1]);
    __syncthreads();
    // Everybody is done with the row before.
    if (thread == 0 && turn > 0) {
      request(stage == 0 ? kWideForwardStages - 1 : stage - 1,
              row + static_cast<int64_t>(kWideForwardStages - 1) * gridDim.x);
    }
    float2 part = {};
    if (lane * kWarpThreads < threads) part = parts[turn % 2][lane];
    sums[0] = part.x;
    sums[1] = part.y;
    reduce_lanes(sums, kWarpThreads, Add());
    const float rest = sums[0] * per_column;
    const float variance = fmaf(-sums[0], rest, sums[1]) * per_column;
    const float scale = rsqrtf((variance < 0.0f ? 0.0f : variance) + p.epsilon);  // NaN stays
    if (thread == 0) {
      p.mean[row] = pivot + rest;
      p.rstd[row] = scale;
    }
    const float offset = -rest * scale;
    T* const to = p.y + row * columns;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
      Raw raw;
      raw.load(own + k * threads * kOctet);
      gamma[k].keep();
      beta[k].keep();
      float x[kOctet];
      float factor[kOctet];
      float term[kOctet];
      raw.unpack(x);
      gamma[k].unpack(factor);
      beta[k].unpack(term);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        x[i] = fmaf(fmaf(x[i] - pivot, scale, offset), factor[i], term[i]);
      }
      const Octet<T> y = rounded_octet<T>(x);
      if (is_whole(k)) {
        store_octet_once(to + octet(k).column, y);
      } else {
        octet(k).store(to, y);
      }
    }
    if (++stage == kWideForwardStages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

/// Rows of widths of is_wide_norm(), of which there is at least one; x and y begin with a 16-byte word.
template <class T>
void launch_norm_wide_forward(const CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                              int64_t columns) {
  const auto kernel = &norm_wide_forward_kernel<T, kWideForwardThreads, kWideForwardPacks>;
  const int64_t octets = (columns + 2 * (kOctet - 1)) / kOctet;
  const unsigned threads =
      kWarpThreads * blocks_for(octets, kWideForwardPacks * kWarpThreads, kWarpThreads);
  const int64_t bytes = int64_t{2} * kWideForwardStages * wide_slot(static_cast<int>(columns));
  allow_shared_bytes(kernel, bytes);
  int resident = 0;
  BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, kernel, static_cast<int>(threads), static_cast<size_t>(bytes)));
  // Of so many rows one begins at the same place of a word as the first.
  const int64_t period = kOctet / std::gcd(int64_t{kOctet}, columns);
  const int64_t most = int64_t{resident} * context.multiprocessors / period * period;
  const unsigned blocks =
      static_cast<unsigned>(rows < most ? (rows + period - 1) / period * period : most);
  kernel<<<blocks, threads, static_cast<size_t>(bytes), context.stream>>>(
      p, rows, static_cast<int>(columns));
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
