#include "kernels/cuda/cuda_check.h"

#include "kernels/cuda/gemm/cublaslt_calls.h"

namespace bertha {
namespace {

ExitCode code_of(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return ExitCode::kMemory;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorECCUncorrectable:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
      return ExitCode::kEnvironment;
    default:
      return ExitCode::kInternal;
  }
}

}  // namespace

void fail_cuda(cudaError_t status, const char* call) {
  cudaGetLastError();  // who goes on after an error, such as of memory, does not meet it again
  fail(code_of(status), call, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
       ")");
}

void fail_cublas(cublasStatus_t status, const char* call) {
  fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ExitCode::kMemory : ExitCode::kInternal, call, ": ",
       cublasLtGetStatusString(status));
}

}  // namespace bertha
