#include "kernels/rows/cpu/cpu_row_ops.h"

#include "kernels/base/cpu/cpu_op_set.h"

namespace bertha {

std::unique_ptr<RowOps> make_cpu_row_ops(Device& device, Stream&) {
  return std::make_unique<CpuOpSet<RowOps>>(device);
}

}  // namespace bertha
