// Calls of CUDA and cuBLASLt that fail, for failing_calls.cpp (FAIL_WHAT=cuda): those that
// allocate, that queue work, and that wait for it. Part of a program of its own (CMakeLists.txt) in
// which the linker takes `__wrap_name` for `name` (--wrap): the CUDA runtime is linked into
// programs, out of reach of a preloaded library. All else of that program is bertha's.
//
// A call that fails is not made. As on a GPU its error stays behind for the next cudaGetLastError,
// and any but a lack of memory is the end: each later call of the process fails the same way.

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "tests/support/failing_calls.h"

namespace {

std::atomic<cudaError_t> broken = cudaSuccess;
thread_local cudaError_t left_behind = cudaSuccess;

/// The error that a call has to return instead of being made; cudaSuccess = it is made.
cudaError_t failure_of(const char* name) {
  // Not linked: the library is preloaded where calls are to fail.
  static const auto asks = reinterpret_cast<decltype(&must_fail)>(dlsym(RTLD_DEFAULT, "must_fail"));
  cudaError_t error = broken;
  if (error == cudaSuccess && asks != nullptr && asks("cuda", name)) {
    error = static_cast<cudaError_t>(errno);
    if (error != cudaErrorMemoryAllocation) broken = error;
  }
  if (error != cudaSuccess) left_behind = error;
  return error;
}

template <class Function, class... Arguments>
cudaError_t call(const char* name, Function* real, Arguments... arguments) {
  const cudaError_t error = failure_of(name);
  return error == cudaSuccess ? real(arguments...) : error;
}

/// A function of cuBLASLt that may fail, in the place of the library's.
template <auto function>
struct Failing;
template <class... Arguments, cublasStatus_t (*function)(Arguments...)>
struct Failing<function> {
  static inline const char* name = nullptr;
  static inline cublasStatus_t (*real)(Arguments...) = nullptr;

  static cublasStatus_t call(Arguments... arguments) {
    const cudaError_t error = failure_of(name);
    if (error == cudaSuccess) return real(arguments...);
    return error == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED
                                              : CUBLAS_STATUS_EXECUTION_FAILED;
  }
};

template <auto function>
bool replaces(const char* wanted, const char* name, void*& found) {
  if (std::strcmp(wanted, name) != 0) return false;
  Failing<function>::name = name;
  Failing<function>::real = reinterpret_cast<decltype(function)>(found);
  found = reinterpret_cast<void*>(&Failing<function>::call);
  return true;
}

}  // namespace

extern "C" {

decltype(cudaGetLastError) __real_cudaGetLastError;
cudaError_t __wrap_cudaGetLastError() {
  const cudaError_t error = left_behind;
  left_behind = cudaSuccess;
  return error == cudaSuccess ? __real_cudaGetLastError() : error;
}
decltype(cudaPeekAtLastError) __real_cudaPeekAtLastError;
cudaError_t __wrap_cudaPeekAtLastError() {
  return left_behind == cudaSuccess ? __real_cudaPeekAtLastError() : left_behind;
}

// Devices.
decltype(cudaGetDeviceCount) __real_cudaGetDeviceCount;
cudaError_t __wrap_cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", __real_cudaGetDeviceCount, count);
}
decltype(cudaSetDevice) __real_cudaSetDevice;
cudaError_t __wrap_cudaSetDevice(int device) {
  return call("cudaSetDevice", __real_cudaSetDevice, device);
}
decltype(cudaGetDeviceProperties) __real_cudaGetDeviceProperties;
cudaError_t __wrap_cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", __real_cudaGetDeviceProperties, properties, device);
}
decltype(cudaMemGetInfo) __real_cudaMemGetInfo;
cudaError_t __wrap_cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return call("cudaMemGetInfo", __real_cudaMemGetInfo, free_bytes, total_bytes);
}
decltype(cudaGetDriverEntryPointByVersion) __real_cudaGetDriverEntryPointByVersion;
cudaError_t __wrap_cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                                    unsigned version, unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* result) {
  return call("cudaGetDriverEntryPointByVersion", __real_cudaGetDriverEntryPointByVersion, symbol,
              function, version, flags, result);
}

// Memory.
decltype(cudaMalloc) __real_cudaMalloc;
cudaError_t __wrap_cudaMalloc(void** to, size_t bytes) {
  return call("cudaMalloc", __real_cudaMalloc, to, bytes);
}
decltype(cudaMallocAsync) __real_cudaMallocAsync;
cudaError_t __wrap_cudaMallocAsync(void** to, size_t bytes, cudaStream_t stream) {
  return call("cudaMallocAsync", __real_cudaMallocAsync, to, bytes, stream);
}
decltype(cudaHostAlloc) __real_cudaHostAlloc;
cudaError_t __wrap_cudaHostAlloc(void** to, size_t bytes, unsigned flags) {
  return call("cudaHostAlloc", __real_cudaHostAlloc, to, bytes, flags);
}
decltype(cudaMemset) __real_cudaMemset;
cudaError_t __wrap_cudaMemset(void* to, int value, size_t bytes) {
  return call("cudaMemset", __real_cudaMemset, to, value, bytes);
}
decltype(cudaMemsetAsync) __real_cudaMemsetAsync;
cudaError_t __wrap_cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", __real_cudaMemsetAsync, to, value, bytes, stream);
}
decltype(cudaMemcpyAsync) __real_cudaMemcpyAsync;
cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  return call("cudaMemcpyAsync", __real_cudaMemcpyAsync, to, from, bytes, kind, stream);
}
decltype(cudaIpcGetMemHandle) __real_cudaIpcGetMemHandle;
cudaError_t __wrap_cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  return call("cudaIpcGetMemHandle", __real_cudaIpcGetMemHandle, handle, memory);
}
decltype(cudaIpcOpenMemHandle) __real_cudaIpcOpenMemHandle;
cudaError_t __wrap_cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags) {
  return call("cudaIpcOpenMemHandle", __real_cudaIpcOpenMemHandle, memory, handle, flags);
}

