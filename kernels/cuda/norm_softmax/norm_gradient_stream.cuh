#pragma once

#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/norm_softmax/held_norm.cuh"
#include "kernels/cuda/tensor_core/cluster.cuh"

namespace bertha {

// LayerNorm backward of wide rows of 16 bits: the sums of the columns need the registers, so that
// rows wait in a ring of shared memory, filled by bulk copies. Blocks stay, and keep their columns;
// where one block's registers are too few, those of a cluster share a row.
//
// A row has two passes and a meeting of its warps between them. The warps do the first pass of the
// next row before they wait for the meeting: nobody stands still for it, also where it goes through
// the shared memory of other SMs. A place of the ring is free when everybody has met
// over the second row after its own, or over its own where rows stay in registers.

inline constexpr int kStreamStages = 6;
inline constexpr int kFewStreamStages = 5;
inline constexpr int kStreamThreads = 256;
inline constexpr int kMostStreamCluster = 8;
inline constexpr int64_t kMostStreamBytes = 216 * 1024;

/// Of a thread, in packs of N. 30 is as many as four blocks need for the 30,522 words of BERT: all of
/// their warps are nearly full.
template <int N>
inline constexpr int kStreamElements = N == kVecSize ? 32 : 30;
/// Columns of a block, and of a row.
template <int N>
inline constexpr int kMostStreamPart = kStreamThreads* kStreamElements<N>;
template <int N>
inline constexpr int64_t kMostStreamColumns = int64_t{kMostStreamCluster} * kMostStreamPart<N>;

/// Columns of a row's place in the ring, where it lies as far behind a line as in memory.
template <int N>
__host__ __device__ constexpr int slot_columns(int part) {
  const int words = N == kVecSize ? part : part + kVecSize;  // with the rest of its last 16 bytes
  return (words + 2 * (kCopyLineElements - 1)) / kCopyLineElements * kCopyLineElements;
}

struct StreamPlan {
  int cluster;  // blocks of a row
  int part;     // columns of a block
  int stages;   // rows of the ring
};

/// What the warps tell each other; four turns, so that none is overwritten while it is read.
struct StreamMeeting {
  static constexpr int kTurns = 4;
  float2 parts[kTurns][kMostStreamCluster * kWarpThreads];
  uint64_t full[kStreamStages];
  uint64_t met[kTurns];
};

/// N: elements of a pack, 8 where rows begin at 16-byte words of memory, else 2.
template <class T, int N, bool kClusters>
__global__ void __launch_bounds__(kStreamThreads, 1)
    norm_gradient_stream_kernel(const __grid_constant__ HeldNormGradient<T> p, int64_t rows,
                                int64_t columns, StreamPlan plan) {
  constexpr int kPacks = kStreamElements<N> / N;
  // Rows that are read in many small packs stay in registers between their passes.
  constexpr bool kHolds = N < kVecSize;
  constexpr int kHeldAfter = kHolds ? 0 : 2;  // rows that a place is read behind its meeting
  using Raw = RawPack<T, N>;
  extern __shared__ __align__(kCopyLineBytes) uint4 ring[];
  __shared__ StreamMeeting meeting;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpThreads;
  const int warp = thread / kWarpThreads;
  const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
  const int cluster = kClusters ? plan.cluster : 1;
  const int rank = kClusters ? static_cast<int>(blockIdx.x) % cluster : 0;
  const int team = static_cast<int>(blockIdx.x) / cluster;
  const int teams = static_cast<int>(gridDim.x) / cluster;
  const int64_t begin = static_cast<int64_t>(rank) * plan.part;
  const int own_columns =
      static_cast<int>(columns - begin < plan.part ? columns - begin : plan.part);
  const int first_column = (warp * kPacks * kWarpThreads + lane) * N;
  const auto has = [&](int k) { return first_column + k * (kWarpThreads * N) < own_columns; };
  T* const slots = reinterpret_cast<T*>(ring);
  const int slot = slot_columns<N>(plan.part);
  // Where the block's part of a row begins in its place.
  const auto shift_of = [&](int64_t row) {
    return static_cast<int>((row * columns + begin) % kCopyLineElements);
  };
  const auto full = [&](int stage) { return shared_address(&meeting.full[stage]); };
  const auto met = [&](int turn) {
    return shared_address(&meeting.met[turn % StreamMeeting::kTurns]);
  };

  if (thread == 0) {
    for (int s = 0; s < plan.stages; ++s) barrier_init(full(s), 1);
    for (int turn = 0; turn < StreamMeeting::kTurns; ++turn) {
      barrier_init(met(turn), kClusters ? 1 : warps * kWarpThreads);
    }
    fence_barrier_init();
  }
  if constexpr (kClusters) {
    cluster_barrier_of_lanes();
  } else {
    __syncthreads();
  }
  // One lane of the last warp, which has the fewest columns.
  const bool sends = lane == 0 && warp == warps - 1;
  const auto request = [&](int turn, int stage) {
    const int64_t row = team + static_cast<int64_t>(turn) * teams;
    if (row >= rows) return;
    // Elements of the first word of 16 bytes that are not the part's are copied with it.
    const int others = shift_of(row) % kVecSize;
    const int64_t from = row * columns + begin - others;
    T* const to = slots + 2 * stage * slot + shift_of(row) - others;
    int copied = others + own_columns;
    if constexpr (N < kVecSize) {
      // Whole words; the matrix's last ones, behind which nothing is anybody's, by hand.
      const int there = copied;
      copied = (copied + kVecSize - 1) / kVecSize * kVecSize;
      if (from + copied > rows * columns) {
        copied -= kVecSize;
        for (int k = 0; k < 2; ++k) {
          for (int i = copied; i < there; ++i) {
            to[k * slot + i] = p.inputs[k][from + i];
          }
        }
      }
    }
    const uint32_t bytes = static_cast<uint32_t>(copied) * 2;
    barrier_arrive_expecting(full(stage), 2 * bytes);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      copy_bytes_async(shared_address(to + k * slot), p.inputs[k] + from, bytes, full(stage));
    }
  };
  if (sends) {
    for (int turn = 0; turn < plan.stages; ++turn) request(turn, turn);
  }

