#pragma once

#include <memory>

#include "kernels/base/device.h"
#include "kernels/rows/row_ops.h"

namespace bertha {

/// Row operations enqueued on `stream` of the CUDA device `device`; both must outlive them.
///
/// Random    dropout decisions are bit for bit the same as on the CPU backend.
/// Exact     repeatable bit for bit.
std::unique_ptr<RowOps> make_cuda_row_ops(Device& device, Stream& stream);

struct CudaContext;
/// The stream and the memory of row operations, for calls with functors of one's own
/// (kernels/rows/functors.md) in order with them. Error(kInternal) for another backend's.
CudaContext& cuda_context(RowOps& ops);

}  // namespace bertha
