#pragma once

#include <memory>

#include "data/pipeline/batch.h"
#include "kernels/base/device.h"

namespace bertha {

/// A pool of pinned memory: freeing it waits for all work of a GPU, and allocating it takes as long
/// as a short step. A block returns to the pool with its last user; all blocks are freed with the
/// pool.
///
/// Bytes     of a block: the requested size, rounded up to a power of two, so that batches of many
///           sizes share few blocks. The pool has as many blocks as were in use at once.
/// Errors    as Device::allocate_pinned.
/// Threads   any thread may allocate and release blocks. The device must outlive both.
HostAllocator make_pinned_pool(Device& device);

}  // namespace bertha
