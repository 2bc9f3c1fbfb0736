#include "kernels/cuda/gemm/cublaslt_calls.h"

#include <dlfcn.h>

#include "kernels/base/cuda/cuda_check.h"
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
       ", or add its folder to LD_LIBRARY_PATH.");
}

}  // namespace

void* find_cublaslt(const char* function) {
  static void* const library = load_library();  // never closed: handles live as long as the process
  if (void* const address = dlsym(library, function)) return address;
  fail(ExitCode::kEnvironment, "cuBLASLt lacks ", function, ": ", dlerror(),
       "; install cuBLAS of CUDA ", CUBLAS_VER_MAJOR, '.', CUBLAS_VER_MINOR, " or newer.");
}

void fail_cublas(cublasStatus_t status, const char* call) {
  fail_if_damaged(call);  // the library's status does not distinguish damage from a bug
  fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ExitCode::kMemory : ExitCode::kInternal, call, ": ",
       cublasLtGetStatusString(status));
}

}  // namespace bertha
