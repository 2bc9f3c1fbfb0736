// A program written for 1.0.0 compiles and links for one more release.

#include <kernels/cpu/cpu_devices.h>
#include <kernels/cpu/cpu_row_ops.h>
#include <kernels/row_ops.h>

std::unique_ptr<bertha::RowOps> row_ops_as_before(bertha::Device& device, bertha::Stream& stream) {
  return bertha::make_cpu_row_ops(device, stream);
}
