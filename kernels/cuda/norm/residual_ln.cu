// Dropout + residual + LayerNorm, forward and backward.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): forward
// reads x and the residual and writes the sum, y and a bit per element, 4.06 U; backward reads dy,
// the sum and the bits and writes dresidual and dx, 4.06 U. e4m3 of y adds 0.5 U, or in place of y
// saves as much; so does e5m2 in place of dx.
//
// Forward, a one-shot grid of blocks as small as a team: 55.5 us on an H200 with dropout, where a
// plain copy of as many bytes takes 51.7. Backward, a persistent grid with batches of rows in
// flight in shared memory, and a second kernel that adds up the blocks' column sums: 59.6 us. At
// the clock of a whole step, what rounds to fp8 is also bound by integer instructions
// (kernels/measured/fp8.md). What else was tried: kernels/rows/measured/rows.md.

#include <algorithm>

#include "kernels/base/cuda/operations.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/residual_ln.h"
#include "kernels/rows/cuda/norm_softmax/layer_norm_bwd_team.cuh"

namespace bertha {
namespace {

// Forward, a block is as small as a team allows. kForFp8: the residual may be a LayerNorm that is
// computed again, and y may be stored in e4m3. Four rows then take 30 % fewer instructions a row
// than two; without it, two rows are faster.
constexpr int kForwardThreads = 64;
template <bool kForFp8>
constexpr int kForwardRows = kForFp8 ? 4 : 2;
/// Threads per SM: with 16 bits one needs 64 registers, 80 with four rows.
template <class T, bool kForFp8>
constexpr int kForwardThreadsPerSm = sizeof(T) == 4 ? 512 : (kForFp8 ? 768 : 1024);
template <class Shape, bool kForFp8>
constexpr int kForwardBlocks = std::max(kForwardThreadsPerSm<typename Shape::Element, kForFp8> /
                                            Shape::kMostThreads,
                                        1);
template <class T>
struct ForwardPointers {
  const T* x;
  const T* bias;
  const T* residual;
  const T* gamma;
  const T* beta;
  T* sum;
  T* y;  // may be null with kForFp8
  float* mean;
  float* rstd;
  uint8_t* mask;
  const int32_t* dropout_rows;  // may be null
  // Views of residual_norm, for kForFp8; may be null.
  const float* residual_mean;
  const float* residual_rstd;
  const T* residual_gamma;
  const T* residual_beta;
};

template <class T>
__device__ __forceinline__ Vec<T, kVecSize> filled_vec(float value) {
  float values[kVecSize];
#pragma unroll
  for (float& each : values) each = value;
  return to_vec<T>(values);
}

/// The LayerNorm of a thread's elements, rounded.
template <class T>
__device__ __forceinline__ Vec<T, kVecSize> normalized(const float (&x)[kVecSize],
                                                       const RowStatistics& statistics,
                                                       const Vec<T, kVecSize>& gamma,
                                                       const Vec<T, kVecSize>& beta) {
  const float shift = -statistics.mean * statistics.rstd;
  float y[kVecSize];
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) {
    y[i] = fmaf(fmaf(x[i], statistics.rstd, shift), element(gamma, i), element(beta, i));
  }
  return to_vec<T>(y);
}

/// A batch of rows per team; the grid is one-shot. y_fp8 may be empty.
template <class Shape, bool kForFp8>
__global__ void __launch_bounds__(Shape::kMostThreads, kForwardBlocks<Shape, kForFp8>)
    residual_ln_fwd_kernel(ForwardPointers<typename Shape::Element> p, int rows, int64_t columns,
                           DeviceDropout dropout, float epsilon, Fp8Sink y_fp8) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  wait_for_kernel_before();
  begin_next_kernel();
  const RowTeam<Shape> team(columns);
  const int first = team.first_row;
  if (!kForFp8 && first >= rows) return;  // all warps of a block record its extremes together
  const int left = team.rows_left(first, rows);
  const int64_t at = team.at(first);
  Vec<T, kVecSize> x[kRows] = {};
  Vec<T, kVecSize> residual[kRows] = {};
  for_rows<kRows>(left, [&](int r) {
    x[r] = load_vec(p.x + at + r * team.columns);
    residual[r] = load_vec(p.residual + at + r * team.columns);
  });
  const auto parameter = [&](const T* values) {
    return team.inside ? load_vec(values + team.thread * kVecSize) : Vec<T, kVecSize>{};
  };
  const Vec<T, kVecSize> bias = parameter(p.bias);
  RowStatistics of_residual[kRows];
  Vec<T, kVecSize> residual_gamma;
  Vec<T, kVecSize> residual_beta;
  if constexpr (kForFp8) {
    const bool is_normalized = p.residual_mean != nullptr;  // otherwise the identity
    for_rows<kRows>(left, [&](int r) {
      of_residual[r] = is_normalized
                           ? RowStatistics{p.residual_mean[first + r], p.residual_rstd[first + r]}
                           : RowStatistics{0.0f, 1.0f};
    });
    residual_gamma = is_normalized ? parameter(p.residual_gamma) : filled_vec<T>(1.0f);
    residual_beta = is_normalized ? parameter(p.residual_beta) : filled_vec<T>(-0.0f);
  }

