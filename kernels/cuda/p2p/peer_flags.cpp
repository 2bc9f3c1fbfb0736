#include "kernels/cuda/p2p/peer_flags.h"

#include <cuda.h>

#include <vector>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/handles.h"

namespace bertha {
namespace {

using BatchMemOp = decltype(&cuStreamBatchMemOp);

/// The driver's function, asked of the runtime: linking with the driver would tie the program to
/// machines that have one.
BatchMemOp find_batch_mem_op() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSinceCuda = 12000;
  BERTHA_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &function, kSinceCuda,
                                                     cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) {
    fail(ExitCode::kEnvironment, "the CUDA driver lacks stream memory operations");
  }
  return reinterpret_cast<BatchMemOp>(function);
}

void enqueue(Stream& stream, std::vector<CUstreamBatchMemOpParams>& operations) {
  if (operations.empty()) return;  // a single rank
  static const BatchMemOp batch_mem_op = find_batch_mem_op();
  const CUresult status =
      batch_mem_op(native(stream), static_cast<unsigned>(operations.size()), operations.data(), 0);
  if (status != CUDA_SUCCESS) {
    fail(ExitCode::kEnvironment, "cuStreamBatchMemOp failed with error ", static_cast<int>(status),
         " of the CUDA driver");
  }
}

/// Of the flag that `from` raises, in the memory of one rank.
CUdeviceptr address_of(const char* memory, int flag, int ranks, int from) {
  return reinterpret_cast<CUdeviceptr>(memory) +
         static_cast<CUdeviceptr>(flag * ranks + from) * sizeof(uint32_t);
}

}  // namespace

PeerFlags::PeerFlags(const PeerMemory& memory, int rank, int ranks)
    : memory_(memory), rank_(rank), ranks_(ranks) {}

int64_t PeerFlags::bytes(int flags, int ranks) {
  return int64_t{flags} * ranks * static_cast<int64_t>(sizeof(uint32_t));
}

void PeerFlags::signal(Stream& stream, int flag, uint32_t value) {
  std::vector<CUstreamBatchMemOpParams> operations;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    CUstreamBatchMemOpParams write{};
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.writeValue.address = address_of(memory_.of_rank(peer), flag, ranks_, rank_);
    write.writeValue.value = value;
    write.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // after all that came before it
    operations.push_back(write);
  }
  enqueue(stream, operations);
}

void PeerFlags::await(Stream& stream, int flag, uint32_t value) {
  std::vector<CUstreamBatchMemOpParams> operations;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    CUstreamBatchMemOpParams wait{};
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.waitValue.address = address_of(memory_.data(), flag, ranks_, peer);
    wait.waitValue.value = value;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    operations.push_back(wait);
  }
  enqueue(stream, operations);
}

}  // namespace bertha
