#pragma once

#include <numeric>

#include "kernels/cuda/common/raw_pack.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/norm_softmax/pivoted_moments.cuh"
#include "kernels/cuda/norm_softmax/plain_norm.cuh"
#include "kernels/cuda/norm_softmax/row_packs.cuh"
#include "kernels/cuda/tensor_core/barrier.cuh"

namespace bertha {

// LayerNorm forward of wide rows of 16 bits, wherever in a 16-byte word of memory they begin. A block
// stays, with rows that all begin at the same place of a word. So a thread has the same columns of all
// of them in whole words, with gamma and beta in registers, and only a row's first and last word,
// partly a neighbour's, are taken apart. A warp of its own brings rows by bulk copies, two ahead, to a
// ring of shared memory, and takes results away by others out of the same places.
//
// Blocks draw their rows: of blocks with as many rows each the first ended 470 us before the last
// (30,522 columns, f16, 49,152 rows, H200). Drawing made 1,607 us 1,514, bulk stores 1,566, both 1,483
// with a copy at 1,416; 480 threads with eight packs 1,483, 224 with 18 1,509. Rows of whole words in
// blocks that leave read gamma and beta from the L2 cache: 1,767 us at 32,768 columns, here 1,585.

inline constexpr int kWideForwardThreads = 352;  // that work
inline constexpr int kWideForwardPacks = 12;     // of a thread
inline constexpr int kWideForwardStages = 3;

constexpr bool is_wide_norm(int64_t columns) {
  // With the elements beside the first and the last.
  return columns > 8'192 &&
         columns <= int64_t{kWideForwardThreads} * kWideForwardPacks * kVecSize - (kVecSize - 1);
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

  __device__ bool is_whole() const { return column >= 0 && column + kVecSize <= columns; }
  __device__ bool has(int i) const { return column + i >= 0 && column + i < columns; }
  /// Of single elements; 0 where it has none.
  __device__ RawPack<T, kVecSize> load(const T* from, float otherwise) const {
    float values[kVecSize];
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      values[i] = from != nullptr && has(i) ? to_float(from[column + i]) : otherwise;
    }
    RawPack<T, kVecSize> raw;
    raw.pack(values);
    return raw;
  }
  /// `pair` in the places of the neighbours.
  __device__ void fill(RawPack<T, kVecSize>& raw, uint32_t pair) const {
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      const uint32_t half = i % 2 == 0 ? 0xffffu : 0xffff0000u;
      if (!has(i)) raw.word[i / 2] = (raw.word[i / 2] & ~half) | (pair & half);
    }
  }
  __device__ void store(T* row, const Vec<T, kVecSize>& octet) const {
    auto* const to = reinterpret_cast<uint16_t*>(row + column);
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      if (has(i)) to[i] = static_cast<uint16_t>(octet.word[i / 2] >> (i % 2 * 16));
    }
  }
};

