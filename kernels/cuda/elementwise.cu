// Cast, fill and the gradient scale of a loss mean: one pass over memory each.

#include <type_traits>

#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/operations.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/lamb.h"

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

unsigned grid_for(const CudaContext& context, int64_t items) {
  return blocks_for(items, kThreads, static_cast<int64_t>(context.sm_count) * kBlocksPerSm);
}

/// One rounding, also from f64.
template <class To, class From>
__device__ __forceinline__ To converted(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (!std::is_same_v<From, double>) {
    const float wide = to_float(value);
    if constexpr (std::is_same_v<To, double>) {
      return static_cast<double>(wide);
    } else {
      return from_float<To>(wide);
    }
  } else if constexpr (std::is_same_v<To, __half>) {
    return __double2half(value);
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __double2bfloat16(value);
  } else {
    return static_cast<float>(value);
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
                                      double numerator, float* target) {
  const double rows = denominator[0] > 1 ? static_cast<double>(denominator[0]) : 1.0;
  const double loss_scale = state == nullptr ? 1.0 : static_cast<double>(state->loss_scale);
  target[0] = static_cast<float>(numerator / rows * loss_scale);
}

/// Vecs that can be moved whole; 0 where a pointer is not aligned to 16 bytes.
int64_t whole_vecs(const void* a, const void* b, int64_t count, int64_t vec) {
  const auto bits = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b);
  return bits % 16 == 0 ? count / vec : 0;
}

template <class T>
void fill(CudaContext& context, const View& values, T value) {
  const int64_t count = values.elements();
  const int64_t vecs = whole_vecs(values.data, values.data, count, kVec16<T>);
  fill_kernel<T><<<grid_for(context, vecs > 0 ? vecs : count), kThreads, 0, context.stream>>>(
      static_cast<T*>(values.data), value, vecs, count);
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const Cast& args) {
  const int64_t count = args.from.elements();
  if (count == 0) return;
  dispatch_floating(args.from.dtype, [&](auto from_tag) {
    dispatch_floating(args.to.dtype, [&](auto to_tag) {
      using From = typename decltype(from_tag)::Type;
      using To = typename decltype(to_tag)::Type;
      constexpr int N = sizeof(From) > sizeof(To) ? kVec16<To> : kVec16<From>;
      const int64_t vecs = whole_vecs(args.from.data, args.to.data, count, N);
      cast_kernel<To, From, N>
          <<<grid_for(context, vecs > 0 ? vecs : count), kThreads, 0, context.stream>>>(
              elements<From>(args.from), elements<To>(args.to), vecs, count);
    });
  });
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

template <>
void run_cuda(CudaContext& context, const Fill& args) {
  if (args.values.elements() == 0) return;
  switch (args.values.dtype) {
    case DType::kF64:
      fill(context, args.values, args.value);
      break;
    case DType::kF32:
      fill(context, args.values, static_cast<float>(args.value));
      break;
    case DType::kF16:
      fill(context, args.values, __double2half(args.value));
      break;
    case DType::kBF16:
      fill(context, args.values, __double2bfloat16(args.value));
      break;
    case DType::kI64:
      fill(context, args.values, static_cast<int64_t>(args.value));
      break;
    case DType::kI32:
      fill(context, args.values, static_cast<int32_t>(args.value));
      break;
    default:
      fail(ExitCode::kInternal, "fill of ", name(args.values.dtype));
  }
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

template <>
void run_cuda(CudaContext& context, const GradientScale& args) {
  gradient_scale_kernel<<<1, 1, 0, context.stream>>>(args.denominator.as<int64_t>(),
                                                     static_cast<const LambState*>(args.state.data),
                                                     args.numerator, args.target.as<float>());
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