  uint32_t kept[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) kept[r] = ~0u;
  if (dropout.active()) {
    uint32_t drawn = 0;
    draw_kept(team, 0, first, rows, dropout, dropout.random[0], dropout.random[1], p.mask, drawn,
              kept, p.dropout_rows);
  }
  float sum[kRows][kVecSize] = {};
  for_rows<kRows>(left, [&](int r) {
    if constexpr (kForFp8) {
      float values[kVecSize];
      to_floats(residual[r], values);
      residual[r] = normalized(values, of_residual[r], residual_gamma, residual_beta);
    }
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      const float input = element(x[r], i) + element(bias, i);
      const float passed = is_set(kept[r], i) ? input : 0.0f;
      sum[r][i] = fmaf(passed, dropout.keep_factor, element(residual[r], i));
    }
    const Vec<T, kVecSize> rounded = to_vec<T>(sum[r]);
    store_vec_global(p.sum + at + r * team.columns, rounded);
    to_floats(rounded, sum[r]);  // statistics of what backward will read
  });

  // The parameters are in flight during the reduction of the team.
  const Vec<T, kVecSize> gamma = parameter(p.gamma);
  const Vec<T, kVecSize> beta = parameter(p.beta);
  const bool rounds = kForFp8 && y_fp8.q != nullptr;
  Fp8Rounding<T, __NV_E4M3, true> rounding(rounds ? *y_fp8.scale : 1.0f);
  const int live = rounds ? live_rows_of(y_fp8, first, kRows) : 0;
  RowStatistics statistics[kRows];
  row_statistics(team, sum, epsilon, exchange, 0, first, rows, p.mean, p.rstd, statistics);
  for_rows<kRows>(left, [&](int r) {
    const Vec<T, kVecSize> rounded[] = {normalized(sum[r], statistics[r], gamma, beta)};
    if (!kForFp8 || p.y != nullptr) store_vec_global(p.y + at + r * team.columns, rounded[0]);
    if (rounds) {
      *reinterpret_cast<uint2*>(y_fp8.q + at + r * team.columns) = rounding.round(rounded[0]);
      rounding.record(rounded, r < live ? 1 : 0);
    }
  });
  if constexpr (kForFp8) {
    __shared__ Fp8Extremes of_warp[Shape::kMostThreads / kWarpThreads];
    if (rounds) record_block_extremes(rounding.extremes(), of_warp, y_fp8);
  }
}

