#pragma once

#include <cstdint>

#include "kernels/base/device.h"
#include "kernels/cuda/p2p/peer_memory.h"

namespace bertha {

/// Increasing counters with which streams on the GPUs of one machine wait for each other. Stream
/// memory operations write and compare them, without kernels or the host.
///
/// Letters   W = ranks, F = flags of each rank.
class PeerFlags {
 public:
  /// `memory` has been opened, is zeroed, is used for nothing else, and outlives this.
  PeerFlags(const PeerMemory& memory, int rank, int ranks);

  static int64_t bytes(int flags, int ranks);  // u32 [F, W] on each rank

  /// Every rank that waits for this value of the flag sees the earlier work of `stream` completed.
  void signal(Stream& stream, int flag, uint32_t value);
  /// Later work of `stream` waits for every other rank's signal of this value, or of one that is
  /// larger by less than 2^31.
  void await(Stream& stream, int flag, uint32_t value);

 private:
  const PeerMemory& memory_;
  int rank_;
  int ranks_;
};

}  // namespace bertha
