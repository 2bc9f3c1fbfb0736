#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/base/device.h"

struct CUstream_st;  // a cudaStream_t points to it

namespace bertha {

/// The kernels of a device. Auto: sm_90a kernels on a GPU of compute capability 9.0 (H100, H200),
/// if the program has code for it; portable ones on all others from 8.0 on. Portable: these
/// everywhere, with the shared memory of the smallest GPU that they serve.
enum class CudaKernels { kAuto, kPortable };

/// Number of GPUs that this process sees; 0 without a driver.
/// Error(kEnvironment) when the driver is too old for this program.
int count_cuda_devices();

/// Where GPU `ordinal` sits, as /sys/bus/pci/devices names it: "0000:1b:00.0".
std::string cuda_bus_id(int ordinal);

/// All memory of GPU `ordinal`.
int64_t cuda_memory_bytes(int ordinal);

/// GPU `ordinal` of those visible; its description ends with "sm_90a kernels" or "portable
/// kernels". Error(kEnvironment) with a sentence when it cannot be used.
std::unique_ptr<Device> make_cuda_device(int ordinal, CudaKernels kernels = CudaKernels::kAuto);

/// Whether `device` runs the kernels of sm_90a, which fp8 needs.
bool runs_sm90a_kernels(Device& device);

/// A stream that the caller created (a cudaStream_t), for operations in order with the caller's own
/// work. It must outlive the Stream, which does not destroy it.
std::unique_ptr<Stream> borrow_cuda_stream(CUstream_st* stream);

}  // namespace bertha
