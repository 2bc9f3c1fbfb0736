#pragma once

#include <memory>

#include "kernels/cuda/attention/side_streams.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/lamb_chunks.h"

namespace bertha {

class GemmPlans;

inline constexpr int kExchangeWords = 128;  // per SM

/// Memory of one operation while it runs, reused by the next one on the same stream. Grows in
/// stream order, without waiting; after the first step it no longer grows.
class ScratchMemory {
 public:
  explicit ScratchMemory(cudaStream_t stream) : stream_(stream) {}
  ~ScratchMemory();
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  /// At least `bytes`, aligned to 256, with undefined contents. Valid until the next call.
  void* take(int64_t bytes);

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// Lets the last block of a kernel finish what the others began: a count of arrivals, zero between
/// kernels, because the arrival that completes it wraps it around (atomicInc).
class ArrivalCounter {
 public:
  explicit ArrivalCounter(cudaStream_t stream);
  ~ArrivalCounter();
  ArrivalCounter(const ArrivalCounter&) = delete;
  ArrivalCounter& operator=(const ArrivalCounter&) = delete;

  uint32_t* get() const { return count_; }

 private:
  cudaStream_t stream_;
  uint32_t* count_ = nullptr;
};

/// Words of 64 bits by which blocks of a kernel hand each other numbers (common/inter_block_exchange.cuh), and counts
/// of the blocks that have read some of them: all zero between kernels of the stream, because the last
/// to read a word leaves zero there.
class InterBlockExchange {
 public:
  InterBlockExchange(cudaStream_t stream, int sm_count);
  ~InterBlockExchange();
  InterBlockExchange(const InterBlockExchange&) = delete;
  InterBlockExchange& operator=(const InterBlockExchange&) = delete;

  uint64_t* words() const { return words_; }      // kExchangeWords per SM
  uint32_t* readers() const { return readers_; }  // one per SM

 private:
  cudaStream_t stream_;
  uint64_t* words_ = nullptr;
  uint32_t* readers_ = nullptr;
};

/// What every operation of one Ops object shares.
struct CudaContext {
  CudaContext(CudaDevice& cuda_device, cudaStream_t cuda_stream, const CudaOptions& cuda_options);
  ~CudaContext();

  CudaDevice& device;
  cudaStream_t stream;
  int sm_count;
  CudaOptions options;
  ScratchMemory scratch;
  std::unique_ptr<GemmPlans> gemm;
  ArrivalCounter arrivals;
  InterBlockExchange exchange;
  LambChunkTables lamb_chunks;
  AttentionLanes attention_lanes;
};

}  // namespace bertha
