#pragma once

#include <type_traits>

#include "kernels/base/arguments.h"
#include "kernels/rows/cuda/norm_softmax/layer_norm_bwd_registers.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_bwd_stream.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_bwd_team.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_fwd_block_per_row.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_fwd_persistent.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_fwd_warp_per_row.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_generic.cuh"

namespace bertha {

// LayerNorm with Load and Store functors (row_functors.cuh, kernels/rows/functors.md): the plain
// operation is layer_norm_rows of PlainNormForward and layer_norm_gradient_rows of NormBackward.
//
// A row gets the kernel that was fastest (kernels/rows/measured/rows.md); the header of each says
// which rows it can have. Those of whole vectors have rows of a multiple of 8 columns at 16-byte
// aligned addresses, and of matrices of 16 bits any width and address (row_words.cuh).

/// Runs the kernel of vectors for this width, if there is one.
template <RowForm kForm, class Load, class Store, class Parameter>
bool run_vector_forward(CudaContext& context, const NormForward<Load, Store, Parameter>& norm,
                        int64_t rows, int64_t columns) {
  const int64_t reach = columns + (kForm == RowForm::kInWords ? kMostLead : 0);
  const bool has_clusters = context.kernels == KernelSet::kSm90a;
  if (reach <= kMostWarpRowColumns<kForm>) {
    launch_layer_norm_fwd_warp_per_row<kForm>(context, norm, rows, columns);
    return true;
  }
  if constexpr (kHasMatrix<Load> && sizeof(typename Load::Element) == 2 &&
                kForm != RowForm::kResidual) {
    constexpr int64_t kMostInBlock = kForm == RowForm::kInWords ? 0 : 16'384;
    if (has_clusters && reach > kMostInBlock && reach <= kMostPersistentColumns) {
      launch_layer_norm_fwd_persistent<kForm>(context, norm, rows, columns);
      return true;
    }
  }
  if (reach > most_block_row_norm_columns<typename Load::Element>(has_clusters)) return false;
  launch_layer_norm_fwd_block_per_row<kForm>(context, norm, rows, columns);
  return true;
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
          if (run_vector_forward<RowForm::kAligned>(context, norm, rows, columns)) return;
        } else if constexpr (kIsPlainLoad<Load>) {
          if (run_vector_forward<RowForm::kResidual>(context, norm, rows, columns)) return;
        }
      }
    }
    if constexpr (kHasWords<Load, Store>) {
      if (norm.residual == nullptr && columns >= kVecSize &&
          share_words(norm.x.matrix, norm.y.matrix) &&
          run_vector_forward<RowForm::kInWords>(context, norm, rows, columns)) {
        return;
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
      if constexpr (kHasMatrix<LoadDy> && kHasMatrix<LoadX> && sizeof(T) <= 4) {
        if (of_rows == kVecSize &&
            is_streamed<T>(context, columns, sizeof(T) == 2 ? 4'096 : 4'104)) {
          return launch_layer_norm_bwd_stream<false>(context, norm, rows, columns, take);
        }
        if constexpr (sizeof(T) == 2) {
          if (columns >= kWarpColumns && columns <= kMostTeamColumns && norm.gamma != nullptr &&
              most == kVecSize) {
            return launch_layer_norm_bwd_team<Branch::kNone>(context, norm, DropoutBranch<T>{},
                                                             rows, columns, take);
          }
        }
        if constexpr (kHasWords<LoadDy, Store> && kHasWords<LoadX, Store>) {
          // Narrower ones are faster in registers.
          if (columns > kWarpColumns && share_words(norm.dy.matrix, norm.dx.matrix) &&
              share_words(norm.x.matrix, norm.dx.matrix) &&
              is_streamed<T>(context, columns + kMostLead, kWarpColumns)) {
            return launch_layer_norm_bwd_stream<true>(context, norm, rows, columns, take);
          }
        }
      }
      with_vec_size<T>(most, [&](auto vec_size) {
        constexpr int N = decltype(vec_size)::value;
        if (columns <= kMostRegisterColumns<typename Norm::HeldElement, N>) {
          launch_layer_norm_bwd_registers<N>(context, norm, rows, columns, take);
        } else {
          launch_layer_norm_bwd_generic<N>(context, norm, rows, columns, take);
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
