// Stand-alone LayerNorm forward, with or without a residual: the plain instances of
// layer_norm_functors.cuh, which chooses the kernels.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): 2 U.

#include "kernels/base/cuda/operations.h"
#include "kernels/rows/cuda/norm_softmax/layer_norm_functors.cuh"
#include "kernels/rows/ops/layer_norm.h"

namespace bertha {

namespace {

template <class T, class Parameter>
void run_forward(CudaContext& context, const LayerNormFwd& args) {
  const PlainNormForward<T, Parameter> norm{
      .x = {elements<T>(args.x)},
      .residual = optional_elements<T>(args.residual),
      .gamma = optional_elements<Parameter>(args.gamma),
      .beta = optional_elements<Parameter>(args.beta),
      .sum = args.residual.has_data() ? elements<T>(args.sum) : nullptr,
      .y = {elements<T>(args.y)},
      .mean = optional_elements<Compute<T>>(args.mean),
      .rstd = optional_elements<Compute<T>>(args.rstd),
      .epsilon = static_cast<Compute<T>>(args.epsilon)};
  layer_norm_rows(context, norm, args.x.extent(0), args.x.extent(1));
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const LayerNormFwd& args) {
  dispatch_floating(args.x.dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (sizeof(T) == 2) {
      if (parameter_dtype(args) != args.x.dtype) return run_forward<T, float>(context, args);
    }
    run_forward<T, T>(context, args);
  });
}

}  // namespace bertha
