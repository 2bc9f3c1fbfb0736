#include "kernels/cpu/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/base/error.h"

// Exported by OpenBLAS, and in none of its headers.
extern "C" {
void* blas_memory_alloc(int purpose);
void blas_memory_free(void* buffer);
}

namespace bertha {
namespace {

// Rows of c per block. Each block packs b again, which costs about 1 / rows of its arithmetic.
constexpr int64_t kBlockRows = 256;

CBLAS_TRANSPOSE cblas(Transpose transpose) {
  return transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

blasint narrow(int64_t extent) { return static_cast<blasint>(extent); }

}  // namespace

void run_gemm(const GemmArgs& p) {
  if (p.m == 0 || p.n == 0) return;
  cblas_sgemm(CblasRowMajor, cblas(p.transpose_a), cblas(p.transpose_b), narrow(p.m), narrow(p.n),
              narrow(p.k), p.scale, p.a, narrow(p.a_stride), p.b, narrow(p.b_stride), p.keep, p.c,
              narrow(p.c_stride));
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
  openblas_set_num_threads(1);
  // A machine with more threads allocates the others later. OpenBLAS ends the program when it has
  // more buffers than twice the processors that it was built for.
  const auto buffers = static_cast<size_t>(std::min(threads, 64));
  constexpr size_t kBufferBytes = size_t{129} << 20;  // at most, by the kind of processor
  std::vector<std::unique_ptr<void, decltype(&std::free)>> trial;
  for (size_t i = 0; i < buffers; ++i) {
    trial.emplace_back(std::malloc(kBufferBytes), &std::free);
    if (trial.back()) continue;
    fail(ExitCode::kMemory, "no memory for the GEMMs of ", threads, " threads, ",
         kBufferBytes >> 20,
         " MiB of addresses each; use fewer threads or processes, or raise "
         "the limit (ulimit -v)");
  }
  trial.clear();
  std::vector<void*> taken;
  for (size_t i = 0; i < buffers; ++i) taken.push_back(blas_memory_alloc(0));
  for (void* buffer : taken) blas_memory_free(buffer);  // OpenBLAS keeps them
}

}  // namespace bertha
