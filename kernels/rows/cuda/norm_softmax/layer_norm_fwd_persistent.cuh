#pragma once

#include "kernels/base/cuda/barrier.cuh"
#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_operands.cuh"
#include "kernels/rows/cuda/norm_softmax/row_words.cuh"

namespace bertha {

// LayerNorm forward of rows of 16 bits up to 33,792 columns: from 16,385 on a multiple of 8 at
// 16-byte aligned addresses, or from 1,274 on matrices that begin anywhere (row_words.cuh). Rows of
// a block lie a multiple of 8 apart then.
//
// A persistent grid, so that gamma and beta stay in registers, moved to the columns of the words
// once: read again for every wide row they would come from L2. At 32,768 columns one-shot blocks
// with bulk copies take 14 % longer, generic rows more than twice as long. A producer warp fills a
// ring of shared memory with rows by bulk copies, two rows ahead, and writes the results, which
// replace x in the ring, by bulk stores. Blocks take the next row from a counter: not all SMs are
// equally fast at memory.
//
// Loads have a matrix; their `values` are applied in both passes over the ring. Results of 16 bits
// go to a matrix by way of the ring; others, and results of a Store, are stored by the threads. f32
// parameters of more than 16,896 columns do not fit into the registers and are read for every row.
//
// Bound by memory: 49,152 x 32,768 f16 take 1,585 us on an H200, and x 30,522 bf16 1,488 us, both
// 95 % of a copy of as many bytes (kernels/rows/measured/rows.md).

inline constexpr int kPersistentThreads = 352;  // of the consumers
inline constexpr int kPersistentVecs = 12;      // of a thread, or half as many
inline constexpr int kPersistentStages = 3;
inline constexpr int64_t kMostPersistentColumns =
    int64_t{kPersistentThreads} * kPersistentVecs * kVecSize;

/// Elements of a stage of the ring.
template <class T>
__host__ __device__ constexpr int persistent_stage(int columns) {
  return line_slot<T>(columns + 2 * kMostLead);
}

/// taken [period]: rows after the first ones, by the place in a word at which they begin; zero.
template <class Norm, RowForm kForm, int kVecs>
__global__ void __launch_bounds__(kPersistentThreads + kWarpThreads, 1)
    layer_norm_fwd_persistent_kernel(Norm p, int64_t rows, int columns, int period,
                                     uint32_t* taken) {
#if __CUDA_ARCH__ == 900  // bulk copies; portable kernels are other ones
  using T = typename Norm::Element;
  using Parameter = std::remove_cvref_t<decltype(*p.gamma)>;
  constexpr bool kInWords = kForm == RowForm::kInWords;
  constexpr bool kStoresInBulk = requires { requires sizeof(*p.y.matrix) == 2; };
  constexpr bool kHoldsParameters = sizeof(Parameter) * kVecs <= 2 * kPersistentVecs;
  constexpr int kStages = kPersistentStages;
  constexpr int kSure = kVecs < kPersistentVecs ? 3 : 8;  // vectors that a thread has at any width
  extern __shared__ __align__(kCopyLineBytes) uint4 ring[];
  __shared__ uint64_t full_barriers[kStages];
  __shared__ uint64_t done_barriers[kStages];
  __shared__ int64_t row_of[kStages];  // negative: no more rows
  __shared__ WarpExchange<float, 2, 16> exchange;
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x) - kWarpThreads;  // of the consumers
  const int lane = thread % kWarpThreads;
  const auto full = [&](int stage) { return shared_address(&full_barriers[stage]); };
  const auto done = [&](int stage) { return shared_address(&done_barriers[stage]); };
  // A block's rows begin at the same place in a word: the columns of a thread are the same in all.
  const int kind = static_cast<int>(blockIdx.x) % period;
  const int alike = (static_cast<int>(gridDim.x) - kind + period - 1) / period;  // blocks
  const auto row_at = [&](int64_t turn) { return kind + period * turn; };
  int first_lead = 0;
  int lead = 0;
  if constexpr (kInWords) {
    first_lead = lead_of(p.x.matrix);
    lead = (first_lead + kind * columns) % kVecSize;
  }
  const int cells = (lead + columns + kVecSize - 1) / kVecSize * kVecSize;
  const auto place_of = [&](int stage, int64_t row) {
    return reinterpret_cast<T*>(ring) + stage * persistent_stage<T>(columns) +
           (row * columns + first_lead - lead) % kCopyLine<T>;
  };
  if (thread == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(full(stage), 1);
      mbarrier_init(done(stage), threads);
    }
    fence_mbarrier_init();
  }
  __syncthreads();

  if (thread >= threads) {  // the producer warp
    if (lane != 0) return;
    const auto request = [&](int stage, int64_t row) {
      row_of[stage] = row < rows ? row : -1;
      if (row >= rows) {
        mbarrier_arrive(full(stage));
        return;
      }
      const int64_t at = row * columns - lead;
      T* const to = place_of(stage, row);
      CellRange whole{0, cells};
      if constexpr (kInWords) whole = copy_outer_words(to, p.x.matrix, at, cells, rows * columns);
      const auto bytes = static_cast<uint32_t>((whole.end - whole.begin) * sizeof(T));
      mbarrier_arrive_expect_tx(full(stage), bytes);
      bulk_load(shared_address(to + whole.begin), p.x.matrix + at + whole.begin, bytes,
                full(stage));
    };
    // A row is taken one ahead of its use, which covers the latency of the counter.
    const auto take = [&] { return row_at(int64_t{kStages} * alike + atomicAdd(taken + kind, 1)); };
    int64_t here[kStages];
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      here[stage] = row_at(static_cast<int>(blockIdx.x) / period + int64_t{stage} * alike);
      request(stage, here[stage]);
    }
    int64_t next = take();
    for (uint32_t parity = 0;; parity ^= 1) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        if (here[stage] >= rows) return;
        mbarrier_wait(done(stage), parity);
        if constexpr (kStoresInBulk) {
          const int begin = lead > 0 ? kVecSize : 0;
          bulk_store(p.y.matrix + here[stage] * columns - lead + begin,
                     shared_address(place_of(stage, here[stage]) + begin),
                     ((lead + columns) / kVecSize * kVecSize - begin) * int{sizeof(T)});
          bulk_store_wait();
        }
        here[stage] = next;
        request(stage, next);
        if (next < rows) next = take();
      }
    }
  }

  const auto column = [&](int k) { return (k * threads + thread) * kVecSize - lead; };
  const auto has = [&](int k) { return k < kSure || column(k) < columns; };
  Vec<Parameter, kVecSize> gamma[kVecs];
  Vec<Parameter, kVecSize> beta[kVecs];
  const auto load_parameters = [&](int k) {
    gamma[k] = load_part<kInWords>(p.gamma, column(k), columns, 1.0f);
    beta[k] = load_part<kInWords>(p.beta, column(k), columns, 0.0f);
  };
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
    if (kHoldsParameters && has(k)) load_parameters(k);
  }
  const float per_column = 1.0f / static_cast<float>(columns);

  int stage = 0;
  uint32_t parity = 0;
  for (int turn = 0;; ++turn) {
    mbarrier_wait(full(stage), parity);
    const int64_t row = row_of[stage];
    if (row < 0) return;
    T* const place = place_of(stage, row);
    T* const own = place + thread * kVecSize;
    const auto at = [&](int of_row) { return RowPlace{row, of_row, row * columns + of_row}; };
    const auto read = [&](int k, float(&x)[kVecSize]) {
      numbers_of(p.x, at(column(k)), load_vec(own + k * threads * kVecSize), x);
    };
    // Around the mean of 32 elements of the whole row, see PivotedMoments.
    const int sampled = lane * (columns / kWarpThreads);
    float sample[1];
    numbers_of(p.x, at(sampled), load_vec<1>(place + lead + sampled), sample);
    const float pivot = warp_sum(sample[0]) / kWarpThreads;
    float sums[2] = {};  // of differences to it, and of their squares
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      if (!has(k)) continue;
      float x[kVecSize];
      read(k, x);
      if constexpr (kInWords) keep_columns(x, column(k), columns, pivot);
      add_differences(x, pivot, sums[0], sums[1]);
    }
    block_reduce(sums, Add(), exchange, turn, threads / kWarpThreads,
                 [threads] { named_barrier_sync(1, threads); });
    const PivotedMoments moments = pivoted_moments(pivot, sums, per_column, p.epsilon);
    if (thread == 0) moments.store(p, row);
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      if (!has(k)) continue;
      float x[kVecSize];
      read(k, x);
      if constexpr (kHoldsParameters) {
        keep_packed(gamma[k]);
        keep_packed(beta[k]);
      } else {
        load_parameters(k);
      }
      float y[kVecSize];
      moments.normalize(x, gamma[k], beta[k], y);
      if constexpr (kStoresInBulk) {
        put_columns<kInWords>(p.y, at(column(k)), columns, y, [&](auto*, const auto& vec) {
          store_vec_shared(own + k * threads * kVecSize, bits_as<T>(vec));
        });
      } else {
        put(p.y, at(column(k)), y);
      }
    }
    fence_proxy_async();
    mbarrier_arrive(done(stage));  // every lane: racecheck does not follow one for its warp
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
#else
  __trap();
