#pragma once

#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/cluster.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_operands.cuh"
#include "kernels/rows/cuda/norm_softmax/row_words.cuh"

namespace bertha {

// LayerNorm backward of matrices: of 16 bits from 257 to 65,536 columns that begin anywhere, in f32
// from 4,104 to 32,768, a multiple of 8 at 16-byte aligned addresses. The rows of a team of blocks
// lie a multiple of 8 apart, so that the columns of their words are the same (row_words.cuh).
//
// A persistent grid, in which a thread keeps the same columns of all rows: gamma and the column
// sums take the registers, so that rows wait in a ring of shared memory, filled by bulk copies.
// If the registers of one block are too few, the blocks of a cluster share a row.
//
// A row has two passes with a reduction between them. The warps do the first pass of the next row
// before they wait for the reduction, so that its latency is hidden, also where it goes through the
// shared memory of other SMs. A stage of the ring is free after the reduction of the second row
// after its own.
//
// Teams of rows (layer_norm_bwd_team.cuh) take 7 % longer at 4,096 columns, 30 % at 5,000, 28 % at
// 8,192.
//
// Bound by memory: 49,152 x 8,192 f16 take 586 us on an H200, 97 % of a copy of as many bytes
// (kernels/rows/measured/rows.md). Rows in words: x 4,097 bf16 take 344 us, 83 %.

inline constexpr int kStreamStages = 6;
inline constexpr int kFewStreamStages = 5;
inline constexpr int kStreamThreads = 256;
inline constexpr int kMostStreamThreads = 288;  // if fewer blocks then share a row
inline constexpr int kMostStreamCluster = 8;
inline constexpr int64_t kMostStreamBytes = 227 * 1024;  // of an SM

/// Columns of a thread, and of a block of kStreamThreads.
template <class T>
inline constexpr int kStreamElements = sizeof(T) == 2 ? 32 : 16;
template <class T>
inline constexpr int kMostStreamPart = kStreamThreads* kStreamElements<T>;

/// Whether rows of at least `least` columns have this kernel; `reach`: columns, with the lead.
template <class T>
bool is_streamed(const CudaContext& context, int64_t reach, int64_t least) {
  return context.kernels == KernelSet::kSm90a && reach >= least &&
         reach <= int64_t{kMostStreamCluster} * kMostStreamPart<T>;
}

struct StreamPlan {
  int cluster;  // blocks of a row
  int part;     // cells of a block: columns, and the lead before the first one
  int stages;   // rows of the ring
};

/// The warps' sums; four turns, so that none is overwritten while it is read.
struct StreamExchange {
  static constexpr int kTurns = 4;
  float2 parts[kTurns][kMostStreamCluster * kMostStreamThreads / kWarpThreads];
  uint64_t full[kStreamStages];
  uint64_t reduced[kTurns];
};

template <class Norm, bool kInWords, bool kClusters, int kThreads>
__global__ void __launch_bounds__(kThreads, 1)
    layer_norm_bwd_stream_kernel(const __grid_constant__ Norm p, int64_t rows, int64_t columns,
                                 StreamPlan plan) {
#if __CUDA_ARCH__ == 900  // bulk copies and clusters; portable kernels are other ones
  using T = typename Norm::Element;
  constexpr int N = kVecSize;
  constexpr int kVecs = kStreamElements<T> / N;
  constexpr int kHeldAfter = 2;  // rows that a stage is read after its reduction
  extern __shared__ __align__(kCopyLineBytes) uint4 ring[];
  __shared__ StreamExchange exchange;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpThreads;
  const int warp = thread / kWarpThreads;
  const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
  const int cluster = kClusters ? plan.cluster : 1;
  const int rank = kClusters ? static_cast<int>(blockIdx.x) % cluster : 0;
  const int team = static_cast<int>(blockIdx.x) / cluster;
  const int teams = static_cast<int>(gridDim.x) / cluster;
  const int first_lead = kInWords ? lead_of(p.dy.matrix) : 0;
  const int lead = kInWords ? static_cast<int>((first_lead + team * columns) % kVecSize) : 0;
  const int64_t begin = static_cast<int64_t>(rank) * plan.part - lead;
  const int own_columns =
      static_cast<int>(columns - begin < plan.part ? columns - begin : plan.part);
  const int first_column = (warp * kVecs * kWarpThreads + lane) * N;
  const auto offset = [](int k) { return k * (kWarpThreads * N); };
  const auto has = [&](int k) { return first_column + offset(k) < own_columns; };
  const auto column = [&](int k) { return static_cast<int>(begin) + first_column + offset(k); };
  const int row_columns = static_cast<int>(columns);
  T* const slots = reinterpret_cast<T*>(ring);
  const int slot = static_cast<int>(line_slot<T>(plan.part));
  // Where the block's part of a row begins in its slot.
  const auto shift_of = [&](int64_t row) {
    return static_cast<int>((row * columns + begin + first_lead) % kCopyLine<T>);
  };
  const auto full = [&](int stage) { return shared_address(&exchange.full[stage]); };
  const auto reduced = [&](int turn) {
    return shared_address(&exchange.reduced[turn % StreamExchange::kTurns]);
  };

  if (thread == 0) {
    for (int s = 0; s < plan.stages; ++s) mbarrier_init(full(s), 1);
    for (int turn = 0; turn < StreamExchange::kTurns; ++turn) {
      mbarrier_init(reduced(turn), kClusters ? 1 : warps * kWarpThreads);
    }
    fence_mbarrier_init();
  }
  if constexpr (kClusters) {
    cluster_barrier_of_lanes();
  } else {
    __syncthreads();
  }
  // One lane of the last warp, which has the fewest columns.
  const bool sends = lane == 0 && warp == warps - 1;
  const T* const x_matrix = reinterpret_cast<const T*>(p.x.matrix);
  const auto request = [&](int turn, int stage) {
    const int64_t row = team + static_cast<int64_t>(turn) * teams;
    if (row >= rows) return;
    int64_t from = row * columns + begin;
    T* to = slots + 2 * stage * slot + shift_of(row);
    int elements = own_columns;
    if constexpr (kInWords) {
      elements = (own_columns + N - 1) / N * N;
      copy_outer_words(to, p.dy.matrix, from, elements, rows * columns);
      const CellRange whole = copy_outer_words(to + slot, x_matrix, from, elements, rows * columns);
      from += whole.begin;
      to += whole.begin;
      elements = whole.end - whole.begin;
    }
    const uint32_t bytes = static_cast<uint32_t>(elements) * sizeof(T);
    mbarrier_arrive_expect_tx(full(stage), 2 * bytes);
    bulk_load(shared_address(to), p.dy.matrix + from, bytes, full(stage));
    bulk_load(shared_address(to + slot), x_matrix + from, bytes, full(stage));
  };
  if (sends) {
    for (int turn = 0; turn < plan.stages; ++turn) request(turn, turn);
  }

  float gamma[kVecs][N];
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {  // as if in words: gamma may be misaligned
    to_floats(load_part<true>(p.gamma, column(k), row_columns, 1.0f), gamma[k]);
  }
  float dgamma[kVecs][N] = {};
  float dbeta[kVecs][N] = {};
  const float per_column = 1.0f / static_cast<float>(columns);
  // work(k) for the thread's vectors; without tests between them where a warp has all of its
  // columns.
  const bool has_all =
      (warp + 1) * (kVecs * N * kWarpThreads) <= own_columns && (warp > 0 || begin >= 0);
  const auto for_own = [&](const auto& work) {
    if (has_all) {
#pragma unroll
      for (int k = 0; k < kVecs; ++k) work(k);
    } else {
#pragma unroll
      for (int k = 0; k < kVecs; ++k) {
        if (has(k)) work(k);
      }
    }
  };
  const auto beyond = [&](int k) { return RowPlace{0, offset(k), offset(k)}; };
  // Loads the row whose first vector of this thread is at `own`, and at `cell` in the ring.
  const auto load = [&](const RowPlace& own, int cell, int k, float(&dy)[N], float(&x)[N]) {
    const T* const at = slots + (cell + offset(k));
    numbers_of(p.dy, own + beyond(k), load_vec<N>(at), dy);
    numbers_of(p.x, own + beyond(k), load_vec<N>(at + slot), x);
  };
  const int turns = static_cast<int>((rows - team + teams - 1) / teams);
  RowStatistics next = statistics_of(p, team, rows);
  RowStatistics before = next;
  int stage = 0;
  int cell_before = 0;
  int shift = shift_of(team);
  const int shift_step = static_cast<int>(teams * columns % kCopyLine<T>);
  RowPlace own{team, begin + first_column, team * columns + begin + first_column};
  RowPlace own_before = own;
  const RowPlace step{teams, 0, teams * columns};
  int free_stage = 0;
  uint32_t parity = 0;
  for (int turn = 0; turn <= turns; ++turn) {
    const RowStatistics row = next;
    const int cell = 2 * stage * slot + first_column + shift;
    shift = (shift + shift_step) % kCopyLine<T>;
    if (turn < turns) {
      next = statistics_of(p, team + static_cast<int64_t>(turn + 1) * teams, rows);
      mbarrier_wait(full(stage), parity);
      float sums[2] = {};
      for_own([&](int k) {
        float dy[N];
        float x[N];
        load(own, cell, k, dy, x);
        if constexpr (kInWords) {
          if (!has_all) {
            keep_columns(dy, column(k), row_columns, 0.0f);
            keep_columns(x, column(k), row_columns, 0.0f);
          }
        }
        add_gradient_sums(dy, x, gamma[k], row, sums, dgamma[k], dbeta[k]);
      });
      sums[1] *= row.rstd;
      reduce_lanes(sums, kWarpThreads, Add());
      float2* const part = &exchange.parts[turn % StreamExchange::kTurns][rank * warps + warp];
      if constexpr (kClusters) {
        // Not by arrivals that release: those wait for the stores of dx.
        if (sends) {
          mbarrier_arrive_expect_tx(reduced(turn),
                                    warps * cluster * static_cast<int>(sizeof(float2)));
        }
        if (lane < cluster) {
          store_async(address_in_rank(shared_address(part), lane), make_float2(sums[0], sums[1]),
                      address_in_rank(reduced(turn), lane));
        }
      } else {
        if (lane == 0) *part = make_float2(sums[0], sums[1]);
        mbarrier_arrive(reduced(turn));  // every lane: racecheck does not follow one for its warp
      }
      if (++stage == plan.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    if (turn > 0) {
      const int old = turn - 1;
      mbarrier_wait(reduced(old), static_cast<uint32_t>(old / StreamExchange::kTurns) & 1);
      if (old >= kHeldAfter) {
        if (sends) request(old - kHeldAfter + plan.stages, free_stage);
        if (++free_stage == plan.stages) free_stage = 0;
      }
      float sums[2] = {};
      for (int other = lane; other < cluster * warps; other += kWarpThreads) {
        const float2 part = exchange.parts[old % StreamExchange::kTurns][other];
        sums[0] += part.x;
        sums[1] += part.y;
      }
      reduce_lanes(sums, kWarpThreads, Add());
      // dx = rstd * (g - mean(g) - normalized * mean(g * normalized))
      const float slope = -before.rstd * before.rstd * sums[1] * per_column;
      const float constant = -fmaf(before.mean, slope, before.rstd * sums[0] * per_column);
      for_own([&](int k) {
        float dy[N];
        float x[N];
        load(own_before, cell_before, k, dy, x);
        float dx[N];
        for (int i = 0; i < N; ++i) {
          dx[i] = fmaf(dy[i] * gamma[k][i], before.rstd, fmaf(x[i], slope, constant));
        }
        put_columns<kInWords>(p.dx, own_before + beyond(k), row_columns, dx);
      });
    }
    before = row;
    cell_before = cell;
    own_before = own;
    own = own + step;
  }

  float* const sums_to = p.partial + static_cast<int64_t>(team) * 2 * columns + begin;
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
    if (!has(k)) continue;
    float* const own = sums_to + first_column + offset(k);
    for (int i = 0; i < N; ++i) {
      if (kInWords && !has_column(column(k) + i, row_columns)) continue;
      own[i] = dgamma[k][i];
      own[columns + i] = dbeta[k][i];
    }
  }
  if constexpr (kClusters) cluster_barrier_of_lanes();  // none exits while it is written to
#else
  __trap();
#endif
}

/// There is at least one row, and columns are is_streamed.
template <bool kInWords, int kThreads = kStreamThreads, class Norm, class TakePartial>
void launch_layer_norm_bwd_stream(const CudaContext& context, Norm p, int64_t rows, int64_t columns,
                                  const TakePartial& take_partial) {
  using T = typename Norm::Element;
  const int64_t reach = columns + (kInWords ? kMostLead : 0);
  const auto blocks_of_row = [&](int64_t threads) {
    int64_t blocks = 1;
    while (reach > blocks * threads * kStreamElements<T>) blocks *= 2;
    return static_cast<int>(blocks);
  };
  const int cluster = blocks_of_row(kThreads);
  if constexpr (kInWords && kThreads < kMostStreamThreads) {
    if (blocks_of_row(kMostStreamThreads) < cluster) {
      return launch_layer_norm_bwd_stream<true, kMostStreamThreads>(context, p, rows, columns,
                                                                    take_partial);
    }
  }
  auto* const kernel = cluster == 1 ? &layer_norm_bwd_stream_kernel<Norm, kInWords, false, kThreads>
                                    : &layer_norm_bwd_stream_kernel<Norm, kInWords, true, kThreads>;
  const int64_t vecs = (reach + kVecSize - 1) / kVecSize;
  StreamPlan plan{.cluster = cluster,
                  .part = static_cast<int>((vecs + cluster - 1) / cluster * kVecSize),
                  .stages = kStreamStages};
  const unsigned threads = kWarpThreads * blocks_for(plan.part, kStreamElements<T> * kWarpThreads,
                                                     kThreads / kWarpThreads);
  const int64_t row_bytes = int64_t{2} * sizeof(T) * line_slot<T>(plan.part);
  for (int64_t blocks = resident_blocks(kernel, threads);; --blocks) {
    const int64_t of_block = kMostStreamBytes / blocks - 1024 - int64_t{sizeof(StreamExchange)};
    plan.stages = static_cast<int>(of_block / row_bytes);
    if (plan.stages >= kFewStreamStages || blocks == 1) break;
  }
  if (plan.stages > kStreamStages) plan.stages = kStreamStages;
  LaunchShape shape{cluster, threads, plan.stages * row_bytes, cluster > 1 ? cluster : 0};
  const int64_t resident =
      cluster > 1 ? resident_clusters(kernel, shape)
                  : resident_blocks(kernel, threads, shape.shared_bytes) * context.sm_count;
  unsigned teams = blocks_for(rows, 1, resident);
  const auto period = static_cast<unsigned>(kInWords ? lead_period(columns) : 1);
  if (teams >= period) teams -= teams % period;
  shape.blocks = int64_t{teams} * cluster;
  p.partial = take_partial(teams);
  launch_kernel(context.stream, kernel, shape, p, rows, columns, plan);
}

}  // namespace bertha
