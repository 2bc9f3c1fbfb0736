#pragma once

#include <bit>

#include "kernels/base/error.h"
#include "kernels/base/view.h"
#include "kernels/rows/cuda/norm_softmax/block_per_row.cuh"
#include "kernels/rows/cuda/norm_softmax/generic_rows.cuh"
#include "kernels/rows/cuda/norm_softmax/softmax_rows.cuh"
#include "kernels/rows/cuda/norm_softmax/tma_row.cuh"
#include "kernels/rows/cuda/norm_softmax/warp_per_row.cuh"

namespace bertha {

// Softmax and log-softmax with Load and Store functors (row_functors.cuh,
// kernels/rows/functors.md): the plain operation is softmax_rows with MatrixLoad and MatrixStore.

/// Blocks of a row in tma_row.cuh; 0 if it cannot have the row, or if dropout is drawn.
template <class Operation>
int tma_row_blocks(const CudaContext& context, const Operation& operation, int64_t columns) {
  if constexpr (kDrawsOnStore<Operation>) {
    if (operation.store.drops()) return 0;
  }
  if (context.kernels != KernelSet::kSm90a) return 0;
  // An SM has two rows, or one of two inputs; else parts of six, or of three of two inputs.
  constexpr int kInputs = Operation::kInputs;
  const int64_t most = most_row_cache_bytes(context);
  const auto bytes = [&](int blocks) { return tma_row_bytes<Operation>(columns, blocks); };
  if (bytes(1) <= most / (3 - kInputs)) return 1;
  int blocks = 2;
  while (blocks < kMostRowCluster && bytes(blocks) > most / (6 / kInputs)) blocks *= 2;
  return bytes(blocks) <= most ? blocks : 0;
}

/// Runs an operation in vectors of 8 columns, if there is a kernel for the width.
template <bool kInWords, class Operation>
bool launch_softmax_vectors(const CudaContext& context, const Operation& operation, int64_t rows,
                            int64_t columns) {
  constexpr bool kHasOne = Operation::kInputs == 1;
  constexpr bool kIsPacked = sizeof(typename Operation::HeldElement) == 2;
  constexpr int kBlocks = !kHasOne ? 1 : kIsPacked ? 4 : 2;
  constexpr int kWideThreads = kHasOne ? 512 : 256;
  constexpr int kWideBlocks = kHasOne ? (kIsPacked ? 2 : 1) : kIsPacked ? 3 : 2;
  const int64_t reach = columns + (kInWords ? kMostLead : 0);
  if constexpr (kInWords) {
    if (reach > 1024 && reach <= 1280) {
      launch_warp_per_row<32, 8, 5, 64, true>(context, operation, rows, columns);
      return true;
    }
  }
  if (kInWords && reach <= 128) {
    launch_warp_per_row<4, 8, 1, 128, kInWords>(context, operation, rows, columns);
  } else if (reach <= 256) {
    launch_warp_per_row<4, 8, 2, 128, kInWords>(context, operation, rows, columns);
  } else if (reach <= 384) {
    launch_warp_per_row<16, 8, 3, 128, kInWords>(context, operation, rows, columns);
  } else if (reach <= 512) {
    launch_warp_per_row<32, 8, 2, 128, kInWords>(context, operation, rows, columns);
  } else if (reach <= 768 && kInWords) {
    launch_warp_per_row<32, 8, 3, 128, kInWords>(context, operation, rows, columns);
  } else if (reach <= 1024) {
    launch_warp_per_row<32, 8, 4, 64, kInWords>(context, operation, rows, columns);
  } else if (reach <= 8192) {
    launch_block_per_row<2, 512, kBlocks, kInWords>(context, operation, rows, columns);
  } else if (const int blocks = tma_row_blocks(context, operation, columns); blocks == 1) {
    launch_tma_row<512, kIsPacked ? 3 : 2>(context, operation, rows, columns);
  } else if (blocks > 1) {
    constexpr int kParts = 6 / Operation::kInputs;
    launch_tma_row<1536 / kParts, kIsPacked ? kParts : 2 * kParts / 3, true>(context, operation,
                                                                             rows, columns, blocks);
  } else if (context.kernels == KernelSet::kSm90a &&
             reach <= kMostClusterColumns<4, kWideThreads>) {
    launch_block_per_row<4, kWideThreads, kWideBlocks, kInWords, true>(context, operation, rows,
                                                                       columns);
  } else {
    return false;
  }
  return true;
}

/// Runs an operation of softmax_rows.cuh, where there is a kernel for its width and for
/// most_elements (row_vec_elements). What a Load computes takes more registers than what it reads.
template <class Operation>
bool launch_softmax_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                         int64_t columns, int most_elements) {
  if (most_elements == kVecSize) {
    return launch_softmax_vectors<false>(context, operation, rows, columns);
  }
  // Single elements in narrow rows, unless words with a lead fill three quarters of their lanes.
  const uint64_t reach = columns + kMostLead;
  constexpr int kMostNarrow = !Operation::kInWords ? 288 : Operation::kInputs == 1 ? 128 : 160;
  const bool is_narrow = columns % 2 != 0 && columns > 16 && columns <= kMostNarrow &&
                         4 * reach <= 3 * std::bit_ceil(reach);
  if (most_elements >= 4 && columns <= 512) {
    launch_warp_per_row<4, 4, 4>(context, operation, rows, columns);
    return true;
  }
  if constexpr (Operation::kInWords) {
    if (!is_narrow) {
      if (columns < kVecSize || !share_words(operation.matrix(0), operation.store.matrix) ||
          !share_words(operation.matrix(Operation::kInputs - 1), operation.store.matrix)) {
        return false;
      }
      constexpr int64_t kMostInRegisters = Operation::kInputs == 1 ? 1280 : 761;
      if (columns <= kMostInRegisters || columns > 8192 ||
          tma_row_blocks(context, operation, columns) == 0) {
        return launch_softmax_vectors<true>(context, operation, rows, columns);
      }
      launch_tma_row<64, 16>(context, operation, rows, columns);
      return true;
    }
  }
  if (is_narrow && columns <= 160) {
    launch_warp_per_row<8, 1, 5, 256>(context, operation, rows, columns);
  } else if (is_narrow) {
    launch_warp_per_row<32, 1, 9>(context, operation, rows, columns);
  } else if (!Operation::kInWords && columns > 256 && columns <= 544) {
    launch_warp_per_row<32, 1, 17>(context, operation, rows, columns);
  } else {
    return false;
  }
  return true;
}

