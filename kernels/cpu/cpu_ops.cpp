#include "kernels/base/cpu/cpu_op_set.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm.h"

namespace bertha {

std::unique_ptr<Ops> make_cpu_ops(Device& device, Stream&) {
  auto ops = std::make_unique<CpuOpSet<Ops>>(device);
  // Not loaded with the device: row operations do not need OpenBLAS.
  prepare_gemms(dynamic_cast<CpuDevice&>(device).pool().threads());
  return ops;
}

}  // namespace bertha
