// Stand-alone LayerNorm, forward and backward.
//
// Bytes at [24,576 x 1,024] bf16 (U = 50.3 MB, 11.8 us at the 4.27 TB/s of a large copy): forward
// 2 U, backward 3 U. Ten files know how rows are passed over; who takes which is what was fastest
// where they were compared (kernels/measured/rows.md):
//
//   norm_narrow_forward.cuh    forward of 16-bit rows of whole octets up to 1,024 columns
//   norm_leaving_forward.cuh   forward of those up to 16,384
//   norm_chunk_forward.cuh     forward of 16-bit rows of 17 to 1,088 that begin between 16-byte words
//   norm_wide_forward.cuh      forward of those from 8,193 to 33,785 that do, and of whole octets from
//                              16,392 to there
//   held_rows.cuh    forward, other 16-bit rows of more than 256 columns: from 1,089 to 8,192 between
//                    16-byte words, or where a matrix or a parameter does not begin with such a word
//                    (to 32,768, of single elements to 10,240); backward, those of more than 256
//                    columns that begin between words
//   norm_gradient_stream.cuh   backward of 16-bit rows of whole octets from 4,096 columns on, and of
//                    even widths from 8,194 on
//   norm_gradient_batches.cuh  backward of 16-bit rows of odd widths from 257 to 543
//   row_team.cuh     backward of other 16-bit rows of whole octets from 256 columns on
//   norm_rows.cuh    other rows that a warp can hold; wider ones up to a block forward (not 16-bit ones
//                    of whole words), up to a cluster of blocks backward
//   generic_rows.cuh what is left, with a kernel of its own for the column sums
//
// Forward with a residual takes the last two alone.

#include "kernels/cuda/common/column_sums.cuh"
#include "kernels/cuda/norm_softmax/norm_block_rows.cuh"
#include "kernels/cuda/norm_softmax/norm_chunk_forward.cuh"
#include "kernels/cuda/norm_softmax/norm_forward_rows.cuh"
#include "kernels/cuda/norm_softmax/norm_gradient_batches.cuh"
#include "kernels/cuda/norm_softmax/norm_gradient_rows.cuh"
#include "kernels/cuda/norm_softmax/norm_gradient_stream.cuh"
#include "kernels/cuda/norm_softmax/norm_leaving_forward.cuh"
#include "kernels/cuda/norm_softmax/norm_narrow_forward.cuh"
#include "kernels/cuda/norm_softmax/norm_wide_forward.cuh"
#include "kernels/cuda/norm_softmax/row_norm.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/ops/layer_norm.h"

