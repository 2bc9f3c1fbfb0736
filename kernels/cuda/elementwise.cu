// Cast, fill and the gradient scale of a loss mean: one pass over memory each.

#include <type_traits>

#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/scale_rules.h"

namespace bertha {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 16;  // 2,048 resident threads, twice over

__device__ __forceinline__ int64_t first_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t index_stride() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

/// One rounding.
template <class To>
__host__ __device__ __forceinline__ To rounded(double value) {
  if constexpr (std::is_same_v<To, __half>) {
    return __double2half(value);
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __double2bfloat16(value);
  } else {
    return static_cast<To>(value);
  }
}
template <class To, class From>
__device__ __forceinline__ To converted(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<From, double>) {
    return rounded<To>(value);
  } else if constexpr (std::is_same_v<To, double>) {
    return static_cast<double>(to_float(value));
  } else {
    return from_float<To>(to_float(value));
  }
}

template <class To, class From, int N>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(const From* from, To* to, int64_t vecs, int64_t count) {
  for (int64_t i = first_index(); i < vecs; i += index_stride()) {
    const Vec<From, N> in = reinterpret_cast<const Vec<From, N>*>(from)[i];
    Vec<To, N> out;
#pragma unroll
    for (int e = 0; e < N; ++e) out.elem[e] = converted<To>(in.elem[e]);
    reinterpret_cast<Vec<To, N>*>(to)[i] = out;
  }
  for (int64_t i = vecs * N + first_index(); i < count; i += index_stride()) {
    to[i] = converted<To>(from[i]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(T* values, T value, int64_t vecs, int64_t count) {
  constexpr int N = kVec16<T>;
  Vec<T, N> vec;
#pragma unroll
  for (int e = 0; e < N; ++e) vec.elem[e] = value;
  for (int64_t i = first_index(); i < vecs; i += index_stride()) {
    reinterpret_cast<Vec<T, N>*>(values)[i] = vec;
  }
  for (int64_t i = vecs * N + first_index(); i < count; i += index_stride()) values[i] = value;
}

__global__ void gradient_scale_kernel(const int64_t* denominator, const LambState* state,
                                      double numerator, float* target, float* fp8_scale,
                                      float* fp8_inverse_scale) {
  const double rows = denominator[0] > 1 ? static_cast<double>(denominator[0]) : 1.0;
  const double loss_scale = state == nullptr ? 1.0 : static_cast<double>(state->loss_scale);
  target[0] = static_cast<float>(numerator / rows * loss_scale);
  if (fp8_scale == nullptr) return;
  fp8_scale[0] = softmax_gradient_scale(target[0]);
  fp8_inverse_scale[0] = 1.0f / fp8_scale[0];
}

template <class T>
void fill(CudaContext& context, const Fill& args) {
  T* values = elements<T>(args.values);
  const int64_t count = args.values.elements();
  const int64_t vecs = is_aligned({values}) ? count / kVec16<T> : 0;
  launch_kernel(context.stream, fill_kernel<T>,
                {blocks_on(context, vecs > 0 ? vecs : count, kThreads, kBlocksPerSm), kThreads},
                values, rounded<T>(args.value), vecs, count);
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const Cast& args) {
  const int64_t count = args.from.elements();
  if (count == 0) return;
  dispatch_floating(args.from.dtype, [&]<class From>(TypeTag<From>) {
    dispatch_floating(args.to.dtype, [&]<class To>(TypeTag<To>) {
      constexpr int N = sizeof(From) > sizeof(To) ? kVec16<To> : kVec16<From>;
      const int64_t vecs = is_aligned({args.from.data, args.to.data}) ? count / N : 0;
      launch_kernel(context.stream, cast_kernel<To, From, N>,
                    {blocks_on(context, vecs > 0 ? vecs : count, kThreads, kBlocksPerSm), kThreads},
                    elements<From>(args.from), elements<To>(args.to), vecs, count);
    });
  });
}

template <>
void run_cuda(CudaContext& context, const Fill& args) {
  if (args.values.elements() == 0) return;
  if (args.values.dtype == DType::kI64) return fill<int64_t>(context, args);
  if (args.values.dtype == DType::kI32) return fill<int32_t>(context, args);
  dispatch_floating(args.values.dtype, [&]<class T>(TypeTag<T>) { fill<T>(context, args); });
}

template <>
void run_cuda(CudaContext& context, const GradientScale& args) {
  launch_kernel(context.stream, gradient_scale_kernel, {1, 1}, args.denominator.as<int64_t>(),
                static_cast<const LambState*>(args.state.data), args.numerator,
                args.target.as<float>(), optional_elements<float>(args.fp8_scale),
                optional_elements<float>(args.fp8_inverse_scale));
}

}  // namespace bertha
