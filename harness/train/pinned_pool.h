#pragma once

#include <memory>

#include "data/pipeline/batch.h"
#include "kernels/base/device.h"

namespace bertha {

/// Pinned memory that is taken from the device once and used again and again: freeing it waits for
/// all work of a GPU, and taking it costs as much as a short step. A block goes back to the pool
/// with its last user, and to the device with the pool and all its blocks.
///
/// Bytes     of a block: what is asked for, rounded up to a power of two, so that batches of many
///           sizes share few blocks. There are as many as were in use at once.
/// Errors    as Device::allocate_pinned.
/// Threads   blocks may be taken and given back by any thread. The device must outlive both.
HostAllocator make_pinned_pool(Device& device);

}  // namespace bertha
