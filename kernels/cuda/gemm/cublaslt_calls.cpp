// The functions of cuBLASLt that linear layers call, resolved by dlopen at the first call: a
// program linked with the library would load its 540 MB and 350,000 relocations at every start, 190
// MB of memory and up to a second, for `bertha --version` and on the CPU too.
#include <cublasLt.h>
#include <dlfcn.h>

#include "kernels/base/error.h"

namespace bertha {
namespace {

void* load_library() {
  const std::string name = concat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  if (void* const found = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
  const std::string why = dlerror();
  // Where the build found it; the loader looks there for linked libraries only.
  const std::string in_toolkit = concat(BERTHA_CUBLASLT_FOLDER "/", name);
  if (void* const found = dlopen(in_toolkit.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
  fail(ExitCode::kEnvironment, why, "; install cuBLAS of CUDA ", CUBLAS_VER_MAJOR,
       ", or name its folder in LD_LIBRARY_PATH.");
}

// Never closed: handles live until the process ends.
void* address_of(const char* function) {
  static void* const library = load_library();
  if (void* const address = dlsym(library, function)) return address;
  fail(ExitCode::kEnvironment, "cuBLASLt lacks ", function, ": ", dlerror(),
       "; install cuBLAS of CUDA ", CUBLAS_VER_MAJOR, '.', CUBLAS_VER_MINOR, " or newer.");
}

// The library's own function of this name, looked for once.
template <auto* function>
auto in_library(const char* name) {
  static const auto found = reinterpret_cast<decltype(function)>(address_of(name));
  return found;
}

}  // namespace
}  // namespace bertha

using bertha::in_library;

size_t cublasLtGetVersion() { return in_library<cublasLtGetVersion>(__func__)(); }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return in_library<cublasLtGetStatusString>(__func__)(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* made) {
  return in_library<cublasLtCreate>(__func__)(made);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return in_library<cublasLtDestroy>(__func__)(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return in_library<cublasLtMatmulDescCreate>(__func__)(made, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return in_library<cublasLtMatmulDescDestroy>(__func__)(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  return in_library<cublasLtMatmulDescSetAttribute>(__func__)(description, attribute, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  return in_library<cublasLtMatrixLayoutCreate>(__func__)(made, type, rows, columns, stride);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return in_library<cublasLtMatrixLayoutDestroy>(__func__)(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return in_library<cublasLtMatmulPreferenceCreate>(__func__)(made);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return in_library<cublasLtMatmulPreferenceDestroy>(__func__)(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  return in_library<cublasLtMatmulPreferenceSetAttribute>(__func__)(preference, attribute, value,
                                                                    bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  return in_library<cublasLtMatmulAlgoGetHeuristic>(__func__)(handle, description, a, b, c, d,
                                                              preference, most, found, count);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* found) {
  return in_library<cublasLtMatmulAlgoCheck>(__func__)(handle, description, a, b, c, d, algorithm,
                                                       found);
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t attribute,
                                                 void* value, size_t bytes, size_t* written) {
  return in_library<cublasLtMatmulAlgoCapGetAttribute>(__func__)(algorithm, attribute, value, bytes,
                                                                 written);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
  return in_library<cublasLtMatmulAlgoConfigGetAttribute>(__func__)(algorithm, attribute, value,
                                                                    bytes, written);
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  return in_library<cublasLtMatmulAlgoConfigSetAttribute>(__func__)(algorithm, attribute, value,
                                                                    bytes);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  return in_library<cublasLtMatmul>(__func__)(handle, description, alpha, a, a_layout, b, b_layout,
                                              beta, c, c_layout, d, d_layout, algorithm, workspace,
                                              workspace_bytes, stream);
}
