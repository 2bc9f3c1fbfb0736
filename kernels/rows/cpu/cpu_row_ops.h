#pragma once

#include <memory>

#include "kernels/base/device.h"
#include "kernels/rows/row_ops.h"

namespace bertha {

/// Row operations that run immediately, on the threads of the CPU device `device`, which must
/// outlive them.
std::unique_ptr<RowOps> make_cpu_row_ops(Device& device, Stream& stream);

}  // namespace bertha