  float gamma[kPacks][N];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i) gamma[k][i] = 1.0f;
    if (p.gamma != nullptr && has(k)) {
      Raw raw;
      raw.load_anywhere(p.gamma + begin + first_column + k * (kWarpThreads * N));
      raw.unpack(gamma[k]);
    }
  }
  float dgamma[kPacks][N] = {};
  float dbeta[kPacks][N] = {};
  const float per_column = 1.0f / static_cast<float>(columns);
  // work(k) for the thread's packs. Where a warp has all of its columns nothing is asked between them.
  const bool has_all = (warp + 1) * (kStreamElements<N> * kWarpThreads) <= own_columns;
  const auto for_own = [&](const auto& work) {
    if (has_all) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) work(k);
    } else {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        if (has(k)) work(k);
      }
    }
  };
  // Rows that stay in registers have zeros beyond their columns, and are passed over without questions.
  const auto for_kept = [&](const auto& work) {
    if constexpr (kHolds) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) work(k);
    } else {
      for_own(work);
    }
  };
  const auto load = [&](int place, int k, Raw(&raw)[2]) {
    const T* const at = slots + (place + k * (kWarpThreads * N));
    raw[0].load(at);
    raw[1].load(at + slot);
  };
  constexpr int kHeld = kHolds ? kPacks : 1;
  Raw held[kHeld][2] = {};
  Raw held_before[kHeld][2] = {};
  const auto unpack = [&](int k, const Raw(&row)[kHeld][2], int place, float(&dy)[N],
                          float(&x)[N]) {
    Raw raw[2];
    if constexpr (kHolds) {
      raw[0] = row[k][0];
      raw[1] = row[k][1];
    } else {
      load(place, k, raw);
    }
    raw[0].unpack(dy);
    raw[1].unpack(x);
  };

  const int turns = static_cast<int>((rows - team + teams - 1) / teams);
  auto next = p.of_row(team, rows);
  auto before = next;
  int stage = 0;
  int place_before = 0;
  int shift = shift_of(team);
  const int shift_step = static_cast<int>(teams * columns % kCopyLineElements);
  T* to = p.output + team * columns + begin + first_column;
  const int64_t to_step = teams * columns;
  int free_stage = 0;
  uint32_t parity = 0;
  for (int turn = 0; turn <= turns; ++turn) {
    const auto row = next;
    const int place = 2 * stage * slot + first_column + shift;
    shift = (shift + shift_step) % kCopyLineElements;
    if (turn < turns) {
      next = p.of_row(team + static_cast<int64_t>(turn + 1) * teams, rows);
      barrier_wait(full(stage), parity);
      float sums[2] = {};  // of g = dy * gamma, and of g * normalized
      if constexpr (kHolds) {
#pragma unroll
        for (int k = 0; k < kPacks; ++k) {
          if (has(k)) load(place, k, held[k]);
        }
      }
      for_kept([&](int k) {
        float dy[N];
        float x[N];
        unpack(k, held, place, dy, x);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float of_gamma = dy[i] * (x[i] - row.mean);  // times rstd
          sums[0] = fmaf(dy[i], gamma[k][i], sums[0]);
          sums[1] = fmaf(of_gamma, gamma[k][i], sums[1]);
          dgamma[k][i] = fmaf(of_gamma, row.rstd, dgamma[k][i]);
          dbeta[k][i] += dy[i];
        }
      });
      sums[1] *= row.rstd;
      reduce_lanes(sums, kWarpThreads, Add());
      float2* const left = &meeting.parts[turn % StreamMeeting::kTurns][rank * warps + warp];
      if constexpr (kClusters) {
        // Not by arrivals that release: those wait for the stores of dx.
        if (sends) {
          barrier_arrive_expecting(met(turn), warps * cluster * static_cast<int>(sizeof(float2)));
        }
        if (lane < cluster) {
          store_async(address_in_rank(shared_address(left), lane), make_float2(sums[0], sums[1]),
                      address_in_rank(met(turn), lane));
        }
      } else {
        if (lane == 0) *left = make_float2(sums[0], sums[1]);
        barrier_arrive(met(turn));  // every lane: racecheck does not follow one for its warp
      }
      if (++stage == plan.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    if (turn > 0) {
      const int old = turn - 1;
      barrier_wait(met(old), static_cast<uint32_t>(old / StreamMeeting::kTurns) & 1);
      if (old >= kHeldAfter) {
        if (sends) request(old - kHeldAfter + plan.stages, free_stage);
        if (++free_stage == plan.stages) free_stage = 0;
      }
      float sums[2] = {};
      for (int other = lane; other < cluster * warps; other += kWarpThreads) {
        const float2 part = meeting.parts[old % StreamMeeting::kTurns][other];
        sums[0] += part.x;
        sums[1] += part.y;
      }
      reduce_lanes(sums, kWarpThreads, Add());
      // dx = rstd * (g - mean(g) - normalized * mean(g * normalized))
      const float slope = -before.rstd * before.rstd * sums[1] * per_column;
      const float constant = -fmaf(before.mean, slope, before.rstd * sums[0] * per_column);
      for_kept([&](int k) {
        float dy[N];
        float x[N];
        unpack(k, held_before, place_before, dy, x);
        float gradient[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
          gradient[i] = fmaf(dy[i] * gamma[k][i], before.rstd, fmaf(x[i], slope, constant));
        }
        Raw rounded;
        rounded.pack(gradient);
        if (!kHolds || has(k)) rounded.store(to + k * (kWarpThreads * N));
      });
      to += to_step;
    }
    if constexpr (kHolds) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        held_before[k][0] = held[k][0];
        held_before[k][1] = held[k][1];
      }
    }
    before = row;
    place_before = place;
  }

  float* const sums_to = p.partial + static_cast<int64_t>(team) * 2 * columns + begin;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (!has(k)) continue;
    float* const own = sums_to + first_column + k * (kWarpThreads * N);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      own[i] = dgamma[k][i];
      own[columns + i] = dbeta[k][i];
    }
  }
  if constexpr (kClusters) cluster_barrier_of_lanes();  // none leaves while it is written to
}

