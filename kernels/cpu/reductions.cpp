#include <vector>

#include "kernels/base/cpu/operations.h"
#include "kernels/ops/reductions.h"

namespace bertha {
namespace {

constexpr int64_t kBlockElements = 1 << 16;

double sum_of_squares(const float* values, int64_t count) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const SumOfSquares& args) {
  require_f32("sum_of_squares", "values", args.values);
  const float* values = args.values.as<float>();
  const int64_t count = args.values.elements();
  std::vector<double> partials(static_cast<size_t>((count + kBlockElements - 1) / kBlockElements));
  pool.for_range(count, kBlockElements, [&](int64_t begin, int64_t end) {
    partials[static_cast<size_t>(begin / kBlockElements)] =
        sum_of_squares(values + begin, end - begin);
  });
  double& result = *args.result.as<double>();
  if (args.accumulate == Accumulate::kNo) result = 0.0;
  for (const double partial : partials) result += partial;
}

}  // namespace bertha
