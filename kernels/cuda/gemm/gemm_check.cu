// Checks tuned algorithms: a wrong one misses whole tiles or whole slices of the sum, which a
// sample of some elements per tile shows; the tests check the last digits.

#include "kernels/cuda/gemm/gemm_check.h"

#include <cuda_fp8.h>

#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/types.cuh"
#include "kernels/cuda/gemm/gelu.cuh"

namespace bertha {
namespace {

constexpr int kThreads = 256;
constexpr int kSamplesPerBlock = kThreads / kWarpThreads;
constexpr float kUnitF32 = 5.9604645e-8f;  // 2^-24, half a unit in the last place
constexpr float kSteepest = 1.13f;         // largest derivative of gelu
// A sum of products of fp8, relative to the sum of their magnitudes. Tensor cores add 32 products
// at a time and cut all of them, and the sum so far, 13 bits below the largest (DeepSeek-V3
// technical report, 2024, 3.3.2). With signs at random a sum of k products stays below some 6
// sqrt(k) of them, and k cuts add up as sqrt(k) / sqrt(3) of one: 3.5 * 2^-13 for any k, and twice
// that for the largest of many. Sums that pass into f32 on the way are closer.
constexpr float kFp8Sum = 9.765625e-4f;  // 2^-10
// The library's tanh is a machine instruction of 2^-11 relative error.
constexpr float kGeluError = 9.765625e-4f;

/// A well-mixed word of two (splitmix64).
__device__ __forceinline__ uint32_t mixed(uint64_t value, uint32_t seed) {
  uint64_t z = (value + (static_cast<uint64_t>(seed) << 32) + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
}

template <class T>
__global__ void random_kernel(T* values, int64_t count, uint32_t seed) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    values[i] =
        T(static_cast<float>(mixed(static_cast<uint64_t>(i), seed)) * 2.3283064e-10f - 0.5f);
  }
}

/// A matrix of any dtype that GEMMs take.
struct Elements {
  const void* data;
  DType dtype;

  __device__ float operator[](int64_t i) const {
    switch (dtype) {
      case DType::kE4M3:
        return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(data)[i]);
      case DType::kE5M2:
        return static_cast<float>(static_cast<const __nv_fp8_e5m2*>(data)[i]);
      case DType::kF16:
        return to_float(static_cast<const __half*>(data)[i]);
      case DType::kBF16:
        return to_float(static_cast<const __nv_bfloat16*>(data)[i]);
      default:
        return static_cast<const float*>(data)[i];
    }
  }
};

/// Element (row, column) of D [m, n] is sum over i < k of a(row, i) b(i, column), by strides.
struct Strides {
  int64_t m, n, k;
  int64_t a_row, a_inner;
  int64_t b_column, b_inner;
};

/// One warp per sample. The inverse scales may be null.
__global__ void sample_kernel(Elements a, Elements b, Elements d, Elements bias,
                              const float* a_inverse_scale, const float* b_inverse_scale, Strides s,
                              float relative_slack, float unit, GemmSample* samples) {
  const int sample = static_cast<int>(blockIdx.x) * kSamplesPerBlock +
                     static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  if (sample >= kGemmSamples) return;
  const uint64_t word = static_cast<uint64_t>(mixed(static_cast<uint64_t>(sample), 1)) << 32 |
                        mixed(static_cast<uint64_t>(sample), 2);
  const auto element = static_cast<int64_t>(word % static_cast<uint64_t>(s.m * s.n));
  const int64_t row = element % s.m;
  const int64_t column = element / s.m;
  float sum = 0.0f;
  float magnitude = 0.0f;
  for (int64_t i = lane; i < s.k; i += kWarpThreads) {
    const float term = a[row * s.a_row + i * s.a_inner] * b[column * s.b_column + i * s.b_inner];
    sum += term;
    magnitude += fabsf(term);
  }
  const float scale = a_inverse_scale == nullptr ? 1.0f : *a_inverse_scale * *b_inverse_scale;
  sum = scale * warp_sum(sum);
  magnitude = scale * warp_sum(magnitude);
  if (lane != 0) return;
  // The library rounds the GEMM before it adds to D.
  const float rounded = d.data == nullptr ? 0.0f : unit * fabsf(sum);
  for (const float added :
       {bias.data == nullptr ? 0.0f : bias[row], d.data == nullptr ? 0.0f : d[element]}) {
    sum += added;
    magnitude += fabsf(added);
  }
  samples[sample] = {
      .element = element, .want = sum, .slack = relative_slack * magnitude + rounded};
}

