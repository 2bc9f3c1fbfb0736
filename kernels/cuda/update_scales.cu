// The scales of the next step's fp8 matrices from the maxima of this one's: one block, a thread per
// matrix, of which a model has a few hundred. Bound by its launch.

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/cuda/types.cuh"
#include "kernels/ops/quantize.h"
#include "kernels/ops/scale_rules.h"

namespace bertha {
namespace {

__global__ void update_scales_kernel(float* amax, float* scale, float4* inverse_scale,
                                     double* sum_of_squares, int64_t count, DType format) {
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    if (gives_scale(amax[i])) {
      const int exponent = scale_exponent(amax[i], format);
      scale[i] = ldexpf(1.0f, exponent);
      const float inverse = ldexpf(1.0f, -exponent);
      inverse_scale[i] = make_float4(inverse, inverse, inverse, inverse);
    } else if (amax[i] != 0.0f && sum_of_squares != nullptr) {
      *sum_of_squares = __longlong_as_double(0x7ff8000000000000);  // NaN, from any thread
    }
    amax[i] = 0.0f;
  }
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const UpdateScales& args) {
  const int64_t count = args.amax.extent(0);
  if (count == 0) return;
  launch_kernel(context.stream, update_scales_kernel, {1, 1024}, elements<float>(args.amax),
                elements<float>(args.scale), static_cast<float4*>(args.inverse_scale.data),
                optional_elements<double>(args.sum_of_squares), count, args.format);
}

}  // namespace bertha
