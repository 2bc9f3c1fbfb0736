#include "kernels/cpu/gemm.h"

#include <cblas.h>
#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/error.h"

namespace bertha {
namespace {

void* load_library() {
  const std::string name = "libopenblas.so.0";
  if (void* const found = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
  const std::string why = dlerror();
  // Where the build found it; the loader looks there for linked libraries only.
  const std::string in_build = concat(BERTHA_OPENBLAS_FOLDER "/", name);
  if (void* const found = dlopen(in_build.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
  if (why.find(std::strerror(ENOMEM)) != std::string::npos) {
    fail(ExitCode::kMemory, "out of memory while loading OpenBLAS: ", why,
         "; raise the limit (ulimit -v)");
  }
  fail(ExitCode::kEnvironment, why, "; install OpenBLAS, or add its folder to LD_LIBRARY_PATH.");
}

template <class Function>
Function* find_function(const char* name) {
  static void* const library = load_library();  // never closed
  if (void* const found = dlsym(library, name)) return reinterpret_cast<Function*>(found);
  fail(ExitCode::kEnvironment, "OpenBLAS lacks ", name, ": ", dlerror(),
       "; install OpenBLAS 0.3.21 or newer.");
}

/// OpenBLAS is loaded with the first operations that multiply. If it were linked, every command
/// would start one of its threads per core, each with 129 MiB of addresses.
struct OpenBlas {
  decltype(cblas_sgemm)* sgemm = find_function<decltype(cblas_sgemm)>("cblas_sgemm");
  decltype(openblas_set_num_threads)* set_num_threads =
      find_function<decltype(openblas_set_num_threads)>("openblas_set_num_threads");
  // Exported, and in none of its headers.
  void* (*take_buffer)(int purpose) = find_function<void*(int)>("blas_memory_alloc");
  void (*give_buffer)(void* buffer) = find_function<void(void*)>("blas_memory_free");
};

const OpenBlas& openblas() {
  static const OpenBlas functions;
  return functions;
}

// Rows of c per block. Each block packs b again, which costs about 1 / rows of its arithmetic.
constexpr int64_t kBlockRows = 256;

CBLAS_TRANSPOSE cblas(Transpose transpose) {
  return transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

blasint narrow(int64_t extent) { return static_cast<blasint>(extent); }

}  // namespace

void run_gemm(const GemmArgs& p) {
  if (p.m == 0 || p.n == 0) return;
  openblas().sgemm(CblasRowMajor, cblas(p.transpose_a), cblas(p.transpose_b), narrow(p.m),
                   narrow(p.n), narrow(p.k), p.scale, p.a, narrow(p.a_stride), p.b,
                   narrow(p.b_stride), p.keep, p.c, narrow(p.c_stride));
}

void run_gemm(WorkerPool& pool, const GemmArgs& gemm,
              const std::function<void(int64_t begin, int64_t end)>& finish) {
  pool.for_range(gemm.m, kBlockRows, [&](int64_t begin, int64_t end) {
    GemmArgs block = gemm;
    block.m = end - begin;
    block.a += gemm.transpose_a == Transpose::kYes ? begin : begin * gemm.a_stride;
    block.c += begin * gemm.c_stride;
    run_gemm(block);
    finish(begin, end);
  });
}

void prepare_gemms(int threads) {
  openblas().set_num_threads(1);
  // A machine with more threads allocates the others later. OpenBLAS ends the program when it has
  // more buffers than twice the processors that it was built for.
  const auto buffers = static_cast<size_t>(std::min(threads, 64));
  constexpr size_t kBufferBytes = size_t{129} << 20;  // at most, by the kind of processor
  std::vector<std::unique_ptr<void, decltype(&std::free)>> trial;
  for (size_t i = 0; i < buffers; ++i) {
    trial.emplace_back(std::malloc(kBufferBytes), &std::free);
    if (trial.back()) continue;
    fail(ExitCode::kMemory, "out of memory for the GEMMs of ", threads, " threads, ",
         kBufferBytes >> 20,
         " MiB of address space each; use fewer threads or processes, or raise "
         "the limit (ulimit -v)");
  }
  trial.clear();
  std::vector<void*> taken;
  for (size_t i = 0; i < buffers; ++i) taken.push_back(openblas().take_buffer(0));
  for (void* buffer : taken) openblas().give_buffer(buffer);  // OpenBLAS keeps them
}

}  // namespace bertha
