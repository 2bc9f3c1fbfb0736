#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "kernels/ops/quantize.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// The four GEMMs with weights of an encoder layer, and the decoder of masked tokens, which is the
/// first GEMM of an Fp8Layer of its own.
enum class EncoderGemm : uint8_t { kQkv, kProjection, kFfIn, kFfOut, kDecoder = 0 };
inline constexpr size_t kEncoderGemms = 4;

/// Precision of GEMMs in a forward or backward pass.
enum class GemmMode : uint8_t {
  kIo,       // multiply io
  kRecord,   // multiply io, and record the amax of every matrix that fp8 would round
  kFp8,      // multiply fp8, and record
  kFp8Eval,  // multiply fp8 and record nothing
};
constexpr bool reads_fp8(GemmMode mode) {
  return mode == GemmMode::kFp8 || mode == GemmMode::kFp8Eval;
}

/// Scales of X matrices.
struct Fp8Scales {
  View scale;          // f32 [X]
  View inverse_scale;  // f32 [X, 4]
  View amax;           // f32 [X]  since the last update

  Fp8Scales rows(int64_t begin, int64_t count) const {
    return {.scale = scale.rows(begin, count),
            .inverse_scale = inverse_scale.rows(begin, count),
            .amax = amax.rows(begin, count)};
  }
};

/// The fp8 copies of a weight.
struct Fp8Weight {
  View q;           // e4m3 [N, K]
  View transposed;  // e4m3 [K, N]
};

/// Operands and results of a layer's fp8 GEMMs in addition to the tensors in io. Arrays are indexed
/// by EncoderGemm; K and N are the inputs and outputs of each GEMM.
struct Fp8Layer {
  std::array<Fp8Weight, kEncoderGemms> weights;
  std::array<View, kEncoderGemms> inputs_transposed;  // e4m3 [K, T], kept for weight gradients
  Fp8Scales input_scales;                             // [4]
  Fp8Scales gradient_scales;                          // [4]
  Fp8Scales weight_scales;                            // [4]
  // Scratch shared by the layers. The feed-forward block's inner matrix is written while another is
  // read.
  View rows;                 // u8  [bytes]  inputs and gradients of GEMMs not in inner_rows
  View inner_rows;           // u8  [bytes]  input of kFfOut, and gradient of the output of kFfIn
  View gradient_transposed;  // u8  [bytes]
  View unused_amax;          // f32 [1]  written in evaluations, never read
  View unused_count;         // i64 [1]  the same, also for weights
  View saturated;            // i64 [1]  inputs and gradients beyond the largest number
  View live_tokens;          // i32 [1]  rows that are not padding
};

/// The GEMMs of one layer in one pass: layer.cpp determines the operands, this class the precision.
/// Inputs and weights are e4m3, gradients e5m2.
class EncoderGemms {
 public:
  /// `fp8` is read in modes other than kIo.
  EncoderGemms(Ops& ops, GemmMode mode, const Fp8Layer* fp8) : ops_(ops), mode_(mode), fp8_(fp8) {}

  /// Where the operation that computes the input of a GEMM may store it rounded; without data if
  /// the input is read in io.
  Fp8Result input_result(EncoderGemm gemm) const;
  /// `rounded`: args.x in fp8, if it exists.
  void forward(EncoderGemm gemm, const LinearFwd& args, const Fp8Result& rounded = {}) const;
  /// Where the operation that computes the gradient of a GEMM's output may store it rounded;
  /// without data if the gradient is read in io.
  Fp8Result gradient_result(EncoderGemm gemm) const;
  /// Both gradients of one GEMM, which share dy, and the bias gradient if it is requested and dy is
  /// not rounded yet. `rounded`: dy in fp8, if it exists.
  void backward(EncoderGemm gemm, const LinearBwdWeight& weight, const LinearBwdData& data,
                const Fp8Result& rounded = {}) const;

  /// kFfIn with its GELU, then kFfOut. In fp8 the first also rounds the input of the second.
  /// `rounded`: in.x, as above. `before_gelu`: memory like in.y, for fp8.
  void feed_forward(const LinearFwd& in, const LinearFwd& out, const Fp8Result& rounded,
                    const View& before_gelu) const;
  /// The gradients of both, with the gradient of the GELU. `out` comes first; `rounded`: its dy, as
  /// above.
  void feed_forward_backward(const LinearBwdWeight& out_weight, const LinearBwdData& out_data,
                             const LinearBwdWeight& in_weight, const LinearBwdData& in_data,
                             const Fp8Result& rounded) const;

 private:
  /// The operations of one GEMM in forward and in backward, in order.
  struct Forward {
    std::optional<Quantize> x;
    LinearFwd y;
  };
  struct Backward {
    std::optional<Quantize> dy;
    LinearBwdWeight dweight;
    LinearBwdData dx;
  };
  Forward forward_of(EncoderGemm gemm, const LinearFwd& args, Quantize x) const;
  Backward backward_of(EncoderGemm gemm, const LinearBwdWeight& weight, const LinearBwdData& data,
                       Quantize dy) const;
  void run(const std::optional<Quantize>& quantize) const;
  View rows_of_input(EncoderGemm gemm) const;
  View rows_of_gradient(EncoderGemm gemm) const;
  void record_weight(EncoderGemm gemm, const View& weight) const;
  /// Records the maximum of `from`; the caller adds outputs.
  Quantize record(Quantize from, const Fp8Scales& scales) const;

  Ops& ops_;
  GemmMode mode_;
  const Fp8Layer* fp8_;
};

/// Adds to `all` the operations that copy the weights of a layer, or of the decoder, to fp8 and
/// record their maxima, for the scales of the next copies.
void add_weight_copies(const Fp8Layer& fp8, std::span<const View> weights,
                       std::vector<Quantize>& all);

}  // namespace bertha
