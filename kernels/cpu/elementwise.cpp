#include <algorithm>
#include <cstring>

#include "kernels/base/cpu/element_types.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/scale_rules.h"

namespace bertha {
namespace {

constexpr int64_t kBlockElements = 16384;

template <class From, class To>
void cast_elements(WorkerPool& pool, const Cast& args) {
  const From* from = args.from.as<From>();
  To* to = args.to.as<To>();
  pool.for_range(args.from.elements(), kBlockElements, [&](int64_t begin, int64_t end) {
    // Every source widens to f64 exactly, so that there is one rounding.
    for (int64_t i = begin; i < end; ++i) to[i] = from_double<To>(to_double(from[i]));
  });
}

template <class T>
void fill_elements(WorkerPool& pool, const Fill& args) {
  T* values = args.values.as<T>();
  const T value = from_double<T>(args.value);
  pool.for_range(args.values.elements(), kBlockElements, [&](int64_t begin, int64_t end) {
    std::fill(values + begin, values + end, value);
  });
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const Cast& args) {
  with_floating_type(args.from.dtype, [&](auto from) {
    with_floating_type(args.to.dtype,
                       [&](auto to) { cast_elements<decltype(from), decltype(to)>(pool, args); });
  });
}

template <>
void run_cpu(WorkerPool& pool, const Fill& args) {
  if (args.values.dtype == DType::kI64) return fill_elements<int64_t>(pool, args);
  if (args.values.dtype == DType::kI32) return fill_elements<int32_t>(pool, args);
  with_floating_type(args.values.dtype,
                     [&](auto element) { fill_elements<decltype(element)>(pool, args); });
}

template <>
void run_cpu(WorkerPool&, const GradientScale& args) {
  double loss_scale = 1.0;
  if (args.state.has_data()) {
    LambState state;
    std::memcpy(&state, args.state.data, sizeof(state));
    loss_scale = static_cast<double>(state.loss_scale);
  }
  const int64_t denominator = std::max<int64_t>(1, args.denominator.as<int64_t>()[0]);
  args.target.as<float>()[0] =
      static_cast<float>(args.numerator / static_cast<double>(denominator) * loss_scale);
  if (!args.fp8_scale.has_data()) return;
  float& fp8_scale = args.fp8_scale.as<float>()[0];
  fp8_scale = softmax_gradient_scale(args.target.as<float>()[0]);
  args.fp8_inverse_scale.as<float>()[0] = 1.0f / fp8_scale;
}

}  // namespace bertha
