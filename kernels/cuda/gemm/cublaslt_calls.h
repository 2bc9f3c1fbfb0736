#pragma once

#include <cublasLt.h>

namespace bertha {

/// The address of a function of cuBLASLt, which is loaded at the first call: a program linked with
/// it would load its 540 MB and 350,000 relocations at every start, 190 MB of memory and up to a
/// second, for `bertha --version` and on the CPU too. Error(kEnvironment) if it is not found.
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
#define BERTHA_CUBLASLT_CALL(name) \
  inline constexpr CublasLtCall<&::name> name { #name }
BERTHA_CUBLASLT_CALL(cublasLtGetVersion);
BERTHA_CUBLASLT_CALL(cublasLtGetStatusString);
BERTHA_CUBLASLT_CALL(cublasLtCreate);
BERTHA_CUBLASLT_CALL(cublasLtDestroy);
BERTHA_CUBLASLT_CALL(cublasLtMatmulDescCreate);
BERTHA_CUBLASLT_CALL(cublasLtMatmulDescDestroy);
BERTHA_CUBLASLT_CALL(cublasLtMatmulDescSetAttribute);
BERTHA_CUBLASLT_CALL(cublasLtMatrixLayoutCreate);
BERTHA_CUBLASLT_CALL(cublasLtMatrixLayoutDestroy);
BERTHA_CUBLASLT_CALL(cublasLtMatmulPreferenceCreate);
BERTHA_CUBLASLT_CALL(cublasLtMatmulPreferenceDestroy);
BERTHA_CUBLASLT_CALL(cublasLtMatmulPreferenceSetAttribute);
BERTHA_CUBLASLT_CALL(cublasLtMatmulAlgoGetHeuristic);
BERTHA_CUBLASLT_CALL(cublasLtMatmulAlgoCheck);
BERTHA_CUBLASLT_CALL(cublasLtMatmulAlgoCapGetAttribute);
BERTHA_CUBLASLT_CALL(cublasLtMatmulAlgoConfigGetAttribute);
BERTHA_CUBLASLT_CALL(cublasLtMatmulAlgoConfigSetAttribute);
BERTHA_CUBLASLT_CALL(cublasLtMatmul);
#undef BERTHA_CUBLASLT_CALL

/// Error(kMemory) for a failed allocation, fail_if_damaged(), else Error(kInternal).
[[noreturn]] void fail_cublas(cublasStatus_t status, const char* call);

}  // namespace bertha

#define BERTHA_CUBLAS_CHECK(call)                                                            \
  do {                                                                                       \
    const cublasStatus_t bertha_status = (call);                                             \
    if (bertha_status != CUBLAS_STATUS_SUCCESS) ::bertha::fail_cublas(bertha_status, #call); \
  } while (false)
