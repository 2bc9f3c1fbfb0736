#include "kernels/base/cuda/gpu_failure.h"

#include "kernels/base/error.h"

namespace bertha {

std::string gpu_failure_text(const std::string& call, const std::string& reason, GpuDamage damage,
                             const std::string& gpu) {
  std::string what = concat(call, ": ", reason, gpu.empty() ? "" : " on ", gpu);
  switch (damage) {
    case GpuDamage::kNone:
      return what;
    case GpuDamage::kPossible:
      return what +
             "; a bug, or a broken GPU: check `dmesg | grep Xid` on this machine for a line about "
             "it";
    case GpuDamage::kCertain:
      return what +
             "; the GPU or its link is broken: see `dmesg | grep Xid` on this machine, and run "
             "again "
             "without it to resume from the last checkpoint (`bertha doctor` checks machines)";
  }
  return what;
}

}  // namespace bertha
