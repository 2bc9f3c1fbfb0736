#pragma once

#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/cluster.cuh"

namespace bertha {

inline constexpr int kMostRowCluster = 8;

/// In the shared memory of each block of a cluster that shares a row: values of all its blocks,
/// for up to two exchanges.
struct RowCluster {
  float2 blocks[2][kMostRowCluster];
  uint64_t full[2];

  /// All threads of all blocks call it, and wait_for_all before the first exchange.
  __device__ __forceinline__ void begin(int count) {
    if (threadIdx.x == 0) {
      for (const uint64_t& barrier : full) {
        mbarrier_init(shared_address(&barrier), 1);
        mbarrier_arrive_expect_tx(shared_address(&barrier), count * int{sizeof(float2)});
      }
      fence_mbarrier_init();  // releases them; arriving with release would fence all memory
    }
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  }
  __device__ __forceinline__ static void wait_for_all() {
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
  }

  /// Reads the values of block lane % 8 into `part`, which keeps its value if there is none. All
  /// threads of a block have the same values.
  template <int K>
  __device__ __forceinline__ void exchange(const float (&own)[K], float (&part)[K], int count,
                                           int turn = 0) const {
    static_assert(K <= 2);
    const int thread = static_cast<int>(threadIdx.x);
    const uint32_t barrier = shared_address(&full[turn]);
    if (thread < count) {
      const uint32_t to = shared_address(&blocks[turn][static_cast<int>(blockIdx.x) % count]);
      store_async(address_in_rank(to, thread), make_float2(own[0], own[K - 1]),
                  address_in_rank(barrier, thread));
    }
    mbarrier_wait(barrier, 0);
    if (thread % kMostRowCluster >= count) return;
    const float2 parts = blocks[turn][thread % kMostRowCluster];
    part[0] = parts.x;
    part[K - 1] = parts.y;
  }
  /// Replaces each value by its combination over the blocks.
  template <int K, class Combine>
  __device__ __forceinline__ void reduce(float (&values)[K], const Combine& combine, int count,
                                         int turn = 0) const {
    float part[K];
#pragma unroll
    for (int k = 0; k < K; ++k) part[k] = Combine::template identity<float>();
    exchange(values, part, count, turn);
#pragma unroll
    for (int k = 0; k < K; ++k) values[k] = part[k];
    reduce_lanes(values, kMostRowCluster, combine);
  }
};

}  // namespace bertha