template <class T>
__global__ void check_kernel(const T* d, const T* aux, GemmEpilogue epilogue, float unit,
                             const GemmSample* samples, int* wrong) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= kGemmSamples) return;
  const GemmSample sample = samples[i];
  const float got = to_float(d[sample.element]);
  float want = sample.want;
  float slack = sample.slack;
  bool right = true;
  if (epilogue == GemmEpilogue::kGeluBias) {
    const float z = to_float(aux[sample.element]);
    right = fabsf(z - want) <= slack + 2 * unit * fabsf(want);
    slack = kSteepest * slack + kGeluError * fabsf(want);
    want = gelu(want);
  }
  if (epilogue == GemmEpilogue::kDgelu) {
    slack = kSteepest * slack + kGeluError * fabsf(want);
    want *= gelu_derivative(to_float(aux[sample.element]));
  }
  right = right && fabsf(got - want) <= slack + 2 * unit * fabsf(want);  // false for NaN
  if (!right) atomicAdd(wrong, 1);
}

float unit_of(DType dtype) {
  if (dtype == DType::kF16) return 4.8828125e-4f;  // 2^-11
  if (dtype == DType::kBF16) return 3.90625e-3f;   // 2^-8
  return kUnitF32;
}

}  // namespace

void fill_with_random(cudaStream_t stream, DType dtype, void* values, int64_t count,
                      uint32_t seed) {
  if (count == 0) return;
  const auto fill = [&]<class T>(TypeTag<T>) {
    launch_kernel(stream, random_kernel<T>, {blocks_for(count, kThreads, 4096), kThreads},
                  static_cast<T*>(values), count, seed);
  };
  if (dtype == DType::kE4M3) {
    fill(TypeTag<__nv_fp8_e4m3>{});
  } else if (dtype == DType::kE5M2) {
    fill(TypeTag<__nv_fp8_e5m2>{});
  } else {
    dispatch_io(dtype, fill);
  }
}

void sample_gemm(cudaStream_t stream, const GemmPlan& plan, const GemmOperands& operands,
                 GemmSample* samples) {
  const GemmKey& key = plan.key;
  const Strides s{.m = plan.m,
                  .n = plan.n,
                  .k = plan.k,
                  .a_row = plan.a_transposed ? plan.k : 1,
                  .a_inner = plan.a_transposed ? 1 : plan.m,
                  .b_column = plan.b_transposed ? 1 : plan.k,
                  .b_inner = plan.b_transposed ? plan.n : 1};
  // Two sums of k terms in different orders: each addition rounds once, independent roundings grow
  // as the root of k (Higham and Mary 2019); 6 for the largest of many elements. The factor also
  // covers the truncation of the tensor cores.
  const float relative = (is_fp8(key.a_dtype) ? kFp8Sum : 0.0f) +
                         12.0f * (sqrtf(static_cast<float>(plan.k)) + 1.0f) * kUnitF32;
  const bool adds = key.accumulate == Accumulate::kYes;
  launch_kernel(stream, sample_kernel, {kGemmSamples / kSamplesPerBlock, kThreads},
                Elements{operands.a, key.a_dtype}, Elements{operands.b, key.b_dtype},
                Elements{adds ? operands.d : nullptr, key.dtype},
                Elements{operands.bias, key.dtype},
                static_cast<const float*>(operands.a_inverse_scale),
                static_cast<const float*>(operands.b_inverse_scale), s, relative,
                unit_of(key.dtype), samples);
}

void count_wrong(cudaStream_t stream, const GemmPlan& plan, const GemmOperands& operands,
                 const GemmSample* samples, int* wrong) {
  dispatch_io(plan.key.dtype, [&]<class T>(TypeTag<T>) {
    launch_kernel(stream, check_kernel<T>, {kGemmSamples / kThreads, kThreads},
                  static_cast<const T*>(operands.d), static_cast<const T*>(operands.aux),
                  plan.key.epilogue, unit_of(plan.key.dtype), samples, wrong);
  });
}

}  // namespace bertha
