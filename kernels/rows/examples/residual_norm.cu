// LayerNorm that reads bf16 x and a bf16 residual, adds them in f32 and writes f16, with f32
// parameters: a mixed-precision block boundary without a pass of its own for the sum or the
// conversion. kernels/rows/functors.md walks through this file.

#include "kernels/rows/cuda/norm_softmax/layer_norm_functors.cuh"
#include "kernels/rows/examples/examples.h"

namespace examples {
namespace {

using namespace bertha;
using BFloat = __nv_bfloat16;
using Half = __half;

/// x + residual, which is nowhere rounded.
struct SumLoad {
  using Element = BFloat;
  const BFloat* matrix;  // x
  const BFloat* residual;

  int most_elements() const { return vec_elements(residual); }
  template <int N>
  __device__ void values(const RowPlace& place, const Vec<BFloat, N>& raw, float (&v)[N]) const {
    to_compute(raw, v);
    float added[N];
    load_compute(residual + place.dense, added);
    for (int i = 0; i < N; ++i) v[i] += added[i];
  }
};

SumLoad sum_load(const ResidualNorm& args) {
  return {elements<BFloat>(args.x), elements<BFloat>(args.residual)};
}

}  // namespace

void residual_norm(CudaContext& context, const ResidualNorm& args) {
  const NormForward<SumLoad, MatrixStore<Half>, float> norm{
      .x = sum_load(args),
      .residual = nullptr,  // the Load adds it
      .gamma = elements<float>(args.gamma),
      .beta = elements<float>(args.beta),
      .sum = nullptr,
      .y = {elements<Half>(args.y)},
      .mean = elements<float>(args.mean),
      .rstd = elements<float>(args.rstd),
      .epsilon = args.epsilon};
  layer_norm_rows(context, norm, args.x.extent(0), args.x.extent(1));
}

void residual_norm_gradient(CudaContext& context, const ResidualNorm& args, const View& dy,
                            const ResidualNormGradients& gradients) {
  const NormGradient<MatrixLoad<Half>, SumLoad, MatrixStore<BFloat>, float> norm{
      .dy = {elements<Half>(dy)},
      .x = sum_load(args),
      .gamma = elements<float>(args.gamma),
      .mean = elements<float>(args.mean),
      .rstd = elements<float>(args.rstd),
      .dx = {elements<BFloat>(gradients.dx)},
      .partial = nullptr};
  layer_norm_gradient_rows(
      context, norm,
      NormParameterGradients<float>{.dgamma = elements<float>(gradients.dgamma),
                                    .dbeta = elements<float>(gradients.dbeta)},
      args.x.extent(0), args.x.extent(1));
}

}  // namespace examples