/// Runs an operation of softmax_rows.cuh on all rows, of any width.
template <class Operation>
void run_softmax_rows(CudaContext& context, const Operation& operation, int64_t rows,
                      int64_t columns, int most_elements) {
  context.state<CompiledAlike<Operation>>();
  if constexpr (sizeof(typename Operation::Element) == 2) {
    if (launch_softmax_rows(context, operation, rows, columns, most_elements)) return;
  }
  launch_rows(context, operation, rows, columns, most_elements);
}

/// softmax or log softmax of the numbers that `load` gives, row by row, to `store`; one pass over
/// memory. Kernels by width as for SoftmaxFwd; a Load of 16-bit elements takes the fast ones.
///
/// Exact     deterministic; a row without a number above minus infinity gives zeros or minus
///           infinities, and NaN makes its row NaN.
/// Needs     columns >= 1; rows == 0 is a no-op. Nothing waits for the result.
/// Errors    Error(kInternal) where a launch fails; Error(kEnvironment) where the functors were
///           compiled for other GPUs than the library.
template <SoftmaxKind kKind, class Load, class Store>
void softmax_rows(CudaContext& context, const Load& load, const Store& store, int64_t rows,
                  int64_t columns) {
  if constexpr (FunctorCheck<Store, Load>::kAreRight) {
    if (rows == 0) return;
    run_softmax_rows(context, SoftmaxRows<Load, Store, kKind>{{load}, store}, rows, columns,
                     row_vec_elements(columns, load, store));
  }
}

/// The gradient by what softmax_rows took, times `scale`, from dy and the y of forward, whose
/// Elements have one size. Rules as softmax_rows.
template <SoftmaxKind kKind, class LoadDy, class LoadY, class Store>
void softmax_gradient_rows(CudaContext& context, const LoadDy& dy, const LoadY& y, const Store& dx,
                           double scale, int64_t rows, int64_t columns) {
  if constexpr (FunctorCheck<Store, LoadDy, LoadY>::kAreRight) {
    if (rows == 0) return;
    const SoftmaxGradientRows<LoadDy, LoadY, Store, kKind> operation{
        {dy, y}, dx, static_cast<Compute<typename LoadDy::Element>>(scale)};
    run_softmax_rows(context, operation, rows, columns, row_vec_elements(columns, dy, y, dx));
  }
}

// --- what SoftmaxFwd and SoftmaxBwd share ---------------------------------------------------------

/// The saved decisions, u32 [rows, words]. Error(kInternal) if the address is not a multiple of 4.
inline uint32_t* kept_words(const View& kept_mask) {
  BERTHA_CHECK(reinterpret_cast<uintptr_t>(kept_mask.data) % 4 == 0, "kept_mask ",
               kept_mask.shape_text(), " begins at an address that is no multiple of 4 bytes");
  return static_cast<uint32_t*>(kept_mask.data);
}

/// work(std::integral_constant<SoftmaxKind, kind>).
void dispatch_kind(SoftmaxKind kind, const auto& work) {
  if (kind == SoftmaxKind::kLogSoftmax) {
    work(std::integral_constant<SoftmaxKind, SoftmaxKind::kLogSoftmax>{});
  } else {
    work(std::integral_constant<SoftmaxKind, SoftmaxKind::kSoftmax>{});
  }
}

}  // namespace bertha