namespace bertha {
namespace {

// Threads of a block, of which an SM holds one, rows of a batch and batches, as in
// residual_ln.cu.
constexpr int kThreads = 512;
constexpr int kBackwardRows = 2;
constexpr int kStages = 3;

template <class T>
struct BackwardPointers {
  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  const T* gamma;
  T* dx;
  float* partial;  // f32 [blocks, 2, columns]: dgamma, dbeta
};

// --- rows of octets --------------------------------------------------------------------------

template <class Shape>
__global__ void __launch_bounds__(Shape::kMostThreads, 1)
    team_bwd_kernel(BackwardPointers<typename Shape::Element> p, int64_t rows, int64_t columns) {
  using T = typename Shape::Element;
  constexpr int kRows = Shape::kRows;
  extern __shared__ uint4 slots[];
  __shared__ TeamExchange<Shape, 2 * kRows> exchange;
  const RowTeam<Shape> team(columns);
  const T* const streams[2] = {p.dy, p.x};
  RowRing<Shape, 2, kStages> ring(slots, team, rows, streams);
  SavedRows<Shape> next;
  next.load(team, team.first_row, rows, p.mean, p.rstd, nullptr);
  Vec<T, kVecSize> gamma{};
  if (team.inside) gamma = load_vec(p.gamma + team.thread * kVecSize);
  float sums[2][kVecSize] = {};
  int turn = 0;
  for (int64_t first = team.first_row; team.block_has(first, rows);
       first += team.row_stride, ++turn) {
    ring.refill(team, first, rows, streams);
    const SavedRows<Shape> saved = next;
    next.load(team, first + team.row_stride, rows, p.mean, p.rstd, nullptr);
    ring.wait();
    const int left = team.rows_left(first, rows);
    NormGradientSums<Shape> row_sums;
    RowStatistics statistics[kRows];
    saved.statistics_of_all(statistics);
    for_rows<kRows>(left, [&](int r) {
      float dy[kVecSize];
      to_floats(ring.read(team, 0, r), dy);
      row_sums.add_row(r, dy, ring.read(team, 1, r), gamma, statistics[r], sums[0], sums[1]);
    });
    row_sums.meet(team, exchange, turn);
    keep_packed(gamma);
    T* const dx_at = p.dx + team.at(first);
    for_rows<kRows>(left, [&](int r) {
      float dy[kVecSize];
      float dx[kVecSize];
      to_floats(ring.read(team, 0, r), dy);
      row_sums.gradient(r, dy, ring.read(team, 1, r), gamma, statistics[r], dx);
      store_vec_global(dx_at + r * team.columns, to_vec<T>(dx));
    });
    ring.advance();
  }
  begin_next_kernel();
  store_block_sums(team, sums, p.partial);
}

// --- launchers ----------------------------------------------------------------------------------

/// Whether a team can take these rows: 16-bit, of whole octets, and with all parameters.
bool fits_team(int64_t columns, std::initializer_list<const View*> views) {
  bool is_there = true;
  for (const View* view : views) is_there = is_there && view->has_data();
  return is_there && size_bytes(views.begin()[0]->dtype) == 2 && columns % kVecSize == 0 &&
         columns >= kWarpColumns && columns <= kMostTeamColumns && address_bits(views) % 16 == 0;
}

template <class T>
BackwardPointers<T> pointers_of(const LayerNormBwd& args, float* partial) {
  return {.dy = elements<T>(args.dy),
          .x = elements<T>(args.x),
          .mean = elements<float>(args.mean),
          .rstd = elements<float>(args.rstd),
          .gamma = elements<T>(args.gamma),
          .dx = elements<T>(args.dx),
          .partial = partial};
}

/// Room for the parts of dgamma and dbeta that `blocks` blocks leave.
template <class Number = float>
Number* take_partial(CudaContext& context, unsigned blocks, int64_t columns) {
  const int64_t bytes = column_sum_bytes<Number>(blocks, columns, 2);
  return static_cast<Number*>(context.scratch.take(bytes));
}

/// Adds those parts up, where dgamma or dbeta is asked for.
template <class T>
void finish_parameters(const CudaContext& context, const LayerNormBwd& args,
                       const Compute<T>* partial, unsigned blocks) {
  if (!args.dgamma.has_data() && !args.dbeta.has_data()) return;
  const bool add = args.accumulate == Accumulate::kYes;
  finish_column_sums<T, 2>(
      context, partial, blocks, args.dy.extent(1),
      {{{optional_elements<T>(args.dgamma), add}, {optional_elements<T>(args.dbeta), add}}});
}

template <class T>
void run_generic_forward(const CudaContext& context, const LayerNormFwd& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  const View unread;
  const View& sum = args.residual.has_data() ? args.sum : unread;
  const uintptr_t bits =
      address_bits({&args.x, &args.residual, &args.gamma, &args.beta, &sum, &args.y});
  const NormRows<T> norm{.x = elements<T>(args.x),
                         .residual = optional_elements<T>(args.residual),
                         .gamma = optional_elements<T>(args.gamma),
                         .beta = optional_elements<T>(args.beta),
                         .sum = optional_elements<T>(sum),
                         .y = elements<T>(args.y),
                         .mean = elements<Compute<T>>(args.mean),
                         .rstd = elements<Compute<T>>(args.rstd),
                         .epsilon = static_cast<Compute<T>>(args.epsilon)};
  with_pack<T>(columns, bits, [&](auto pack) {
    constexpr int N = decltype(pack)::value;
    const bool has_words = sizeof(T) == 2 && N == kVec16<T>;
    if (!is_narrow_row<T>(columns) && (has_words || columns > kMostForwardColumns<T>)) {
      launch_norm_block_forward(context, norm, rows, columns, bits);
    } else if (norm.residual != nullptr) {
      launch_norm_forward<T, N, true>(context, norm, rows, columns);
    } else {
      launch_norm_forward<T, N, false>(context, norm, rows, columns);
    }
  });
}

template <class T>
void run_generic_backward(CudaContext& context, const LayerNormBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const uintptr_t bits = address_bits({&args.dy, &args.x, &args.gamma, &args.dx});
  const NormGradient<T> norm{.dy = elements<T>(args.dy),
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
  with_pack<T>(columns, bits, [&](auto pack) {
    constexpr int N = decltype(pack)::value;
    if (rows == 0) return;
    if (columns > kMostGradientColumns<T, N>) {
      return run_two_passes<T, N>(context, norm, rows, columns, take);
    }
    launch_norm_gradient<T, N>(context, norm, rows, columns, take);
  });
  finish_parameters<T>(context, args, partial, teams);
}

template <class T>
void run_by_teams(CudaContext& context, const LayerNormBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  dispatch_team<T, kThreads, kBackwardRows>(columns, [&](auto shape) {
    using Shape = decltype(shape);
    const unsigned blocks = team_blocks<Shape>(rows, columns, context.sm_count, 1);
    float* const partial = take_partial(context, blocks, columns);
    launch_ring_teams<Shape, 2, kStages>(context.stream, team_bwd_kernel<Shape>, blocks, columns,
                                         pointers_of<T>(args, partial), rows, columns);
    finish_parameters<T>(context, args, partial, blocks);
  });
}

/// Whether rows of 16 bits are held or streamed: wider ones than a warp's lanes hold elsewhere.
bool holds_forward(int64_t columns, int pack) {
  return columns > 256 && columns <= most_held_columns(pack);
}
constexpr int64_t kMostHeldPairs = 512 * 16;
bool holds_backward(int64_t columns, int pack, uintptr_t bits) {
  if (pack == 8) return columns >= 4096 && columns <= kMostStreamColumns<8>;
  if (pack == 2 && bits % 16 == 0) return columns > 256 && columns <= kMostStreamColumns<2>;
  return columns > 256 && columns <= (pack == 2 ? kMostHeldPairs : 512 * 20);
}

template <class T>
void run_held_backward(CudaContext& context, const LayerNormBwd& args, int pack) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const HeldNormGradient<T> norm{.inputs = {elements<T>(args.dy), elements<T>(args.x)},
                                 .output = elements<T>(args.dx),
                                 .gamma = optional_elements<T>(args.gamma),
                                 .mean = elements<float>(args.mean),
                                 .rstd = elements<float>(args.rstd),
                                 .partial = nullptr};
  float* partial = nullptr;
  unsigned blocks = 0;
  const auto take = [&](unsigned count) {
    blocks = count;
    return partial = take_partial(context, count, columns);
  };
  const auto with_blocks = [&](HeldNormGradient<T>& with, unsigned count) {
    with.partial = take(count);
  };
  const int64_t shared = 2 * static_cast<int64_t>(sizeof(float)) * columns;
  if (pack == 8) {
    launch_norm_gradient_stream<8>(context, norm, rows, columns, take);
  } else if (pack == 2 && columns > kMostHeldPairs) {
    launch_norm_gradient_stream<2>(context, norm, rows, columns, take);
  } else if (pack == 2 && columns <= 1024) {  // a warp a row
    launch_held_rows<2, 16, Ahead::kNowhere, 128, 3>(context, norm, rows, columns, shared,
                                                     with_blocks);
  } else if (pack == 2) {
    launch_held_rows<2, 8, Ahead::kNowhere, 512, 1>(context, norm, rows, columns, shared,
                                                    with_blocks);
  } else if (has_gradient_batches(columns) &&
             address_bits({&args.dy, &args.x, &args.dx}) % 16 == 0) {
    launch_norm_gradient_batches(context, norm, rows, columns, take);
  } else if (columns <= 544) {
    launch_held_rows<1, 17, Ahead::kNowhere, 128, 4>(context, norm, rows, columns, shared,
                                                     with_blocks);
  } else {
    launch_held_rows<1, 20, Ahead::kNowhere, 512, 1>(context, norm, rows, columns, shared,
                                                     with_blocks);
  }
  finish_parameters<T>(context, args, partial, blocks);
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const LayerNormFwd& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  if (rows == 0) return;
  const uintptr_t bits = address_bits({&args.x, &args.y});
  const int pack = held_pack(columns, bits);
  const bool is_plain = size_bytes(args.x.dtype) == 2 && !args.residual.has_data();
  const bool has_octets = pack == kVecSize && columns <= kMostLeavingNormColumns &&
                          address_bits({&args.gamma, &args.beta}) % 16 == 0;
  const bool has_chunks = pack < kVecSize && bits % 16 == 0 && has_norm_chunks(columns);
  const bool is_wide = bits % 16 == 0 && is_wide_norm(columns) &&
                       (pack < kVecSize || columns > kMostLeavingNormColumns);
  if (is_plain && (has_octets || has_chunks || is_wide || holds_forward(columns, pack))) {
    return dispatch_16bit(args.x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      const PlainNorm<T> norm{.x = elements<T>(args.x),
                              .gamma = optional_elements<T>(args.gamma),
                              .beta = optional_elements<T>(args.beta),
                              .y = elements<T>(args.y),
                              .mean = elements<float>(args.mean),
                              .rstd = elements<float>(args.rstd),
                              .epsilon = args.epsilon};
      if (has_octets && columns <= kMostNarrowColumns) {
        launch_norm_narrow_forward(context, norm, rows, columns);
      } else if (has_octets) {
        launch_norm_leaving_forward(context, norm, rows, columns);
      } else if (has_chunks) {
        launch_norm_chunk_forward(context, norm, rows, columns);
      } else if (is_wide) {
        launch_norm_wide_forward(context, norm, rows, columns);
      } else {
        launch_held_norm(context, norm, rows, columns, pack);
      }
    });
  }
  dispatch_floating(args.x.dtype, [&](auto tag) {
    run_generic_forward<typename decltype(tag)::Type>(context, args);
  });
}

template <>
void run_cuda(CudaContext& context, const LayerNormBwd& args) {
  const int64_t columns = args.dy.extent(1);
  const uintptr_t bits = address_bits({&args.dy, &args.x, &args.dx});
  const int pack = held_pack(columns, bits);
  if (args.dy.extent(0) > 0 && size_bytes(args.dy.dtype) == 2 &&
      holds_backward(columns, pack, bits)) {
    return dispatch_16bit(args.dy.dtype, [&](auto tag) {
      run_held_backward<typename decltype(tag)::Type>(context, args, pack);
    });
  }
  if (args.dy.extent(0) > 0 &&
      fits_team(args.dy.extent(1), {&args.dy, &args.x, &args.gamma, &args.dx})) {
    dispatch_16bit(args.dy.dtype,
                   [&](auto tag) { run_by_teams<typename decltype(tag)::Type>(context, args); });
  } else {
    dispatch_floating(args.dy.dtype, [&](auto tag) {
      run_generic_backward<typename decltype(tag)::Type>(context, args);
    });
  }
}

}  // namespace bertha