/// Whether a kernel that rounds to `format` stores `result`, of a matrix of type `io`, itself.
bool rounds_as_stored(const Fp8Result& result, DType format, DType io) {
  return result.q.has_data() && result.q.dtype == format && io != DType::kF32;
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const ResidualLnFwd& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  if (rows == 0) return;
  const bool rounds = rounds_as_stored(args.y_fp8, DType::kE4M3, args.x.dtype);
  if (args.y_fp8.q.has_data()) context.require_fp8(ResidualLnFwd::kName);
  const DeviceDropout dropout = device_dropout(args.dropout);
  dispatch_io(args.x.dtype, [&]<class T>(TypeTag<T>) {
    const ForwardPointers<T> pointers{
        .x = aligned_elements<T>(args.x),
        .bias = aligned_elements<T>(args.bias),
        .residual = aligned_elements<T>(args.residual),
        .gamma = aligned_elements<T>(args.gamma),
        .beta = aligned_elements<T>(args.beta),
        .sum = aligned_elements<T>(args.sum),
        .y = rounds && !args.is_y_needed ? nullptr : aligned_elements<T>(args.y),
        .mean = elements<float>(args.mean),
        .rstd = elements<float>(args.rstd),
        .mask = dropout.active() ? aligned_elements<uint8_t>(args.mask) : nullptr,
        .dropout_rows = optional_elements<int32_t>(args.dropout_rows),
        .residual_mean = optional_elements<float>(args.residual_norm.mean),
        .residual_rstd = optional_elements<float>(args.residual_norm.rstd),
        .residual_gamma = optional_elements<T>(args.residual_norm.gamma),
        .residual_beta = optional_elements<T>(args.residual_norm.beta)};
    const auto launch = [&]<bool kForFp8>(std::bool_constant<kForFp8>) {
      constexpr int kRows = kForwardRows<kForFp8>;
      dispatch_team<T, kForwardThreads, kRows>(rows, columns, [&]<class Shape>(Shape) {
        const unsigned blocks = blocks_for(rows, Shape::kTeams * Shape::kRows);
        launch_dependent(context, residual_ln_fwd_kernel<Shape, kForFp8>,
                         {blocks, team_threads<Shape>(columns)}, pointers, static_cast<int>(rows),
                         columns, dropout, args.epsilon, rounds ? sink_of(args.y_fp8) : Fp8Sink());
      });
    };
    if (rounds || pointers.residual_mean != nullptr) {
      launch(std::true_type());
    } else {
      launch(std::false_type());
    }
  });
  if (args.y_fp8.q.has_data() && !rounds) run_cuda(context, quantize_to(args.y_fp8, args.y));
}

template <>
void run_cuda(CudaContext& context, const ResidualLnBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const DeviceDropout dropout = device_dropout(args.dropout);
  const bool add = args.accumulate == Accumulate::kYes;
  const bool rounds = rounds_as_stored(args.dx_fp8, DType::kE5M2, args.dy.dtype);
  if (args.dx_fp8.q.has_data()) context.require_fp8(ResidualLnBwd::kName);
  dispatch_io(args.dy.dtype, [&]<class T>(TypeTag<T>) {
    float* partial = nullptr;
    unsigned blocks = 0;
    const auto take = [&](unsigned count) {
      blocks = count;
      return partial =
                 static_cast<float*>(context.scratch.take(column_sum_bytes(count, columns, 3)));
    };
    const NormBackward<T> norm{.dy = {aligned_elements<T>(args.dy)},
                               .x = {aligned_elements<T>(args.sum)},
                               .gamma = aligned_elements<T>(args.gamma),
                               .mean = elements<float>(args.mean),
                               .rstd = elements<float>(args.rstd),
                               .dx = {aligned_elements<T>(args.dresidual)},
                               .partial = nullptr};
    DropoutBranch<T> branch{
        .mask = dropout.active() ? aligned_elements<uint8_t>(args.mask) : nullptr,
        .dx = aligned_elements<T>(args.dx),
        .keep_factor = dropout.keep_factor};
    if (rounds) {
      branch.dx_fp8 = sink_of(args.dx_fp8);
      launch_layer_norm_bwd_team<sizeof(T) == 2 ? Branch::kE5M2 : Branch::kIo>(
          context, norm, branch, rows, columns, take);
    } else {
      launch_layer_norm_bwd_team<Branch::kIo>(context, norm, branch, rows, columns, take);
    }
    finish_column_sums<T, 3>(context, partial, blocks, columns,
                             {{{elements<T>(args.dgamma), add},
                               {elements<T>(args.dbeta), add},
                               {elements<T>(args.dbias), add}}});
  });
  if (args.dx_fp8.q.has_data() && !rounds) run_cuda(context, quantize_to(args.dx_fp8, args.dx));
}

}  // namespace bertha
