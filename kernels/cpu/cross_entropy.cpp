#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/cpu/operations.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/ops/cross_entropy.h"

namespace bertha {
namespace {

constexpr int64_t kBlockRows = 16;

struct Counts {
  double loss_sum = 0.0;
  int64_t correct = 0;
  int64_t rows = 0;
};

float highest(const float* logits, int64_t classes) {
  float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < classes; ++i) top = logits[i] > top ? logits[i] : top;
  return top;
}

double sum_of_exponentials(const float* logits, float top, int64_t classes) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < classes; ++i) sum += static_cast<double>(exp_f32(logits[i] - top));
  return sum;
}

void add_row_to(Counts& counts, const float* logits, float top, double sum, int32_t label,
                int64_t classes) {
  // The lowest id among equals; a row of NaN does not contain `top` and is never correct.
  const int64_t argmax = std::find(logits, logits + classes, top) - logits;
  counts.loss_sum += std::log(sum) + static_cast<double>(top) - static_cast<double>(logits[label]);
  counts.correct += argmax == label ? 1 : 0;
  counts.rows += 1;
}

void write_gradient_row(float* logits, float top, double sum, int32_t label,
                        const CrossEntropy& args) {
  const int64_t columns = args.logits.extent(1);
  const float scale = args.gradient_scale.as<float>()[0];
  const float row_scale = static_cast<float>(static_cast<double>(scale) / sum);
  // p - 1 at the label, from the exponential itself: subtracting after rounding would lose digits.
  const double label_probability = static_cast<double>(exp_f32(logits[label] - top)) / sum;
#pragma omp simd
  for (int64_t i = 0; i < args.classes; ++i) logits[i] = exp_f32(logits[i] - top) * row_scale;
  logits[label] = static_cast<float>((label_probability - 1.0) * static_cast<double>(scale));
  std::fill(logits + args.classes, logits + columns, 0.0f);
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const CrossEntropy& args) {
  require_f32("cross_entropy", "logits", args.logits);
  const int64_t rows = args.logits.extent(0);
  const int64_t columns = args.logits.extent(1);
  float* logits = args.logits.as<float>();
  const int32_t* labels = args.labels.as<int32_t>();
  std::vector<Counts> blocks(static_cast<size_t>((rows + kBlockRows - 1) / kBlockRows));
  pool.for_range(rows, kBlockRows, [&](int64_t begin, int64_t end) {
    Counts& counts = blocks[static_cast<size_t>(begin / kBlockRows)];
    for (int64_t row = begin; row < end; ++row) {
      float* values = logits + row * columns;
      const int32_t label = labels[row];
      BERTHA_CHECK(label >= -1 && label < args.classes, "labels[", row, "] = ", label,
                   ", want -1 or a class below ", args.classes);
      if (label < 0) {
        if (args.write_gradient) std::fill_n(values, columns, 0.0f);
        continue;
      }
      const float top = highest(values, args.classes);
      const double sum = sum_of_exponentials(values, top, args.classes);
      add_row_to(counts, values, top, sum, label, args.classes);
      if (args.write_gradient) write_gradient_row(values, top, sum, label, args);
    }
  });
  for (const Counts& counts : blocks) {
    args.loss_sum.as<double>()[0] += counts.loss_sum;
    args.correct.as<int64_t>()[0] += counts.correct;
    args.rows_counted.as<int64_t>()[0] += counts.rows;
  }
}

}  // namespace bertha
