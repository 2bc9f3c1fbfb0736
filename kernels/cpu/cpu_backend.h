#pragma once

#include <memory>

#include "kernels/base/cpu/cpu_devices.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// Operations that run immediately, on the threads of `device`, which must outlive them.
std::unique_ptr<Ops> make_cpu_ops(Device& device, Stream& stream);

}  // namespace bertha
