#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/cpu/dropout.h"
#include "kernels/base/cpu/element_types.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/rows/ops/row_broadcast.h"
#include "kernels/rows/ops/softmax.h"

namespace bertha {
namespace {

constexpr int64_t kBlockRows = 16;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Doubles = std::vector<double>;

/// A row of z: scaled, biased and masked.
template <class T>
class RowSource {
 public:
  explicit RowSource(const SoftmaxFwd& args)
      : x_(args.x.as<T>()),
        bias_(args.bias.has_data() ? args.bias.as<T>() : nullptr),
        mask_(args.mask.has_data() ? args.mask.as<uint8_t>() : nullptr),
        scale_(args.scale),
        bias_rows_(args.bias, args.x),
        mask_rows_(args.mask, args.x) {}

  void read(int64_t row, Doubles& z) const {
    const int64_t columns = std::ssize(z);
    const int64_t bias_at = bias_rows_.row_offset(row);
    const int64_t mask_at = mask_rows_.row_offset(row);
    for (int64_t i = 0; i < columns; ++i) {
      double value = scale_ * to_double(x_[row * columns + i]);
      if (bias_ != nullptr) value += to_double(bias_[bias_at + i * bias_rows_.column_stride]);
      const bool masked = mask_ != nullptr && mask_[mask_at + i * mask_rows_.column_stride] == 0;
      z[static_cast<size_t>(i)] = masked ? -kInfinity : value;
    }
  }

 private:
  const T* x_;
  const T* bias_;
  const uint8_t* mask_;
  double scale_;
  RowBroadcast bias_rows_;
  RowBroadcast mask_rows_;
};

/// Replaces z by its softmax or log softmax. NaN never wins a comparison, but appears in the sum.
void softmax_row(SoftmaxKind kind, Doubles& z) {
  double top = -kInfinity;
  for (const double value : z) top = value > top ? value : top;
  const double shift = top == -kInfinity ? 0.0 : top;
  double sum = 0.0;
  for (const double value : z) sum += std::exp(value - shift);
  const bool empty = sum == 0.0;  // nothing above minus infinity
  if (kind == SoftmaxKind::kLogSoftmax) {
    const double log_sum = empty ? 0.0 : std::log(sum);
    for (double& value : z) value = value - shift - log_sum;
  } else {
    const double factor = empty ? 0.0 : 1.0 / sum;
    for (double& value : z) value = std::exp(value - shift) * factor;
  }
}

template <class T>
void run_forward(WorkerPool& pool, const SoftmaxFwd& args) {
  const int64_t columns = args.x.extent(args.x.rank - 1);
  const int64_t wide_columns = softmax_mask_columns(columns);
  const RowSource<T> source(args);
  const DropoutMask decisions(args.dropout);
  T* y = args.y.as<T>();
  T* dropped = decisions.active() ? args.dropped.as<T>() : nullptr;
  pool.for_range(args.x.elements() / columns, kBlockRows, [&](int64_t begin, int64_t end) {
    Doubles values(static_cast<size_t>(columns));
    std::vector<float> factors(static_cast<size_t>(wide_columns));
    for (int64_t row = begin; row < end; ++row) {
      source.read(row, values);
      softmax_row(args.kind, values);
      for (int64_t i = 0; i < columns; ++i) {
        y[row * columns + i] = from_double<T>(values[static_cast<size_t>(i)]);
      }
      if (!decisions.active()) continue;
      uint8_t* bits = args.kept_mask.as<uint8_t>() + row * (wide_columns / 8);
      decisions.draw(row * wide_columns, wide_columns, bits);
      decisions.write_factors(bits, wide_columns, factors.data());
      for (int64_t i = 0; i < columns; ++i) {
        const auto factor = static_cast<double>(factors[static_cast<size_t>(i)]);
        // Zero where dropped, NaN included.
        dropped[row * columns + i] =
            factor == 0.0 ? T{} : from_double<T>(values[static_cast<size_t>(i)] * factor);
      }
    }
  });
}

/// The gradient of one row from its y and g: g becomes it.
void softmax_gradient_row(SoftmaxKind kind, double scale, const Doubles& y, Doubles& g) {
  const bool is_log = kind == SoftmaxKind::kLogSoftmax;
  double sum = 0.0;
  for (size_t i = 0; i < y.size(); ++i) {
    if (is_log && y[i] == -kInfinity) continue;
    sum += is_log ? g[i] : y[i] * g[i];
  }
  for (size_t i = 0; i < y.size(); ++i) {
    if (is_log) {
      g[i] = y[i] == -kInfinity ? 0.0 : scale * (g[i] - std::exp(y[i]) * sum);
    } else {
      g[i] = scale * y[i] * (g[i] - sum);
    }
  }
}

template <class T>
void run_backward(WorkerPool& pool, const SoftmaxBwd& args) {
  const int64_t columns = args.dy.extent(args.dy.rank - 1);
  const int64_t wide_columns = softmax_mask_columns(columns);
  const DropoutMask decisions(args.dropout);
  const T* dy = args.dy.as<T>();
  const T* y = args.y.as<T>();
  T* dx = args.dx.as<T>();
  pool.for_range(args.dy.elements() / columns, kBlockRows, [&](int64_t begin, int64_t end) {
    Doubles row_y(static_cast<size_t>(columns));
    Doubles g(static_cast<size_t>(columns));
    std::vector<float> factors(static_cast<size_t>(wide_columns), 1.0f);
    for (int64_t row = begin; row < end; ++row) {
      if (decisions.active()) {
        const uint8_t* bits = args.kept_mask.as<uint8_t>() + row * (wide_columns / 8);
        decisions.write_factors(bits, wide_columns, factors.data());
      }
      for (int64_t i = 0; i < columns; ++i) {
        const size_t column = static_cast<size_t>(i);
        row_y[column] = to_double(y[row * columns + i]);
        const float factor = factors[column];
        g[column] =
            factor == 0.0f ? 0.0 : to_double(dy[row * columns + i]) * static_cast<double>(factor);
      }
      softmax_gradient_row(args.kind, args.scale, row_y, g);
      for (int64_t i = 0; i < columns; ++i) {
        dx[row * columns + i] = from_double<T>(g[static_cast<size_t>(i)]);
      }
    }
  });
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const SoftmaxFwd& args) {
  with_floating_type(args.x.dtype, [&](auto tag) { run_forward<decltype(tag)>(pool, args); });
}

template <>
void run_cpu(WorkerPool& pool, const SoftmaxBwd& args) {
  with_floating_type(args.dy.dtype, [&](auto tag) { run_backward<decltype(tag)>(pool, args); });
}

}  // namespace bertha
