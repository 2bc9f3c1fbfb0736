// Stand-alone LayerNorm backward: the plain instances of layer_norm_functors.cuh, which chooses the
// kernels.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): 3 U.

#include "kernels/base/cuda/operations.h"
#include "kernels/rows/cuda/norm_softmax/layer_norm_functors.cuh"
#include "kernels/rows/ops/layer_norm.h"

namespace bertha {

namespace {

template <class T, class Parameter>
void run_backward(CudaContext& context, const LayerNormBwd& args) {
  const NormBackward<T, Parameter> norm{.dy = {elements<T>(args.dy)},
                                        .x = {elements<T>(args.x)},
                                        .gamma = optional_elements<Parameter>(args.gamma),
                                        .mean = elements<Compute<T>>(args.mean),
                                        .rstd = elements<Compute<T>>(args.rstd),
                                        .dx = {elements<T>(args.dx)},
                                        .partial = nullptr};
  const NormParameterGradients<Parameter> gradients{
      .dgamma = optional_elements<Parameter>(args.dgamma),
      .dbeta = optional_elements<Parameter>(args.dbeta),
      .accumulate = args.accumulate};
  layer_norm_gradient_rows(context, norm, gradients, args.dy.extent(0), args.dy.extent(1));
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const LayerNormBwd& args) {
  dispatch_floating(args.dy.dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (sizeof(T) == 2) {
      if (parameter_dtype(args) != args.dy.dtype) return run_backward<T, float>(context, args);
    }
    run_backward<T, T>(context, args);
  });
}

}  // namespace bertha
