#pragma once

#include "kernels/base/cuda/cuda_context.h"
#include "kernels/ops/linear_quantize.h"

namespace bertha {

// Work that no GEMM epilogue does, as passes over memory. Views are io unless stated; rows > 0.

/// args.y = args.activation(z + bias) over [T, N], and args.derivative if it has data; bias may
/// have no data; y may be z. If y is not z, the bias is also added to z, the pre-activation.
void add_bias_and_activate(CudaContext& context, const View& z, const View& bias,
                           const LinearFwd& args);

/// dx = dy * activation'(saved); dx may be dy. kNone: `saved` is the derivative in bytes, u8.
void multiply_by_derivative(CudaContext& context, const View& dy, const View& saved, const View& dx,
                            Activation activation);

/// target[n] (+)= sum over t of values[t, n], summed in f32 in a fixed order.
void sum_columns(CudaContext& context, const View& values, Accumulate accumulate,
                 const View& target);

/// target[n] (+)= sum over b of partial[b, n], f32 [blocks, N], in a fixed order.
void add_up_columns(const CudaContext& context, const float* partial, int64_t blocks,
                    Accumulate accumulate, const View& target);

// GEMMs with their epilogues in own kernels, for the calls that gelu_choice.h selects.

/// gemm_bias_gelu.cu. args.derivative has data.
void run_gemm_bias_gelu(CudaContext& context, const LinearFwd& args);
/// gemm_dgelu_dbias.cu. args.derivative has data.
void run_gemm_dgelu_dbias(CudaContext& context, const LinearBwdData& args);
/// gemm_gelu_fp8.cu.
void run_gemm_gelu_fp8(CudaContext& context, const LinearFwdQuantize& args);
void run_gemm_gelu_fp8(CudaContext& context, const LinearBwdDataQuantize& args);

}  // namespace bertha
