// Gather of rows, and scatter-add to unique rows: a warp per row, 16 bytes per thread.
//
// Bound by  the launch at BERT's sizes, else memory.
// Figure    3,686 x 1,024 bf16, one H200: gather 5.4 us, scatter-add 5.8 us, where the bytes take
//           3.5.

#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/ops/gather_scatter.h"

namespace bertha {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpThreads;
constexpr int kBlocksPerSm = 8;

/// The rows of a warp, and its first vec.
struct WarpRows {
  __device__ WarpRows()
      : first(static_cast<int64_t>(blockIdx.x) * kWarps +
              static_cast<int>(threadIdx.x) / kWarpThreads),
        stride(static_cast<int64_t>(gridDim.x) * kWarps),
        lane(static_cast<int>(threadIdx.x) % kWarpThreads) {}
  int64_t first;
  int64_t stride;
  int lane;
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const T* source, const int32_t* indices, int64_t rows, int64_t vecs,
                       T* picked) {
  using RowVec = Vec<T, N>;
  const WarpRows warp;
  for (int64_t row = warp.first; row < rows; row += warp.stride) {
    const int32_t index = indices[row];
    const RowVec* from = reinterpret_cast<const RowVec*>(source) + index * vecs;
    RowVec* to = reinterpret_cast<RowVec*>(picked) + row * vecs;
    RowVec zeros;
#pragma unroll
    for (int i = 0; i < N; ++i) zeros.elem[i] = from_float<T>(0.0f);
#pragma unroll 4
    for (int64_t p = warp.lane; p < vecs; p += kWarpThreads) to[p] = index < 0 ? zeros : from[p];
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    scatter_add_rows_kernel(const T* from_rows, const int32_t* indices, int64_t rows, int64_t vecs,
                            T* target) {
  const WarpRows warp;
  for (int64_t row = warp.first; row < rows; row += warp.stride) {
    const int32_t index = indices[row];
    if (index < 0) continue;
    const T* from = from_rows + row * vecs * N;
    T* to = target + index * vecs * N;
#pragma unroll 4
    for (int64_t p = warp.lane; p < vecs; p += kWarpThreads) {
      float sum[N];
      float added[N];
      load_floats<N>(to + p * N, sum);
      load_floats<N>(from + p * N, added);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += added[i];
      store_floats<N>(to + p * N, sum);
    }
  }
}

/// Whether all rows can be accessed in 16 bytes at a time.
bool has_wide_rows(const View& a, const View& b) {
  return is_aligned({a.data, b.data}) && a.extent(1) * size_bytes(a.dtype) % 16 == 0;
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const GatherRows& args) {
  const int64_t rows = args.picked.extent(0);
  if (args.picked.elements() == 0) return;
  dispatch_io(args.picked.dtype, [&]<class T>(TypeTag<T>) {
    dispatch_vec<T>(has_wide_rows(args.source, args.picked),
                    [&]<int N>(std::integral_constant<int, N>) {
                      launch_kernel(context.stream, gather_rows_kernel<T, N>,
                                    {blocks_on(context, rows, kWarps, kBlocksPerSm), kThreads},
                                    elements<T>(args.source), elements<int32_t>(args.indices), rows,
                                    args.picked.extent(1) / N, elements<T>(args.picked));
                    });
  });
}

template <>
void run_cuda(CudaContext& context, const ScatterAddRows& args) {
  const int64_t rows = args.rows.extent(0);
  if (args.rows.elements() == 0) return;
  dispatch_io(args.rows.dtype, [&]<class T>(TypeTag<T>) {
    dispatch_vec<T>(has_wide_rows(args.rows, args.target),
                    [&]<int N>(std::integral_constant<int, N>) {
                      launch_kernel(context.stream, scatter_add_rows_kernel<T, N>,
                                    {blocks_on(context, rows, kWarps, kBlocksPerSm), kThreads},
                                    elements<T>(args.rows), elements<int32_t>(args.indices), rows,
                                    args.rows.extent(1) / N, elements<T>(args.target));
                    });
  });
}

}  // namespace bertha
