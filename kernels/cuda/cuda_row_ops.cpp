#include "kernels/cuda/cuda_row_ops.h"

#include "kernels/cuda/cuda_op_set.h"

namespace bertha {

std::unique_ptr<RowOps> make_cuda_row_ops(Device& device, Stream& stream) {
  return std::make_unique<CudaOpSet<RowOps>>(device, stream, CudaOptions());
}

}  // namespace bertha
