#include "kernels/cuda/p2p/peer_memory.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/cuda/cuda_check.h"

namespace bertha {
namespace {

// Smaller allocations may share a page, to which a handle refers.
constexpr int64_t kPageBytes = int64_t{2} << 20;

/// Error(kEnvironment) with this message, unless a call succeeded.
template <class... Words>
void check_sharing(cudaError_t status, const Words&... words) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, which the next check would report
  fail(ExitCode::kEnvironment, words..., ": ", cudaGetErrorString(status));
}

}  // namespace

PeerMemory::PeerMemory(Device& device, int64_t bytes)
    : own_(device.allocate(std::max(bytes, kPageBytes))) {}

std::string PeerMemory::handle() const {
  cudaIpcMemHandle_t handle{};
  check_sharing(cudaIpcGetMemHandle(&handle, own_.data()),
                "a GPU cannot share its memory with other processes");
  return std::string(handle.reserved, sizeof(handle.reserved));
}

void PeerMemory::open(const std::vector<std::string>& handles, int rank) {
  close();
  for (size_t r = 0; r < handles.size(); ++r) {
    void* data = own_.data();
    if (static_cast<int>(r) != rank) {
      cudaIpcMemHandle_t handle{};
      BERTHA_CHECK(handles[r].size() == sizeof(handle.reserved), "handle of ", handles[r].size(),
                   " bytes, want ", sizeof(handle.reserved));
      std::memcpy(handle.reserved, handles[r].data(), sizeof(handle.reserved));
      check_sharing(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess),
                    "the GPU of rank ", rank, " cannot access the GPU memory of rank ", r);
    }
    of_rank_.push_back(static_cast<char*>(data));
  }
}

void PeerMemory::close() {
  for (char* data : of_rank_) {
    if (data != own_.data()) cudaIpcCloseMemHandle(data);
  }
  of_rank_.clear();
}

}  // namespace bertha
