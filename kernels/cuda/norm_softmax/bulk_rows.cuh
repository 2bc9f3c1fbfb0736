#pragma once

#include "kernels/cuda/common/raw_pack.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/tensor_core/barrier.cuh"

namespace bertha {

// The skeleton of plain operations on wide rows of 16 bits, wherever they begin: a block has a row
// in shared memory and leaves when it is done. The row's whole 16-byte words come by a bulk copy; the
// elements before the first word and behind the last are loaded one by one, and what stands beside
// them changes no result, so that only who stores asks.
//
// Measured with softmax, f16, 49,152 rows, H200: the place in a line of kCopyLineBytes counts, 30,522
// columns backward took 2,450 us with rows at other places than in memory, 2,040 at the same. Results
// by a bulk copy out of shared memory: forward 1,456 instead of 1,498, backward, where a
// SM has one row, 2,197 instead of 2,045. With 1,024 threads backward 2,478. Pieces
// with barriers of their own, so that the first pass begins earlier, made no difference, nor did
// results left in shared memory as 16 bytes, where nvcc makes some of them four stores: at 16,384
// columns a fourth block then has registers, and forward takes 783 us instead of 766.
//
// Operations are those of leaving_rows.cuh and see a BulkRow.
//
// Deterministic: every order of summation follows from the width and from where in a word of 16
// bytes the row begins.

/// Cells of an input: whole lines for a row that begins anywhere in one.
__host__ __device__ constexpr int64_t bulk_slot(int64_t columns) {
  return (columns + 2 * kCopyLineElements - 2) / kCopyLineElements * kCopyLineElements;
}

template <class Operation, int kThreads>
class BulkRow {
 public:
  using T = typename Operation::Element;
  static constexpr int kInputs = Operation::kInputs;
  static constexpr int kPackElements = 8;
  static constexpr int kPacks = 1;  // in registers, at a time
  static constexpr bool kInRegisters = false;
  static constexpr int kMeetingLanes = kThreads / kWarpThreads;
  static_assert((kMeetingLanes & (kMeetingLanes - 1)) == 0, "lanes are combined in pairs");
  static constexpr bool kStoresInBulk = kInputs == 1;
  struct Shared {
    uint64_t landed;
    float parts[kMeetingLanes][2];
  };

