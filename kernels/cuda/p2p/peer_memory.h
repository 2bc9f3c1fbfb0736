#pragma once

#include <string>
#include <vector>

#include "kernels/base/device.h"

namespace bertha {

/// GPU memory that the processes of one machine share (CUDA IPC): each allocates a buffer and maps
/// the others' buffers.
///
/// Errors    Error(kEnvironment) if a GPU cannot share its memory, or access another GPU's.
class PeerMemory {
 public:
  /// This process's own, zeroed; at least `bytes`, the same number in every process.
  PeerMemory(Device& device, int64_t bytes);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory() { close(); }

  /// What lets another process open this memory.
  std::string handle() const;
  /// Maps the memory of all processes, by their handles in rank order; `rank` is this process.
  void open(const std::vector<std::string>& handles, int rank);
  /// Unmaps the others' memory. All processes must have done so before any frees its own.
  void close();

  /// First byte of that rank's memory, in this process's addresses.
  char* of_rank(int rank) const { return of_rank_[static_cast<size_t>(rank)]; }
  char* data() const { return static_cast<char*>(own_.data()); }
  int64_t bytes() const { return own_.bytes(); }

 private:
  Buffer own_;
  std::vector<char*> of_rank_;  // empty until open
};

}  // namespace bertha
