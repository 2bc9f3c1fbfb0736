// Softmax cross-entropy, its gradient in place, and the accuracy count.
//
// A block per row keeps the row in shared memory, so that the logits cross the memory bus once in
// each direction; three blocks per SM overlap their phases. A second kernel adds up the rows'
// results in a fixed order.
//
// Bound by  instructions: the schedulers issue in 91 % of all cycles; two exponentials per element.
// Figure    3,686 x 30,528 bf16 with gradient, one H200: 134.5 us, 78 % of the rate of a copy
//           (kernels/measured/cross_entropy.md).

#include <cuda_pipeline_primitives.h>

#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/ops/cross_entropy.h"

namespace bertha {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocks = 3;  // per SM: the number of 16-bit rows that fit into its shared memory
constexpr int kFinishThreads = 1024;
constexpr int64_t kExchangeBytes = 1024;  // shared memory in addition to the row

/// A row's contribution to the totals.
struct RowResult {
  double loss;
  int32_t correct;
  int32_t counted;
};

/// work(i, value) for the elements of a vec that are classes. Only the last vec has others.
template <int N, class Work>
__device__ __forceinline__ void for_classes(const float (&vec)[N], int classes_left,
                                            const Work& work) {
  if (classes_left >= N) {
#pragma unroll
    for (int i = 0; i < N; ++i) work(i, vec[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < classes_left) work(i, vec[i]);
    }
  }
}

/// A block per row. Each thread reads, keeps and writes the same elements throughout, so its
/// elements in shared memory need no barrier.
template <class T, int N, bool kCached>
__global__ void __launch_bounds__(kThreads, kBlocks)
    cross_entropy_kernel(T* logits, const int32_t* labels, const float* gradient_scale,
                         int64_t row_columns, int64_t row_classes, bool write_gradient,
                         RowResult* results) {
  extern __shared__ __align__(16) unsigned char cache[];
  __shared__ WarpExchange<float, 1, kThreads / kWarpThreads> exchange;
  const int64_t row = blockIdx.x;
  const int columns = static_cast<int>(row_columns);
  const int classes = static_cast<int>(row_classes);
  const int first = static_cast<int>(threadIdx.x) * N;
  constexpr int kStride = kThreads * N;
  T* global = logits + row * row_columns;
  const int32_t label = labels[row];
  if (label < 0) {
    const float zeros[N] = {};
    if (write_gradient) {
      for (int at = first; at < columns; at += kStride) store_floats<N>(global + at, zeros);
    }
    if (threadIdx.x == 0) results[row] = {0.0, 0, 0};
    return;
  }

  const T* values = global;
  if constexpr (kCached) {
    T* own = reinterpret_cast<T*>(cache);
    constexpr int kWordElements = 16 / static_cast<int>(sizeof(T));
    for (int at = first; at < classes; at += kStride) {
#pragma unroll
      for (int word = 0; word < N; word += kWordElements) {
        __pipeline_memcpy_async(own + at + word, global + at + word, 16);
      }
    }
    __pipeline_commit();
    values = own;
  }
  const float label_logit = to_float(global[label]);
  const float scale = write_gradient ? gradient_scale[0] : 0.0f;
  if constexpr (kCached) __pipeline_wait_prior(0);

  float vec[N];
  float top[1] = {-INFINITY};
  for (int at = first; at < classes; at += kStride) {
    load_floats<N>(values + at, vec);
    // A NaN never wins the comparison, but appears in the sum.
    for_classes(vec, classes - at, [&](int, float value) { top[0] = fmaxf(top[0], value); });
  }
  block_reduce(top, Larger{}, exchange, 0);

  float sum[1] = {};
  for (int at = first; at < classes; at += kStride) {
    float vec_sum = 0.0f;
    load_floats<N>(values + at, vec);
    for_classes(vec, classes - at, [&](int, float value) { vec_sum += __expf(value - top[0]); });
    sum[0] += vec_sum;
  }
  block_reduce(sum, Add{}, exchange, 1);

  // The label is the argmax when it has the largest logit and no lower id has the same.
  bool correct = label_logit == top[0];
  if (correct) {
    int same_before = 0;
    for (int at = first; at < label; at += kStride) {
      load_floats<N>(values + at, vec);
      for_classes(vec, label - at, [&](int, float value) { same_before |= value == top[0]; });
    }
    correct = __syncthreads_or(same_before) == 0;
  }
  if (threadIdx.x == 0) {
    const double loss = static_cast<double>(logf(sum[0])) + static_cast<double>(top[0]) -
                        static_cast<double>(label_logit);
    results[row] = {loss, correct ? 1 : 0, 1};
  }
  if (!write_gradient) return;

  const float row_scale = scale / sum[0];
  for (int at = first; at < columns; at += kStride) {
    float gradient[N] = {};
    if (at < classes) {
      load_floats<N>(values + at, vec);
      for_classes(vec, classes - at, [&](int i, float value) {
        gradient[i] = __expf(value - top[0]) * row_scale - (at + i == label ? scale : 0.0f);
      });
    }
    store_floats<N>(global + at, gradient);
  }
}

/// Adds the rows' results in a fixed order.
__global__ void __launch_bounds__(kFinishThreads)
    add_results_kernel(const RowResult* results, int64_t rows, double* loss_sum, int64_t* correct,
                       int64_t* rows_counted) {
  __shared__ double partial_loss[kWarpThreads];
  __shared__ int64_t partial_count[kWarpThreads];
  double loss = 0.0;
  int64_t hits = 0;
  int64_t counted = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < rows; row += kFinishThreads) {
    loss += results[row].loss;
    hits += results[row].correct;
    counted += results[row].counted;
  }
  loss = block_sum(loss, partial_loss);
  hits = block_sum(hits, partial_count);
  counted = block_sum(counted, partial_count);
  if (threadIdx.x != 0) return;
  loss_sum[0] += loss;
  correct[0] += hits;
  rows_counted[0] += counted;
}

