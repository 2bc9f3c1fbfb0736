#pragma once

#include <nccl.h>

namespace bertha {

[[noreturn]] void throw_nccl_error(const char* call, ncclResult_t status);

}  // namespace bertha

/// Throws Error(kEnvironment) with the call and NCCL's text unless the status is ncclSuccess.
#define BERTHA_NCCL_CHECK(call)                                                                   \
  do {                                                                                            \
    const ncclResult_t bertha_nccl_status = (call);                                               \
    if (bertha_nccl_status != ncclSuccess) ::bertha::throw_nccl_error(#call, bertha_nccl_status); \
  } while (false)