template <class T, int kThreads, int kPacks>
__global__ void __launch_bounds__(kThreads + kWarpThreads, 1)
    norm_wide_forward_kernel(PlainNorm<T> p, int64_t rows, int columns, int period,
                             uint32_t* drawn /* [period], zero */) {
  constexpr int kSure = kPacks * 2 / 3;  // packs that every row has whole, at 9,210 columns no more
  constexpr int kStages = kWideForwardStages;
  using Raw = RawPack<T, kVecSize>;
  extern __shared__ __align__(kCopyLineBytes) uint4 ring[];
  __shared__ uint64_t landed_barriers[kStages];
  __shared__ uint64_t done_barriers[kStages];
  __shared__ int64_t row_of[kStages];  // negative: there are no more
  __shared__ float2 parts[2][kWarpThreads];
  T* const slots = reinterpret_cast<T*>(ring);
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x) - kWarpThreads;  // that work
  const int lane = thread % kWarpThreads;
  const int warp = thread / kWarpThreads;
  const int slot = wide_slot(columns);
  // All of a block's rows are this one of a period.
  const int phase = static_cast<int>(blockIdx.x) % period;
  // Elements of a row's first word that are the row's before.
  const int shift = static_cast<int>(static_cast<int64_t>(phase) * columns % kVecSize);
  const auto landed = [&](int stage) { return shared_address(&landed_barriers[stage]); };
  const auto done = [&](int stage) { return shared_address(&done_barriers[stage]); };
  // A row's first word in memory, and in the ring.
  const auto first_of = [&](int64_t row) { return row * columns - shift; };
  const auto place_of = [&](int stage, int64_t row) {
    return slots + stage * slot + first_of(row) % kCopyLineElements;
  };
  if (thread == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(landed(stage), 1);
      barrier_init(done(stage), threads);
    }
    fence_barrier_init();
  }
  __syncthreads();

  if (thread >= threads) {  // the warp that brings rows and takes results away
    if (lane != 0) return;
    const int begin_whole = shift == 0 ? 0 : kVecSize;  // the words that the row has alone
    const int end_whole = (shift + columns) / kVecSize * kVecSize;
    const auto request = [&](int stage, int64_t row) {
      row_of[stage] = row < rows ? row : -1;
      if (row >= rows) {
        barrier_arrive(landed(stage));
        return;
      }
      const T* const from = p.x + first_of(row);
      T* const to = place_of(stage, row);
      const int there = shift + columns;
      int copied = (there + kVecSize - 1) / kVecSize * kVecSize;
      if (row == rows - 1 && copied > there) {  // what is behind the matrix is nobody's
        copied -= kVecSize;
        for (int i = copied; i < there; ++i) to[i] = from[i];
      }
      barrier_arrive_expecting(landed(stage), static_cast<uint32_t>(copied) * 2);
      copy_bytes_async(shared_address(to), from, static_cast<uint32_t>(copied) * 2, landed(stage));
    };
    // The first rows are given, the others drawn, one ahead of its use.
    const auto draw = [&] {
      return int64_t{kStages} * gridDim.x + phase + int64_t{atomicAdd(drawn + phase, 1)} * period;
    };
    int64_t here[kStages];
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      here[stage] = blockIdx.x + static_cast<int64_t>(stage) * gridDim.x;
      request(stage, here[stage]);
    }
    int64_t next = draw();
    for (uint32_t parity = 0;; parity ^= 1) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        if (here[stage] >= rows) return;
        barrier_wait(done(stage), parity);
        store_bytes_async(p.y + first_of(here[stage]) + begin_whole,
                          shared_address(place_of(stage, here[stage]) + begin_whole),
                          static_cast<uint32_t>(end_whole - begin_whole) * 2);
        wait_for_stores();
        here[stage] = next;
        request(stage, next);
        if (next < rows) next = draw();
      }
    }
  }

  const auto octet = [&](int k) {
    return EdgeOctet<T>{(k * threads + thread) * kVecSize - shift, columns};
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
  for (;; ++turn) {
    barrier_wait(landed(stage), parity);
    const int64_t row = row_of[stage];
    if (row < 0) return;
    T* const place = place_of(stage, row);
    T* const own = place + thread * kVecSize;
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
      raw.load(own + k * threads * kVecSize);
      if (!is_whole(k)) octet(k).fill(raw, pair.word[0]);
      float x[kVecSize];
      raw.unpack(x);
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        const float difference = x[i] - pivot;
        sums[0] += difference;
        sums[1] = fmaf(difference, difference, sums[1]);
      }
    }
    reduce_lanes(sums, kWarpThreads, Add());
    if (lane == 0) parts[turn % 2][warp] = make_float2(sums[0], sums[1]);
    barrier_of_threads(1, threads);
    float2 part = {};
    if (lane * kWarpThreads < threads) part = parts[turn % 2][lane];
    sums[0] = part.x;
    sums[1] = part.y;
    reduce_lanes(sums, kWarpThreads, Add());
    const PivotedMoments moments = pivoted_moments(sums, per_column, p.epsilon);
    if (thread == 0) {
      p.mean[row] = pivot + moments.rest;
      p.rstd[row] = moments.rstd;
    }
    const float offset = moments.shift();
    T* const to = p.y + row * columns;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
      Raw raw;
      raw.load(own + k * threads * kVecSize);
      gamma[k].keep();
      beta[k].keep();
      float x[kVecSize];
      float factor[kVecSize];
      float term[kVecSize];
      raw.unpack(x);
      gamma[k].unpack(factor);
      beta[k].unpack(term);
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        x[i] = fmaf(fmaf(x[i] - pivot, moments.rstd, offset), factor[i], term[i]);
      }
      const Vec<T, kVecSize> y = to_vec<T>(x);
      if (is_whole(k)) {
        store_vec_shared(own + k * threads * kVecSize, y);
      } else {
        octet(k).store(to, y);
      }
    }
    fence_proxy_async();
    barrier_arrive(done(stage));  // every lane: racecheck does not follow one for its warp
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

/// Rows of widths of is_wide_norm(), of which there is at least one; x and y begin with a 16-byte word.
template <class T>
void launch_norm_wide_forward(CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                              int64_t columns) {
  const auto kernel = &norm_wide_forward_kernel<T, kWideForwardThreads, kWideForwardPacks>;
  const int64_t octets = (columns + 2 * (kVecSize - 1)) / kVecSize;
  const unsigned threads =
      kWarpThreads * (blocks_for(octets, kWideForwardPacks * kWarpThreads, kWarpThreads) + 1);
  const int64_t bytes = int64_t{2} * kWideForwardStages * wide_slot(static_cast<int>(columns));
  allow_shared_bytes(kernel, bytes);
  int resident = 0;
  BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, kernel, static_cast<int>(threads), static_cast<size_t>(bytes)));
  // Of so many rows one begins at the same place of a word as the first.
  const int64_t period = kVecSize / std::gcd(int64_t{kVecSize}, columns);
  const int64_t most = int64_t{resident} * context.sm_count / period * period;
  const unsigned blocks =
      static_cast<unsigned>(rows < most ? (rows + period - 1) / period * period : most);
  const size_t counts = sizeof(uint32_t) * static_cast<size_t>(period);
  auto* const drawn = static_cast<uint32_t*>(context.scratch.take(static_cast<int64_t>(counts)));
  BERTHA_CUDA_CHECK(cudaMemsetAsync(drawn, 0, counts, context.stream));
  kernel<<<blocks, threads, static_cast<size_t>(bytes), context.stream>>>(
      p, rows, static_cast<int>(columns), static_cast<int>(period), drawn);
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
