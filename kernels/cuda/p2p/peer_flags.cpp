#include "kernels/cuda/p2p/peer_flags.h"

#include <cuda.h>

#include <vector>

#include "kernels/base/cuda/cuda_check.h"
#include "kernels/base/cuda/handles.h"

namespace bertha {
namespace {

/// Enqueues operation_of(peer) for every other rank.
template <class OperationOf>
void enqueue(Stream& stream, int rank, int ranks, const OperationOf& operation_of) {
  if (ranks == 1) return;
  std::vector<CUstreamBatchMemOpParams> operations;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank) operations.push_back(operation_of(peer));
  }
  static const auto batch_mem_op =
      reinterpret_cast<decltype(&cuStreamBatchMemOp)>(find_driver_function("cuStreamBatchMemOp"));
  const CUresult status =
      batch_mem_op(native(stream), static_cast<unsigned>(operations.size()), operations.data(), 0);
  if (status != CUDA_SUCCESS) {
    fail(ExitCode::kEnvironment, "cuStreamBatchMemOp failed with error ", static_cast<int>(status),
         " of the CUDA driver");
  }
}

/// The address of the flag that `from` raises, in the memory of one rank.
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
  enqueue(stream, rank_, ranks_, [&](int peer) {
    CUstreamBatchMemOpParams write{};
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.writeValue.address = address_of(memory_.of_rank(peer), flag, ranks_, rank_);
    write.writeValue.value = value;
    write.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // after all that came before it
    return write;
  });
}

void PeerFlags::await(Stream& stream, int flag, uint32_t value) {
  enqueue(stream, rank_, ranks_, [&](int peer) {
    CUstreamBatchMemOpParams wait{};
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.waitValue.address = address_of(memory_.data(), flag, ranks_, peer);
    wait.waitValue.value = value;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    return wait;
  });
}

}  // namespace bertha