#endif
}

template <RowForm kForm, int kVecs, class Norm>
void launch_layer_norm_persistent(CudaContext& context, const Norm& p, int64_t rows,
                                  int64_t columns) {
  const auto kernel = &layer_norm_fwd_persistent_kernel<Norm, kForm, kVecs>;
  const int64_t period = kForm == RowForm::kInWords ? lead_period(columns) : 1;
  const int64_t reach = columns + (kForm == RowForm::kInWords ? kMostLead : 0);
  const unsigned threads =
      kWarpThreads *
      (blocks_for(reach, kVecs * kVecSize * kWarpThreads, kPersistentThreads / kWarpThreads) + 1);
  using T = typename Norm::Element;
  const int64_t bytes =
      int64_t{sizeof(T)} * kPersistentStages * persistent_stage<T>(static_cast<int>(columns));
  const unsigned blocks =
      blocks_for(rows, 1, resident_blocks(kernel, threads, bytes) * context.sm_count);
  const size_t counters = sizeof(uint32_t) * period;
  auto* const taken = static_cast<uint32_t*>(context.scratch.take(counters));
  BERTHA_CUDA_CHECK(cudaMemsetAsync(taken, 0, counters, context.stream));
  launch_kernel(context.stream, kernel, {blocks, threads, bytes}, p, rows,
                static_cast<int>(columns), static_cast<int>(period), taken);
}

/// There is at least one row; columns are a multiple of 8 above 16,384 or, in words, any above
/// 1,273, at most kMostPersistentColumns with the lead.
template <RowForm kForm, class Norm>
void launch_layer_norm_fwd_persistent(CudaContext& context, const Norm& p, int64_t rows,
                                      int64_t columns) {
  if constexpr (kForm == RowForm::kInWords) {
    if (columns + kMostLead <= kMostPersistentColumns / 2) {
      return launch_layer_norm_persistent<kForm, kPersistentVecs / 2>(context, p, rows, columns);
    }
  }
  launch_layer_norm_persistent<kForm, kPersistentVecs>(context, p, rows, columns);
}

}  // namespace bertha