// Streams and events.
decltype(cudaStreamCreateWithPriority) __real_cudaStreamCreateWithPriority;
cudaError_t __wrap_cudaStreamCreateWithPriority(cudaStream_t* made, unsigned flags, int priority) {
  return call("cudaStreamCreateWithPriority", __real_cudaStreamCreateWithPriority, made, flags,
              priority);
}
decltype(cudaStreamSynchronize) __real_cudaStreamSynchronize;
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", __real_cudaStreamSynchronize, stream);
}
decltype(cudaStreamWaitEvent) __real_cudaStreamWaitEvent;
cudaError_t __wrap_cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call("cudaStreamWaitEvent", __real_cudaStreamWaitEvent, stream, event, flags);
}
decltype(cudaEventCreate) __real_cudaEventCreate;
cudaError_t __wrap_cudaEventCreate(cudaEvent_t* made) {
  return call("cudaEventCreate", __real_cudaEventCreate, made);
}
decltype(cudaEventCreateWithFlags) __real_cudaEventCreateWithFlags;
cudaError_t __wrap_cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
  return call("cudaEventCreateWithFlags", __real_cudaEventCreateWithFlags, made, flags);
}
decltype(cudaEventRecord) __real_cudaEventRecord;
cudaError_t __wrap_cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", __real_cudaEventRecord, event, stream);
}
decltype(cudaEventSynchronize) __real_cudaEventSynchronize;
cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", __real_cudaEventSynchronize, event);
}
decltype(cudaEventQuery) __real_cudaEventQuery;
cudaError_t __wrap_cudaEventQuery(cudaEvent_t event) {
  // Counts when it finds the end of what it waits for, as often in every run.
  const cudaError_t status = __real_cudaEventQuery(event);
  return status == cudaSuccess ? failure_of("cudaEventQuery") : status;
}

// Kernels and graphs.
decltype(cudaFuncSetAttribute) __real_cudaFuncSetAttribute;
cudaError_t __wrap_cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute name, int value) {
  return call("cudaFuncSetAttribute", __real_cudaFuncSetAttribute, kernel, name, value);
}
decltype(cudaLaunchKernel) __real_cudaLaunchKernel;
cudaError_t __wrap_cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                    size_t shared_bytes, cudaStream_t stream) {
  return call("cudaLaunchKernel", __real_cudaLaunchKernel, kernel, grid, block, arguments,
              shared_bytes, stream);
}
#if CUDART_VERSION >= 13000
// What nvcc makes of <<<>>> from CUDA 13 on.
cudaError_t __real___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      size_t shared_bytes, cudaStream_t stream);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      size_t shared_bytes, cudaStream_t stream) {
  return call("cudaLaunchKernel", __real___cudaLaunchKernel, kernel, grid, block, arguments,
              shared_bytes, stream);
}
#endif
decltype(cudaLaunchKernelExC) __real_cudaLaunchKernelExC;
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** arguments) {
  return call("cudaLaunchKernelExC", __real_cudaLaunchKernelExC, config, kernel, arguments);
}
decltype(cudaStreamBeginCapture) __real_cudaStreamBeginCapture;
cudaError_t __wrap_cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", __real_cudaStreamBeginCapture, stream, mode);
}
decltype(cudaStreamEndCapture) __real_cudaStreamEndCapture;
cudaError_t __wrap_cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", __real_cudaStreamEndCapture, stream, graph);
}
decltype(cudaGraphInstantiate) __real_cudaGraphInstantiate;
cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                        unsigned long long flags) {
  return call("cudaGraphInstantiate", __real_cudaGraphInstantiate, made, graph, flags);
}
decltype(cudaGraphLaunch) __real_cudaGraphLaunch;
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return call("cudaGraphLaunch", __real_cudaGraphLaunch, graph, stream);
}

// cuBLASLt is looked up by hand (kernels/cuda/gemm/cublaslt_calls.h): bertha::find_cublaslt(name).
void* __real__ZN6bertha13find_cublasltEPKc(const char* wanted);
void* __wrap__ZN6bertha13find_cublasltEPKc(const char* wanted) {
  void* found = __real__ZN6bertha13find_cublasltEPKc(wanted);
  (void)(replaces<&cublasLtCreate>(wanted, "cublasLtCreate", found) ||
         replaces<&cublasLtMatmulDescCreate>(wanted, "cublasLtMatmulDescCreate", found) ||
         replaces<&cublasLtMatmulDescSetAttribute>(wanted, "cublasLtMatmulDescSetAttribute",
                                                   found) ||
         replaces<&cublasLtMatrixLayoutCreate>(wanted, "cublasLtMatrixLayoutCreate", found) ||
         replaces<&cublasLtMatmulAlgoGetHeuristic>(wanted, "cublasLtMatmulAlgoGetHeuristic",
                                                   found) ||
         replaces<&cublasLtMatmul>(wanted, "cublasLtMatmul", found));
  return found;
}
}
