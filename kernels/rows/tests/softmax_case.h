#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/tests/host_tensor.h"
#include "kernels/base/tests/naive_dropout.h"
#include "kernels/rows/ops/softmax.h"

namespace bertha {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// Ragged widths on both sides of every boundary between kernels.
inline constexpr int64_t kSoftmaxWidths[] = {1,   2,   31,   32,   33,   100,  256,  257,
                                             513, 776, 1000, 1024, 1025, 2056, 5000, 30522};

/// What a softmax is made of, in f64: rows of `columns`.
struct NaiveSoftmax {
  std::vector<double> z;  // minus infinity where masked
  int64_t columns = 0;
  bool is_log = false;

  /// The f64 definition; a row without anything above minus infinity gives 0 or minus infinity.
  std::vector<double> forward() const {
    std::vector<double> y(z.size());
    const size_t width = static_cast<size_t>(columns);
    for (size_t at = 0; at < z.size(); at += width) {
      double top = -kInf;
      for (size_t i = at; i < at + width; ++i) top = std::max(top, z[i]);
      long double sum = 0.0L;
      for (size_t i = at; i < at + width && top > -kInf; ++i) sum += std::exp(z[i] - top);
      for (size_t i = at; i < at + width; ++i) {
        if (top == -kInf) {
          y[i] = is_log ? -kInf : 0.0;
        } else {
          y[i] = is_log ? z[i] - top - std::log(static_cast<double>(sum))
                        : std::exp(z[i] - top) / static_cast<double>(sum);
        }
      }
    }
    return y;
  }

  /// The gradient by z from g, with y of forward.
  std::vector<double> backward(const std::vector<double>& y, const std::vector<double>& g) const {
    std::vector<double> dz(y.size());
    const size_t width = static_cast<size_t>(columns);
    for (size_t at = 0; at < y.size(); at += width) {
      long double sum = 0.0L;
      for (size_t i = at; i < at + width; ++i) {
        if (!is_log) sum += y[i] * g[i];
        if (is_log && y[i] > -kInf) sum += g[i];
      }
      const double total = static_cast<double>(sum);
      for (size_t i = at; i < at + width; ++i) {
        dz[i] =
            is_log ? (y[i] > -kInf ? g[i] - std::exp(y[i]) * total : 0.0) : y[i] * (g[i] - total);
      }
    }
    return dz;
  }
};

/// The numbers of elements (r, c) that the contract draws by.
inline int64_t softmax_drawn_element(int64_t row, int64_t column, int64_t columns) {
  return row * softmax_mask_columns(columns) + column;
}

/// Element (row, column) of a saved mask.
inline bool softmax_is_kept(const std::vector<uint8_t>& mask, int64_t row, int64_t column,
                            int64_t columns) {
  const int64_t bit = softmax_drawn_element(row, column, columns);
  return ((mask[static_cast<size_t>(bit / 8)] >> (bit % 8)) & 1u) != 0;
}

}  // namespace bertha