template <int N, bool kClusters, class T, class TakePartial>
void launch_stream(const CudaContext& context, HeldNormGradient<T> norm, int64_t rows,
                   int64_t columns, int cluster, const TakePartial& take_partial) {
  constexpr int kWarpColumns = kStreamElements<N> * kWarpThreads;
  const auto kernel = &norm_gradient_stream_kernel<T, N, kClusters>;
  const int64_t octets = (columns + kVecSize - 1) / kVecSize;
  StreamPlan plan{.cluster = cluster,
                  .part = static_cast<int>((octets + cluster - 1) / cluster * kVecSize),
                  .stages = kStreamStages};
  const unsigned threads =
      kWarpThreads * blocks_for(plan.part, kWarpColumns, kStreamThreads / kWarpThreads);
  const int64_t row_bytes =
      int64_t{2} * 2 * slot_columns<N>(plan.part);  // at most a sixth of the ring
  int blocks = 1;
  BERTHA_CUDA_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), 0));
  for (;; --blocks) {
    plan.stages = static_cast<int>((kMostStreamBytes / blocks - 8192 * (blocks - 1)) / row_bytes);
    if (plan.stages >= kFewStreamStages || blocks == 1) break;
  }
  if (plan.stages > kStreamStages) plan.stages = kStreamStages;
  const int64_t bytes = plan.stages * row_bytes;
  allow_shared_bytes(kernel, bytes);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = context.stream;
  config.attrs = &attribute;
  config.numAttrs = kClusters ? 1 : 0;
  int teams = 0;
  if constexpr (kClusters) {
    BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&teams, kernel, &config));
  } else {
    BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &teams, kernel, static_cast<int>(threads), static_cast<size_t>(bytes)));
    teams *= context.sm_count;
  }
  const unsigned groups = blocks_for(rows, 1, teams);
  config.gridDim = dim3(groups * static_cast<unsigned>(cluster));
  norm.partial = take_partial(groups);
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, norm, rows, columns, plan));
}

/// Rows at 16-byte words of at most kMostStreamColumns<N>; of whole octets where N is 8, else of an even
/// number. There is at least one. take_partial(groups) makes room for as many partial sums.
template <int N, class T, class TakePartial>
void launch_norm_gradient_stream(const CudaContext& context, const HeldNormGradient<T>& norm,
                                 int64_t rows, int64_t columns, const TakePartial& take_partial) {
  int cluster = 1;
  while (columns > int64_t{cluster} * kMostStreamPart<N>) cluster *= 2;
  if (cluster == 1) {
    launch_stream<N, false>(context, norm, rows, columns, cluster, take_partial);
  } else {
    launch_stream<N, true>(context, norm, rows, columns, cluster, take_partial);
  }
}

}  // namespace bertha
