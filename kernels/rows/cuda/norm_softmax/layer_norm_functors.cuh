#pragma once

#include <type_traits>

#include "kernels/base/arguments.h"
#include "kernels/rows/cuda/norm_softmax/layernorm_bwd_registers.cuh"
#include "kernels/rows/cuda/norm_softmax/layernorm_bwd_stream.cuh"
#include "kernels/rows/cuda/norm_softmax/layernorm_bwd_team.cuh"
#include "kernels/rows/cuda/norm_softmax/layernorm_fwd_block_per_row.cuh"
#include "kernels/rows/cuda/norm_softmax/layernorm_fwd_persistent.cuh"
#include "kernels/rows/cuda/norm_softmax/layernorm_fwd_warp_per_row.cuh"
#include "kernels/rows/cuda/norm_softmax/layernorm_generic.cuh"

namespace bertha {

// LayerNorm with Load and Store functors (row_functors.cuh, kernels/rows/functors.md): the plain
// operation is layer_norm_rows of PlainNormForward and layer_norm_gradient_rows of NormBackward.
//
// Which kernel takes which rows is what was fastest (kernels/rows/measured/rows.md):
//
//   forward, rows of a multiple of 8 columns at 16-byte aligned addresses
//     layernorm_fwd_warp_per_row.cuh    up to 1,024 columns
//     layernorm_fwd_block_per_row.cuh   up to 16,384 (f32: 8,192)
//     layernorm_fwd_persistent.cuh      16 bits from a matrix, without a residual, up to 33,792
//   backward, the same rows, from matrices
//     layernorm_bwd_team.cuh            16 bits, from 256 columns
//     layernorm_bwd_stream.cuh          from 4,096 (f32: 4,104); 16 bits, even widths from 8,194
//   all else
//     layernorm_bwd_registers.cuh       backward up to what a block holds
//     layernorm_generic.cuh             forward; backward of wider rows

/// Runs the kernel of aligned rows of this width, if there is one.
template <bool kHasResidual, class Load, class Store, class Parameter>
bool run_aligned_forward(CudaContext& context, const NormForward<Load, Store, Parameter>& norm,
                         int64_t rows, int64_t columns) {
  using T = typename Load::Element;
  if (columns <= kMostWarpRowColumns) {
    launch_layernorm_fwd_warp_per_row<kHasResidual>(context, norm, rows, columns);
    return true;
  }
  if (columns <= kMostBlockRowNormColumns<T>) {
    launch_layernorm_fwd_block_per_row<kHasResidual>(context, norm, rows, columns);
    return true;
  }
  if constexpr (kHasMatrix<Load> && sizeof(T) == 2 && !kHasResidual) {
    if (columns <= kMostPersistentColumns && context.kernels == KernelSet::kSm90a) {
      launch_layernorm_fwd_persistent(context, norm, rows, columns);
      return true;
    }
  }
  return false;
}

/// Refuses other gamma and beta than the kernels read.
template <class Parameter, class Load>
struct ParameterCheck {
  static constexpr bool kIsRight =
      kIsRowElement<Parameter> && std::is_same_v<Compute<Parameter>, Compute<ElementOf<Load>>>;
  static_assert(
      kIsRight,
      "gamma and beta are of a wrong type; use double as Parameter for Elements of double, "
      "and __half, __nv_bfloat16 or float otherwise");
};

/// y = (x - mean) * rstd * gamma + beta of the rows that norm.x gives, to norm.y; memory is read
/// once, except for rows that shared memory does not hold.
///
/// Exact     deterministic; statistics around a value of the row.
/// Needs     columns >= 1; rows == 0 is a no-op. A residual goes with MatrixLoad alone: a Load can
///           add one itself. Nothing waits for the result.
/// Errors    Error(kInternal) where a launch fails; Error(kEnvironment) where the functors were
///           compiled for other GPUs than the library.
template <class Load, class Store, class Parameter>
void layer_norm_rows(CudaContext& context, const NormForward<Load, Store, Parameter>& norm,
                     int64_t rows, int64_t columns) {
  if constexpr (FunctorCheck<Store, Load>::kAreRight && ParameterCheck<Parameter, Load>::kIsRight) {
    if (rows == 0) return;
    using Generic = GenericNormForward<Load, Store, Parameter>;
    context.state<CompiledAlike<Generic>>();
    const int most = std::min(row_vec_elements(columns, norm.x, norm.y),
                              vec_elements(norm.residual, norm.gamma, norm.beta, norm.sum));
    if constexpr (sizeof(typename Load::Element) <= 4) {
      if (most == kVecSize) {
        if (norm.residual == nullptr) {
          if (run_aligned_forward<false>(context, norm, rows, columns)) return;
        } else if constexpr (kIsPlainLoad<Load>) {
          if (run_aligned_forward<true>(context, norm, rows, columns)) return;
        }
      }
    }
    launch_rows(context, Generic{{norm.x}, norm}, rows, columns, most);
  }
}

/// Where the gradients of gamma and beta go; null: not wanted.
template <class Parameter>
struct NormParameterGradients {
  Parameter* dgamma;  // [columns]
  Parameter* dbeta;   // [columns]
  Accumulate accumulate = Accumulate::kNo;
};

/// dx, dgamma and dbeta from dy, x and the statistics of forward; norm.partial is taken from
/// context.scratch. The Elements of both Loads have one size. Rules as layer_norm_rows.
template <class LoadDy, class LoadX, class Store, class Parameter>
void layer_norm_gradient_rows(CudaContext& context,
                              const NormGradient<LoadDy, LoadX, Store, Parameter>& norm,
                              const NormParameterGradients<Parameter>& gradients, int64_t rows,
                              int64_t columns) {
  if constexpr (FunctorCheck<Store, LoadDy, LoadX>::kAreRight &&
                ParameterCheck<Parameter, LoadDy>::kIsRight) {
    using Norm = NormGradient<LoadDy, LoadX, Store, Parameter>;
    using T = typename Norm::Element;
    using Number = typename Norm::Number;
    context.state<CompiledAlike<GenericNormBackward<LoadDy, LoadX, Store, Parameter>>>();
    Number* partial = nullptr;
    unsigned teams = 0;
    const auto take = [&](unsigned count) {
      teams = count;
      return partial = static_cast<Number*>(
                 context.scratch.take(column_sum_bytes<Number>(count, columns, 2)));
    };
    const auto run = [&] {
      if (rows == 0) return;
      const int of_rows = row_vec_elements(columns, norm.dy, norm.x, norm.dx);
      const int most = std::min(of_rows, vec_elements(norm.gamma));
      if constexpr (kHasMatrix<LoadDy> && kHasMatrix<LoadX>) {
        if constexpr (sizeof(T) <= 4) {
          if (is_streamed<T>(context, columns) && of_rows == kVecSize) {
            return launch_layernorm_bwd_stream<kVecSize>(context, norm, rows, columns, take);
          }
        }
        if constexpr (sizeof(T) == 2) {
          if (columns > kMostRegisterColumns<T, 2> && is_streamed<T>(context, columns) &&
              of_rows >= 2 && vec_elements(norm.dy.matrix, norm.x.matrix) == kVecSize) {
            return launch_layernorm_bwd_stream<2>(context, norm, rows, columns, take);
          }
          if (columns >= kWarpColumns && columns <= kMostTeamColumns && norm.gamma != nullptr &&
              most == kVecSize) {
            return launch_layernorm_bwd_team<Branch::kNone>(context, norm, DropoutBranch<T>{}, rows,
                                                            columns, take);
          }
        }
      }
      with_vec_size<T>(most, [&](auto vec_size) {
        constexpr int N = decltype(vec_size)::value;
        if (columns <= kMostRegisterColumns<typename Norm::HeldElement, N>) {
          launch_layernorm_bwd_registers<N>(context, norm, rows, columns, take);
        } else {
          launch_layernorm_bwd_generic<N>(context, norm, rows, columns, take);
        }
      });
    };
    run();
    if (gradients.dgamma == nullptr && gradients.dbeta == nullptr) return;
    const bool add = gradients.accumulate == Accumulate::kYes;
    finish_column_sums<Parameter, 2>(context, partial, teams, columns,
                                     {{{gradients.dgamma, add}, {gradients.dbeta, add}}});
  }
}

}  // namespace bertha
