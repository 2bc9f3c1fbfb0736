#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cpu/worker_pool.h"

namespace bertha {

enum class Transpose : uint8_t { kNo, kYes };

/// c = scale * op(a) * op(b) + keep * c, all f32 and row-major with a stride between rows.
///
/// Letters   m = rows of c, n = columns of c, k = inner extent.
struct Product {
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
  float keep = 0.0f;   // 0 overwrites c whatever it held
  float* c = nullptr;  // f32 [m, n]
  int64_t c_stride = 0;
};

/// The product in the calling thread; m or n zero is a no-op, k zero leaves keep * c.
void multiply(const Product& product);

/// The product with the rows of c shared out in blocks of a fixed size; `finish` then gets each
/// block's rows of c while they are in cache.
///
/// Exact     the bits of c do not depend on the number of threads.
void multiply(WorkerPool& pool, const Product& product,
              const std::function<void(int64_t begin, int64_t end)>& finish);

/// Has OpenBLAS run each product in the thread that calls it, and take the buffers of `threads`
/// products under way at once. It would take them at the first products, and where there is no
/// memory it tries again for ever.
///
/// Errors    Error(kMemory) when they do not fit.
void prepare_products(int threads);

}  // namespace bertha