template <class T, int N, bool kCached>
void launch(CudaContext& context, const CrossEntropy& args, RowResult* results) {
  const int64_t rows = args.logits.extent(0);
  const int64_t columns = args.logits.extent(1);
  const int64_t cache_bytes = kCached ? columns * static_cast<int64_t>(sizeof(T)) : 0;
  launch_kernel(context.stream, cross_entropy_kernel<T, N, kCached>, {rows, kThreads, cache_bytes},
                elements<T>(args.logits), elements<int32_t>(args.labels),
                elements<float>(args.gradient_scale), columns, args.classes, args.write_gradient,
                results);
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const CrossEntropy& args) {
  const int64_t rows = args.logits.extent(0);
  if (rows == 0) return;
  auto* results =
      static_cast<RowResult*>(context.scratch.take(rows * static_cast<int64_t>(sizeof(RowResult))));
  const int64_t columns = args.logits.extent(1);
  BERTHA_CHECK(columns < (int64_t{1} << 30), "rows of ", columns, " logits, want less than 2^30");
  const bool aligned = columns % kVecSize == 0 && is_aligned({args.logits.data});
  const bool fits =
      columns * size_bytes(args.logits.dtype) <= context.device.shared_bytes() - kExchangeBytes;
  dispatch_io(args.logits.dtype, [&]<class T>(TypeTag<T>) {
    if (aligned && fits) {
      launch<T, kVecSize, true>(context, args, results);
    } else if (aligned) {
      launch<T, kVecSize, false>(context, args, results);
    } else {
      launch<T, 1, false>(context, args, results);
    }
  });
  launch_kernel(context.stream, add_results_kernel, {1, kFinishThreads}, results, rows,
                elements<double>(args.loss_sum), elements<int64_t>(args.correct),
                elements<int64_t>(args.rows_counted));
}

}  // namespace bertha
