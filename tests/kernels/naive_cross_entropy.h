#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/base/tests/host_tensor.h"

namespace bertha {

/// Losses, counts and the gradient of rows of logits by their definition, in f64.
struct NaiveCrossEntropy {
  NaiveCrossEntropy(const HostTensor<float>& logits, const HostTensor<int32_t>& labels,
                    int64_t classes, double gradient_scale)
      : gradient(logits.values.size(), 0.0), magnitude(gradient) {
    const int64_t columns = logits.extents[1];
    for (int64_t row = 0; row < logits.extents[0]; ++row) {
      const int32_t label = labels[row];
      if (label < 0) continue;
      const float* x = logits.values.data() + row * columns;
      double sum = 0.0;
      int64_t argmax = 0;
      for (int64_t i = 0; i < classes; ++i) {
        sum += std::exp(static_cast<double>(x[i]));
        if (x[i] > x[argmax]) argmax = i;
      }
      loss += std::log(sum) - static_cast<double>(x[label]);
      correct += argmax == label ? 1 : 0;
      rows += 1;
      for (int64_t i = 0; i < classes; ++i) {
        const double p = std::exp(static_cast<double>(x[i])) / sum;
        const double hit = i == label ? 1.0 : 0.0;
        const auto at = static_cast<size_t>(row * columns + i);
        gradient[at] = (p - hit) * gradient_scale;
        magnitude[at] = (p + hit) * gradient_scale;
      }
    }
  }

  double loss = 0.0;
  int64_t correct = 0;
  int64_t rows = 0;
  std::vector<double> gradient;
  std::vector<double> magnitude;  // of what the gradient is computed from
};

}  // namespace bertha
