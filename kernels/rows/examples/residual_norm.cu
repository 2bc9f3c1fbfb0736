// LayerNorm that reads bf16 x and a bf16 residual, adds them in f32 and writes f16, with f32
// parameters: a mixed-precision block boundary without a pass of its own for the sum or the
// conversion. kernels/rows/functors.md walks through this file.

#include "kernels/rows/cuda/norm_softmax/layer_norm_functors.cuh"
#include "kernels/rows/examples/examples.h"

namespace examples {
namespace {

using bertha::RowPlace;
using bertha::Vec;
using BFloat = __nv_bfloat16;
using Half = __half;

/// x + residual, which is nowhere rounded.
struct SumLoad {
  using Element = BFloat;
  const BFloat* matrix;  // x
  const BFloat* residual;

  int most_elements() const { return bertha::vec_elements(residual); }
  template <int N>
  __device__ void values(const RowPlace& place, const Vec<BFloat, N>& raw, float (&v)[N]) const {
    bertha::to_compute(raw, v);
    float added[N];
    bertha::load_compute(residual + place.dense, added);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] += added[i];
  }
};

SumLoad sum_load(const ResidualNorm& args) {
  return {bertha::elements<BFloat>(args.x), bertha::elements<BFloat>(args.residual)};
}

}  // namespace

void residual_norm(bertha::CudaContext& context, const ResidualNorm& args) {
  const bertha::NormForward<SumLoad, bertha::MatrixStore<Half>, float> norm{
      .x = sum_load(args),
      .residual = nullptr,  // the Load adds it
      .gamma = bertha::elements<float>(args.gamma),
      .beta = bertha::elements<float>(args.beta),
      .sum = nullptr,
      .y = {bertha::elements<Half>(args.y)},
      .mean = bertha::elements<float>(args.mean),
      .rstd = bertha::elements<float>(args.rstd),
      .epsilon = args.epsilon};
  bertha::layer_norm_rows(context, norm, args.x.extent(0), args.x.extent(1));
}

void residual_norm_gradient(bertha::CudaContext& context, const ResidualNorm& args,
                            const bertha::View& dy, const ResidualNormGradients& gradients) {
  const bertha::NormGradient<bertha::MatrixLoad<Half>, SumLoad, bertha::MatrixStore<BFloat>, float>
      norm{.dy = {bertha::elements<Half>(dy)},
           .x = sum_load(args),
           .gamma = bertha::elements<float>(args.gamma),
           .mean = bertha::elements<float>(args.mean),
           .rstd = bertha::elements<float>(args.rstd),
           .dx = {bertha::elements<BFloat>(gradients.dx)},
           .partial = nullptr};
  bertha::layer_norm_gradient_rows(
      context, norm,
      bertha::NormParameterGradients<float>{.dgamma = bertha::elements<float>(gradients.dgamma),
                                            .dbeta = bertha::elements<float>(gradients.dbeta)},
      args.x.extent(0), args.x.extent(1));
}

}  // namespace examples
