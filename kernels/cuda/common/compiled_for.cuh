#pragma once

namespace bertha {

/// In device code, whether this pass of the compiler makes code for sm_90a. The host asks
/// CudaDevice::has_sm90a_code() which one is loaded: portable kernels run as either.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr bool kIsSm90aCode = true;
#else
inline constexpr bool kIsSm90aCode = false;
#endif

}  // namespace bertha
