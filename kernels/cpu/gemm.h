#pragma once

#include <cstdint>
#include <functional>

#include "kernels/base/cpu/worker_pool.h"

namespace bertha {

enum class Transpose : uint8_t { kNo, kYes };

/// c = scale * op(a) * op(b) + keep * c, all f32 and row-major with a stride between rows.
///
/// Letters   m = rows of c, n = columns of c, k = inner extent.
struct GemmArgs {
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  float scale = 1.0f;
  const float* a = nullptr;  // f32 [m, k], or [k, m] transposed
  int64_t a_stride = 0;      // elements between rows
  const float* b = nullptr;  // f32 [k, n], or [n, k] transposed
  int64_t b_stride = 0;
  float keep = 0.0f;   // factor of the old c; 0 overwrites it, also if not finite
  float* c = nullptr;  // f32 [m, n]
  int64_t c_stride = 0;
};

/// The GEMM in the calling thread; m or n zero is a no-op, k zero leaves keep * c.
void run_gemm(const GemmArgs& gemm);

/// The GEMM with the rows of c divided into blocks of a fixed size; `finish` then gets each block's
/// rows of c while they are in cache.
///
/// Exact     the bits of c do not depend on the number of threads.
void run_gemm(WorkerPool& pool, const GemmArgs& gemm,
              const std::function<void(int64_t begin, int64_t end)>& finish);

/// Loads OpenBLAS, makes it run each GEMM in the calling thread, and allocates its buffers for
/// `threads` concurrent GEMMs now: at the first GEMMs it would retry forever if memory is short.
///
/// Errors    Error(kMemory) if they do not fit, Error(kEnvironment) if it is not found.
void prepare_gemms(int threads);

}  // namespace bertha
