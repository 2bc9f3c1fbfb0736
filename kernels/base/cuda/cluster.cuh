#pragma once

// Thread blocks of a cluster, which run at the same time and access each other's shared memory.
// Facts from the PTX ISA, "barrier.cluster", "mapa", "st.async", "cp.async.bulk.tensor".

#include "kernels/base/cuda/barrier.cuh"

namespace bertha {

/// Rank of this thread block in its cluster.
__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

/// Waits for all threads of the cluster, whole warps. Makes their writes to shared memory visible.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

/// The same if the lanes of a warp may have diverged.
__device__ __forceinline__ void cluster_barrier_of_lanes() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/// Arrives at the barrier at this address in the shared memory of block `rank`, which must not have
/// exited. Sufficient to release a pipeline stage, but does not make this block's writes visible:
/// that needs a release to the cluster scope, which compiles to a fence of all memory.
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier, int rank) {
  asm volatile(
      "{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
      "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/// Copies a box of a row_pairs_tensor_map to the same address `to` in each block of the cluster
/// whose bit in `ranks` is set; the bytes complete on the barrier that lies there at the address
/// `barrier`.
__device__ __forceinline__ void tma_load_row_pairs_multicast(uint32_t to, const CUtensorMap& map,
                                                             int column, int first, int first_group,
                                                             uint32_t barrier, uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(column), "r"(first), "r"(first_group), "r"(barrier), "h"(ranks)
      : "memory");
}

/// Stores two floats to shared memory of the cluster; they complete 8 bytes of `barrier` there.
__device__ __forceinline__ void store_async(uint32_t to, float2 value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "f"(value.x), "f"(value.y), "r"(barrier)
      : "memory");
}

/// The same place in the shared memory of block `rank`.
__device__ __forceinline__ uint32_t address_in_rank(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

}  // namespace bertha
