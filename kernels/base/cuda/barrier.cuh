#pragma once

// mbarriers in shared memory, the TMA copies that complete on them, and related helpers of
// warp-specialized kernels. Source: PTX ISA, "mbarrier", "cp.async.bulk.tensor", "Async proxy".
//
// Phase     A barrier is initialized with a number of arrivals. When all arrivals of a phase have
//           happened, and all bytes expected in it have been written, the phase completes and the
//           next begins. wait(parity) returns when the phase of that parity is complete. A new
//           barrier is in phase 0, and the phase before, of parity 1, counts as complete: a
//           producer begins by waiting for parity 1, a consumer for parity 0.
// Memory    A thread that waited sees what others wrote before they arrived, and what TMA wrote,
//           both with ordinary loads and with wgmma.

#include <cuda.h>

#include "kernels/base/cuda/shared_address.cuh"

namespace bertha {

/// One thread initializes each barrier; then fence_mbarrier_init() and __syncthreads().
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialized barriers visible to TMA and to the other blocks of a cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and expects bytes that TMA writes in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Whether the phase of this parity is complete.
__device__ __forceinline__ bool mbarrier_test_wait(uint32_t barrier, uint32_t parity) {
  uint32_t complete;
  asm volatile(
      "{.reg .pred complete; "
      "mbarrier.test_wait.parity.shared::cta.b64 complete, [%1], %2; "
      "selp.u32 %0, 1, 0, complete;}"
      : "=r"(complete)
      : "r"(barrier), "r"(parity)
      : "memory");
  return complete != 0;
}

/// Waits until the phase of this parity is complete. The loop is in C++ because a label
/// in inline assembly would be defined twice.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t complete = 0;
  do {
    asm volatile(
        "{.reg .pred complete; "
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2; "
        "selp.u32 %0, 1, 0, complete;}"
        : "=r"(complete)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (complete == 0);
}

/// Orders this thread's ordinary accesses of shared memory before the accesses of TMA and wgmma
/// after the next barrier.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Loads the box of `map` at (column, row) to `to` (a multiple of 1,024 bytes under the
/// 128-byte swizzle); its bytes, those outside of the matrix included (zeros), complete on
/// `barrier`. One thread.
__device__ __forceinline__ void tma_load_2d(uint32_t to, const CUtensorMap& map, int column,
                                            int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
/// The same with evict-first in L2, for data that is not used again soon.
__device__ __forceinline__ void tma_load_2d_evict_first(uint32_t to, const CUtensorMap& map,
                                                        int column, int row, uint32_t barrier) {
  uint64_t evict_first;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(evict_first));
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "l"(evict_first)
      : "memory");
}
/// Stores `from` to the box of `map` at (column, row). One thread, after fence_proxy_async() in
/// those that wrote `from` and a barrier.
__device__ __forceinline__ void tma_store_2d(const CUtensorMap& map, int column, int row,
                                             uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(column), "r"(row), "r"(from)
      : "memory");
}
/// Loads the box of a heads_tensor_map whose first row is `token`, as tma_load_2d does.
__device__ __forceinline__ void tma_load_head(uint32_t to, const CUtensorMap& map, int head,
                                              int token, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {0, %2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(head), "r"(token), "r"(barrier)
      : "memory");
}
/// Stores a box of a heads_tensor_map, as tma_store_2d does.
__device__ __forceinline__ void tma_store_head(const CUtensorMap& map, int head, int token,
                                               uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {0, %1, %2}], [%3];\n"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(head), "r"(token), "r"(from)
      : "memory");
}
/// Loads a box of an even_odd_rows_tensor_map. One thread.
__device__ __forceinline__ void tma_load_even_odd_rows(uint32_t to, const CUtensorMap& map,
                                                       int column, int group, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, 0, 0, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(group), "r"(barrier)
      : "memory");
}
/// Stores a box of a transposed_fragments_tensor_map, as tma_store_2d does.
__device__ __forceinline__ void tma_store_transposed_fragments(const CUtensorMap& map, int column,
                                                               int group, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, 0, 0, 0, %2}], [%3];\n"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(column), "r"(group), "r"(from)
      : "memory");
}
/// Waits until all TMA stores of this thread have read their source.
__device__ __forceinline__ void bulk_store_wait() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// Bulk copies of consecutive bytes are fast if both ends have the same offset from a line of this
/// size. With offsets that differ by 16 bytes LayerNorm backward took 722 us instead of 617 at
/// 8,192 columns (f16, 49,152 rows, H200).
inline constexpr int kCopyLineBytes = 128;

/// Starts copying `bytes` consecutive bytes; both addresses and the count are multiples of 16. They
/// complete on `barrier`.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
/// The opposite direction: bulk_store_wait() returns after `from` has been read.
__device__ __forceinline__ void bulk_store(void* to, uint32_t from, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Barrier `id` (1 to 15; 0 is __syncthreads) of `threads` threads, whole warps.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Sets the number of registers of this thread; all of a warpgroup call it, in a kernel whose
/// launch bounds name one block per SM. Multiples of 8 from 24 to 240. The block has the registers
/// of its launch: an allocation of more than was released waits forever.
template <int kRegisters>
__device__ __forceinline__ void warpgroup_reg_alloc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void warpgroup_reg_dealloc() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace bertha
