#pragma once

#include "kernels/base/arguments.h"

namespace bertha {
struct CudaContext;
}

// Two fused operations as a user of the library writes them, by Load and Store functors. R = rows,
// C = columns; all views are in the memory of the device.
namespace examples {

/// y = softmax(scale * x) over the columns where mask is not 0; dropped = dropout(y).
///
/// Random    as SoftmaxFwd: element (r, c) is element r * 32 W + c of `dropout`.
struct MaskedSoftmax {
  bertha::View x;          // f16 [R, C]
  bertha::View mask;       // u8  [C]
  bertha::View y;          // f16 [R, C]  out
  bertha::View dropped;    // f16 [R, C]  out
  bertha::View kept_mask;  // u8  [R, 4 W]  out, W = C / 32, rounded up
  float scale;
  bertha::Dropout dropout;  // of a probability above 0
};
void masked_softmax(bertha::CudaContext& context, const MaskedSoftmax& args);

/// dx from dy, the gradient by `dropped`, both f16 [R, C].
void masked_softmax_gradient(bertha::CudaContext& context, const MaskedSoftmax& args,
                             const bertha::View& dy, const bertha::View& dx);

/// y = LayerNorm(x + residual) * gamma + beta.
struct ResidualNorm {
  bertha::View x;         // bf16 [R, C]
  bertha::View residual;  // bf16 [R, C]
  bertha::View gamma;     // f32  [C]
  bertha::View beta;      // f32  [C]
  bertha::View y;         // f16  [R, C]  out
  bertha::View mean;      // f32  [R]     out
  bertha::View rstd;      // f32  [R]     out
  float epsilon;
};
void residual_norm(bertha::CudaContext& context, const ResidualNorm& args);

struct ResidualNormGradients {
  bertha::View dx;      // bf16 [R, C]  out, of x and of the residual
  bertha::View dgamma;  // f32  [C]     out
  bertha::View dbeta;   // f32  [C]     out
};
/// From f16 dy [R, C].
void residual_norm_gradient(bertha::CudaContext& context, const ResidualNorm& args,
                            const bertha::View& dy, const ResidualNormGradients& gradients);

}  // namespace examples
