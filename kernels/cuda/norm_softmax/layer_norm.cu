// Stand-alone LayerNorm, forward (with or without a residual) and backward.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): forward
// 2 U, backward 3 U. Which kernel takes which rows is what was fastest (kernels/measured/rows.md):
//
//   forward, rows of a multiple of 8 columns at 16-byte aligned addresses
//     layernorm_fwd_warp_per_row.cuh    up to 1,024 columns
//     layernorm_fwd_block_per_row.cuh   up to 16,384 (f32: 8,192)
//     layernorm_fwd_persistent.cuh      16 bits, without a residual, up to 33,792
//   backward, the same rows
//     layernorm_bwd_team.cuh            16 bits, from 256 columns
//     layernorm_bwd_stream.cuh          from 4,096 (f32: 4,104); 16 bits, even widths from 8,194
//   all else
//     layernorm_bwd_registers.cuh       backward up to what a block holds
//     layernorm_generic.cuh             forward; backward of wider rows

#include "kernels/cuda/norm_softmax/layernorm_bwd_registers.cuh"
#include "kernels/cuda/norm_softmax/layernorm_bwd_stream.cuh"
#include "kernels/cuda/norm_softmax/layernorm_bwd_team.cuh"
#include "kernels/cuda/norm_softmax/layernorm_fwd_block_per_row.cuh"
#include "kernels/cuda/norm_softmax/layernorm_fwd_persistent.cuh"
#include "kernels/cuda/norm_softmax/layernorm_fwd_warp_per_row.cuh"
#include "kernels/cuda/norm_softmax/layernorm_generic.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/ops/layer_norm.h"

namespace bertha {
namespace {

/// Whether rows go in vectors of 8 elements: their width, and the addresses of all views.
bool has_vectors(int64_t columns, std::initializer_list<const View*> views) {
  return columns % kVecSize == 0 && address_bits(views) % 16 == 0;
}

/// Runs the kernel of aligned rows of this width, if there is one.
template <bool kHasResidual, class T>
bool run_aligned_forward(CudaContext& context, const NormForward<T>& norm, int64_t rows,
                         int64_t columns) {
  if (columns <= kMostWarpRowColumns) {
    launch_layernorm_fwd_warp_per_row<kHasResidual>(context, norm, rows, columns);
    return true;
  }
  if (columns <= kMostBlockRowNormColumns<T>) {
    launch_layernorm_fwd_block_per_row<kHasResidual>(context, norm, rows, columns);
    return true;
  }
  if constexpr (sizeof(T) == 2 && !kHasResidual) {
    if (columns <= kMostPersistentColumns && context.kernels == KernelSet::kSm90a) {
      launch_layernorm_fwd_persistent(context, norm, rows, columns);
      return true;
    }
  }
  return false;
}

/// Allocates the partial sums of dgamma and dbeta of so many teams of blocks.
template <class Number>
Number* take_partial(CudaContext& context, unsigned teams, int64_t columns) {
  return static_cast<Number*>(context.scratch.take(column_sum_bytes<Number>(teams, columns, 2)));
}

/// Adds up the partial sums, where dgamma or dbeta is asked for.
template <class T>
void finish_parameters(const CudaContext& context, const LayerNormBwd& args,
                       const Compute<T>* partial, unsigned blocks) {
  if (!args.dgamma.has_data() && !args.dbeta.has_data()) return;
  const bool add = args.accumulate == Accumulate::kYes;
  finish_column_sums<T, 2>(
      context, partial, blocks, args.dy.extent(1),
      {{{optional_elements<T>(args.dgamma), add}, {optional_elements<T>(args.dbeta), add}}});
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const LayerNormFwd& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  if (rows == 0) return;
  const bool has_residual = args.residual.has_data();
  const View unread;
  const View& sum = has_residual ? args.sum : unread;
  const auto views = {&args.x, &args.residual, &args.gamma, &args.beta, &sum, &args.y};
  dispatch_floating(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const NormForward<T> norm{.x = elements<T>(args.x),
                              .residual = optional_elements<T>(args.residual),
                              .gamma = optional_elements<T>(args.gamma),
                              .beta = optional_elements<T>(args.beta),
                              .sum = optional_elements<T>(sum),
                              .y = elements<T>(args.y),
                              .mean = elements<Compute<T>>(args.mean),
                              .rstd = elements<Compute<T>>(args.rstd),
                              .epsilon = static_cast<Compute<T>>(args.epsilon)};
    if constexpr (sizeof(T) <= 4) {
      if (has_vectors(columns, views) &&
          (has_residual ? run_aligned_forward<true>(context, norm, rows, columns)
                        : run_aligned_forward<false>(context, norm, rows, columns))) {
        return;
      }
    }
    launch_layernorm_fwd_generic(context, norm, rows, columns, address_bits(views));
  });
}

template <>
void run_cuda(CudaContext& context, const LayerNormBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  dispatch_floating(args.dy.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const NormBackward<T> norm{.dy = elements<T>(args.dy),
                               .x = elements<T>(args.x),
                               .gamma = optional_elements<T>(args.gamma),
                               .mean = elements<Compute<T>>(args.mean),
                               .rstd = elements<Compute<T>>(args.rstd),
                               .dx = elements<T>(args.dx),
                               .partial = nullptr};
    Compute<T>* partial = nullptr;
    unsigned teams = 0;
    const auto take = [&](unsigned count) {
      teams = count;
      return partial = take_partial<Compute<T>>(context, count, columns);
    };
    const auto run = [&] {
      if (rows == 0) return;
      if constexpr (sizeof(T) <= 4) {
        if (is_streamed<T>(context, columns) &&
            has_vectors(columns, {&args.dy, &args.x, &args.dx})) {
          return launch_layernorm_bwd_stream<kVecSize>(context, norm, rows, columns, take);
        }
      }
      if constexpr (sizeof(T) == 2) {
        if (columns > kMostRegisterColumns<T, 2> && is_streamed<T>(context, columns) &&
            columns % 2 == 0 && address_bits({&args.dy, &args.x, &args.dx}) % 16 == 0) {
          return launch_layernorm_bwd_stream<2>(context, norm, rows, columns, take);
        }
        if (columns >= kWarpColumns && columns <= kMostTeamColumns && norm.gamma != nullptr &&
            has_vectors(columns, {&args.dy, &args.x, &args.gamma, &args.dx})) {
          return launch_layernorm_bwd_team<Branch::kNone>(context, norm, DropoutBranch<T>{}, rows,
                                                          columns, take);
        }
      }
      const uintptr_t bits = address_bits({&args.dy, &args.x, &args.gamma, &args.dx});
      with_vec_size<T>(columns, bits, [&](auto vec_size) {
        constexpr int N = decltype(vec_size)::value;
        if (columns <= kMostRegisterColumns<T, N>) {
          launch_layernorm_bwd_registers<N>(context, norm, rows, columns, take);
        } else {
          launch_layernorm_bwd_generic<N>(context, norm, rows, columns, take);
        }
      });
    };
    run();
    finish_parameters<T>(context, args, partial, teams);
  });
}

}  // namespace bertha
