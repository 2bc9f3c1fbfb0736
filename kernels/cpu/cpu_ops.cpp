#include "kernels/cpu/cpu_op_set.h"

namespace bertha {

std::unique_ptr<Ops> make_cpu_ops(Device& device, Stream&) {
  return std::make_unique<CpuOpSet<Ops>>(device);
}

}  // namespace bertha
