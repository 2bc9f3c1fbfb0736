#include "kernels/rows/cuda/cuda_row_ops.h"

#include "kernels/base/cuda/cuda_op_set.h"

namespace bertha {

std::unique_ptr<RowOps> make_cuda_row_ops(Device& device, Stream& stream) {
  return std::make_unique<CudaOpSet<RowOps>>(device, stream);
}

CudaContext& cuda_context(RowOps& ops) {
  auto* const cuda_ops = dynamic_cast<CudaOpSet<RowOps>*>(&ops);
  BERTHA_CHECK(cuda_ops != nullptr,
               "the row operations are another backend's, want those of "
               "make_cuda_row_ops");
  return cuda_ops->context();
}

}  // namespace bertha
