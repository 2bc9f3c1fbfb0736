#pragma once

#include <cublasLt.h>

namespace bertha {

/// The address of a function of cuBLASLt, which is loaded at the first call: a program linked with
/// it would load its 540 MB and 350,000 relocations at every start, 190 MB of memory and up to a
/// second, for `bertha --version` and on the CPU too. Error(kEnvironment) where it is not found.
void* find_cublaslt(const char* function);

/// Calls the library's function of this name, looked for once.
template <auto function>
struct CublasLtCall {
  const char* name;

  template <class... Arguments>
  auto operator()(Arguments... arguments) const {
    static const auto found = reinterpret_cast<decltype(function)>(find_cublaslt(name));
    return found(arguments...);
  }
};

// Within this namespace they hide the functions, with which nothing is linked.
inline constexpr CublasLtCall<&::cublasLtGetVersion> cublasLtGetVersion{"cublasLtGetVersion"};
inline constexpr CublasLtCall<&::cublasLtGetStatusString> cublasLtGetStatusString{
    "cublasLtGetStatusString"};
inline constexpr CublasLtCall<&::cublasLtCreate> cublasLtCreate{"cublasLtCreate"};
inline constexpr CublasLtCall<&::cublasLtDestroy> cublasLtDestroy{"cublasLtDestroy"};
inline constexpr CublasLtCall<&::cublasLtMatmulDescCreate> cublasLtMatmulDescCreate{
    "cublasLtMatmulDescCreate"};
inline constexpr CublasLtCall<&::cublasLtMatmulDescDestroy> cublasLtMatmulDescDestroy{
    "cublasLtMatmulDescDestroy"};
inline constexpr CublasLtCall<&::cublasLtMatmulDescSetAttribute> cublasLtMatmulDescSetAttribute{
    "cublasLtMatmulDescSetAttribute"};
inline constexpr CublasLtCall<&::cublasLtMatrixLayoutCreate> cublasLtMatrixLayoutCreate{
    "cublasLtMatrixLayoutCreate"};
inline constexpr CublasLtCall<&::cublasLtMatrixLayoutDestroy> cublasLtMatrixLayoutDestroy{
    "cublasLtMatrixLayoutDestroy"};
inline constexpr CublasLtCall<&::cublasLtMatmulPreferenceCreate> cublasLtMatmulPreferenceCreate{
    "cublasLtMatmulPreferenceCreate"};
inline constexpr CublasLtCall<&::cublasLtMatmulPreferenceDestroy> cublasLtMatmulPreferenceDestroy{
    "cublasLtMatmulPreferenceDestroy"};
inline constexpr CublasLtCall<&::cublasLtMatmulPreferenceSetAttribute>
    cublasLtMatmulPreferenceSetAttribute{"cublasLtMatmulPreferenceSetAttribute"};
inline constexpr CublasLtCall<&::cublasLtMatmulAlgoGetHeuristic> cublasLtMatmulAlgoGetHeuristic{
    "cublasLtMatmulAlgoGetHeuristic"};
inline constexpr CublasLtCall<&::cublasLtMatmulAlgoCheck> cublasLtMatmulAlgoCheck{
    "cublasLtMatmulAlgoCheck"};
inline constexpr CublasLtCall<&::cublasLtMatmulAlgoCapGetAttribute>
    cublasLtMatmulAlgoCapGetAttribute{"cublasLtMatmulAlgoCapGetAttribute"};
inline constexpr CublasLtCall<&::cublasLtMatmulAlgoConfigGetAttribute>
    cublasLtMatmulAlgoConfigGetAttribute{"cublasLtMatmulAlgoConfigGetAttribute"};
inline constexpr CublasLtCall<&::cublasLtMatmulAlgoConfigSetAttribute>
    cublasLtMatmulAlgoConfigSetAttribute{"cublasLtMatmulAlgoConfigSetAttribute"};
inline constexpr CublasLtCall<&::cublasLtMatmul> cublasLtMatmul{"cublasLtMatmul"};

/// Error(kMemory) for a failed allocation, fail_if_damaged(), else Error(kInternal).
[[noreturn]] void fail_cublas(cublasStatus_t status, const char* call);

}  // namespace bertha

#define BERTHA_CUBLAS_CHECK(call)                                                            \
  do {                                                                                       \
    const cublasStatus_t bertha_status = (call);                                             \
    if (bertha_status != CUBLAS_STATUS_SUCCESS) ::bertha::fail_cublas(bertha_status, #call); \
  } while (false)