  /// The addresses of all operands differ by multiples of 16 bytes.
  __device__ BulkRow(const Operation& operation, int64_t row, int columns, uint4* cells,
                     Shared& shared)
      : operation_(operation),
        slot_(static_cast<int>(bulk_slot(columns))),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)) {
    const int64_t at = row * columns;
    const auto address = reinterpret_cast<uintptr_t>(operation.inputs[0] + at);
    first_ = static_cast<int>(address % 16 / sizeof(T));
    // As far behind a line as in memory.
    cells_ = reinterpret_cast<T*>(cells) + address % kCopyLineBytes / 16 * 8;
    at_ = at - first_;
    end_ = first_ + columns;
    begin_whole_ = (first_ + 7) / 8;
    end_whole_ = end_ / 8;
    const uint32_t landed = shared_address(&shared.landed);
    if (thread_ == 0) {
      barrier_init(landed, 1);
      fence_barrier_init();
      barrier_arrive_expecting(landed, kInputs * whole_bytes());
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        copy_bytes_async(shared_address(cells_ + k * slot_ + begin_whole_ * 8),
                         operation.inputs[k] + at_ + begin_whole_ * 8, whole_bytes(), landed);
      }
    }
    // Who works on a pack that is not whole loads it.
    load_edge(0);
    load_edge((end_ - 1) / 8);
    __syncthreads();  // behind the making of the barrier
    barrier_wait(landed, 0);
  }

  /// work(p, v) for the thread's packs, with numbers v[kInputs][8].
  template <class Work>
  __device__ __forceinline__ void for_packs(const Work& work) const {
#pragma unroll 2
    for (int p = thread_; p * 8 < end_; p += kThreads) {
      float v[kInputs][8];
#pragma unroll
      for (int k = 0; k < kInputs; ++k) pack(k, p).unpack(v[k]);
      work(p, v);
    }
  }
  /// The largest of the thread's elements of the first input, of which NaN is none.
  __device__ __forceinline__ float largest() const {
    uint32_t most = RawPack<T, 2>::least_pair();
#pragma unroll 4
    for (int p = thread_; p * 8 < end_; p += kThreads) most = pack(0, p).larger(most);
    return RawPack<T, 2>::larger_of_pair(most);
  }
  __device__ __forceinline__ void keep_packed() const {}

  /// The result of pack p.
  __device__ __forceinline__ void store(int p, const float (&values)[8]) const {
    RawPack<T, 8> raw;
    raw.pack(values);
    T* const to = operation_.output + at_ + p * 8;
    if constexpr (kStoresInBulk) raw.store(cells_ + p * 8);
    if (is_whole(p)) {
      if constexpr (!kStoresInBulk) raw.store(to);
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (has(p * 8 + i)) to[i] = from_float<T>(values[i]);
    }
  }

  /// Once: every warp leaves K numbers, the same in its lanes, and a lane gets those of a warp.
  template <int K>
  __device__ __forceinline__ void meet(const float (&own)[K], float (&part)[K]) const {
    const int lane = thread_ % kWarpThreads;
    if (lane == 0) {
#pragma unroll
      for (int k = 0; k < K; ++k) shared_.parts[thread_ / kWarpThreads][k] = own[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; ++k) part[k] = shared_.parts[lane % kMeetingLanes][k];
  }

  /// After the last pass.
  __device__ __forceinline__ void leave() const {
    if constexpr (kStoresInBulk) {
      fence_proxy_async();
      __syncthreads();
      if (thread_ != 0) return;
      store_bytes_async(operation_.output + at_ + begin_whole_ * 8,
                        shared_address(cells_ + begin_whole_ * 8), whole_bytes());
      wait_for_stores();
    }
  }

 private:
  __device__ bool has(int cell) const { return cell >= first_ && cell < end_; }
  __device__ bool is_whole(int p) const { return p >= begin_whole_ && p < end_whole_; }
  __device__ uint32_t whole_bytes() const {
    return static_cast<uint32_t>((end_whole_ - begin_whole_) * 16);
  }
  __device__ __forceinline__ void load_edge(int p) const {
    if (p % kThreads != thread_ || is_whole(p)) return;
    const auto bits = static_cast<uint16_t>(operation_.absent());
    const T absent = *reinterpret_cast<const T*>(&bits);
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int cell = p * 8 + i;
        cells_[k * slot_ + cell] = has(cell) ? operation_.inputs[k][at_ + cell] : absent;
      }
    }
  }
  __device__ __forceinline__ RawPack<T, 8> pack(int input, int p) const {
    RawPack<T, 8> raw;
    raw.load(cells_ + input * slot_ + p * 8);
    return raw;
  }

  const Operation& operation_;
  int64_t at_;  // of the first cell's element in the operands
  T* cells_;    // of the first input; the others' follow
  int slot_;    // cells of an input
  Shared& shared_;
  int thread_;
  int first_;        // cell of the row
  int end_;          // behind its last cell
  int begin_whole_;  // the first pack that the row has alone
  int end_whole_;    // behind the last
};

template <class Operation, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    bulk_rows_kernel(const __grid_constant__ Operation operation, int columns) {
  using Row = BulkRow<Operation, kThreads>;
  extern __shared__ __align__(kCopyLineBytes) uint4 bulk_cells[];
  __shared__ typename Row::Shared shared;
  Row row(operation, blockIdx.x, columns, bulk_cells, shared);
  operation.run(row);
  row.leave();
}

/// Shared memory of a row.
template <class Operation>
int64_t bulk_bytes(int64_t columns) {
  return bulk_slot(columns) * 2 * Operation::kInputs;
}

template <int kThreads, int kBlocks, class Operation>
void launch_bulk_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                      int64_t columns) {
  const int64_t bytes = bulk_bytes<Operation>(columns);
  const auto kernel = &bulk_rows_kernel<Operation, kThreads, kBlocks>;
  allow_shared_bytes(kernel, bytes);
  kernel<<<static_cast<unsigned>(rows), kThreads, static_cast<size_t>(bytes), context.stream>>>(
      operation, static_cast<int>(columns));
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
