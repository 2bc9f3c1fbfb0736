#pragma once

#include <cstdint>

#include "kernels/base/cpu/worker_pool.h"
#include "kernels/rows/ops/check_channels.h"

namespace bertha {

/// Channels of a block: as many f32 neighbours as a cache line has, for tensors with channels last.
inline constexpr int64_t kBlockChannels = 16;

/// Calls visit(c, element) for every channel's elements in their order, then finish(c). One thread
/// has all of a channel, so that sums need no merging.
void for_channels(WorkerPool& pool, const ChannelsShape& shape, const auto& visit,
                  const auto& finish) {
  pool.for_range(shape.channels, kBlockChannels, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < shape.outer; ++n) {
      for (int64_t c = begin; c < end; ++c) {
        const int64_t first = (n * shape.channels + c) * shape.inner;
        for (int64_t s = 0; s < shape.inner; ++s) visit(c, first + s);
      }
    }
    for (int64_t c = begin; c < end; ++c) finish(c);
  });
}

/// Calls visit(element, channel) for all elements, in blocks that begin at a byte of a bit mask.
void for_elements(WorkerPool& pool, const ChannelsShape& shape, const auto& visit) {
  constexpr int64_t kBlockElements = 16384;
  pool.for_range(shape.elements(), kBlockElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) visit(i, i / shape.inner % shape.channels);
  });
}

}  // namespace bertha
