#pragma once

#include "kernels/base/view.h"

namespace bertha {
struct CudaContext;
}

// Operations by functors that the examples do not have: rows read from elsewhere and written
// elsewhere, other dtypes, the logarithm. R = rows, C = columns.
namespace bertha::testing {

/// What the kernels use of a functor whose most_elements() returns `width`.
int accepted_width(int width);

/// y = log softmax of row index[r] of x; of row r where the index has no data.
void gathered_log_softmax(CudaContext& context, const View& x,  // f16 [R, C]
                          const View& index,                    // i64 [R]
                          const View& y);                       // f32 [R, C]  out
/// dx = 2 * gradient of the same from row index[r] of dy.
void gathered_log_softmax_gradient(CudaContext& context, const View& dy,  // f16  [R, C]
                                   const View& index,                     // i64  [R]
                                   const View& y,                         // bf16 [R, C]
                                   const View& dx);                       // f32  [R, C]  out

/// Row index[r] of y = LayerNorm(z) * gamma + beta, with z the rows of x where the mask is not 0,
/// and 0 elsewhere; without a mask z is row index[r] of x. T is f16 or f32.
struct MovedNorm {
  View x;      // T   [R, C]
  View mask;   // u8  [C]; may be without data
  View index;  // i64 [R], a permutation
  View gamma;  // T   [C]
  View beta;   // T   [C]
  View y;      // T   [R, C]  out
  View mean;   // f32 [R]     out
  View rstd;   // f32 [R]     out
  float epsilon;
};
void moved_norm(CudaContext& context, const MovedNorm& args);

/// From 2 * dy; row index[r] of dx is the gradient by row r of z.
struct MovedNormGradients {
  View dy;      // T [R, C]
  View dx;      // T [R, C]  out
  View dgamma;  // T [C]     out
  View dbeta;   // T [C]     out
};
void moved_norm_gradient(CudaContext& context, const MovedNorm& args,
                         const MovedNormGradients& gradients);

}  // namespace bertha::testing
