#include "kernels/rows/c/open_cuda.h"

#include "kernels/base/cuda/cuda_devices.h"
#include "kernels/rows/cuda/cuda_row_ops.h"

namespace bertha {

std::unique_ptr<Device> open_cuda_device(int ordinal) { return make_cuda_device(ordinal); }

StreamOps open_cuda_ops(Device& device, void* stream) {
  StreamOps opened{.stream = borrow_cuda_stream(static_cast<CUstream_st*>(stream)), .ops = nullptr};
  opened.ops = make_cuda_row_ops(device, *opened.stream);
  return opened;
}

}  // namespace bertha
