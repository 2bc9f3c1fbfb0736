#include "harness/comm/nccl_check.h"

#include <string>

#include "kernels/base/error.h"

namespace bertha {

void throw_nccl_error(const char* call, ncclResult_t status) {
  const std::string details = ncclGetLastError(nullptr);
  fail(ExitCode::kEnvironment, call, " failed: ", ncclGetErrorString(status),
       details.empty() ? "" : concat(" (", details, ")"),
       "; NCCL_DEBUG=INFO in the environment shows what NCCL tried");
}

}  // namespace bertha
