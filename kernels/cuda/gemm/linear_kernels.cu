// The element-wise passes and column sums of linear layers that no GEMM epilogue covers.
//
// Column sums: a warp reads 512 bytes of a row, the warps of a block take its rows round-robin with
// 8 loads in flight; each block stores a partial sum, and a second kernel adds these in a fixed
// order. Of the activations gelu' of the masked positions, tanh of the pooler, f32 and GELUs that
// the own GEMMs do not serve come here in training; their arithmetic stays as on the CPU backend.
//
// Bound by  memory (sums), exp and division (gelu).
// Figure    column sums of 24,576 x 4,096 in bf16, one H200: 55 us, 3.7 of 4.3 TB/s. More:
//           kernels/measured/gemm.md.

#include "kernels/cuda/gemm/linear_kernels.h"

#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/column_sums.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/base/divide.h"
#include "kernels/cuda/gemm/gelu.cuh"

namespace bertha {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpThreads;
constexpr int kBlocksPerSm = 8;  // 2,048 resident threads

template <Activation kActivation>
__device__ __forceinline__ float activated(float z) {
  if constexpr (kActivation == Activation::kGeluTanh) return gelu(z);
  if constexpr (kActivation == Activation::kTanh) return tanhf(z);
  if constexpr (kActivation == Activation::kGelu) return gelu_erf(z);
  return z;
}

/// The derivative, from the pre-activation (GELUs), the output (tanh) or its byte (kNone).
template <Activation kActivation>
__device__ __forceinline__ float derivative(float saved) {
  if constexpr (kActivation == Activation::kGeluTanh) return gelu_derivative(saved);
  if constexpr (kActivation == Activation::kTanh) return 1.0f - saved * saved;
  if constexpr (kActivation == Activation::kGelu) return gelu_erf_derivative(saved);
  return (saved - kDerivativeZero) * kDerivativeStep;
}

/// kVec elements per thread: 16 bytes, or 1 element if rows or addresses do not allow that.
template <class T, int kVec, Activation kActivation>
__global__ void __launch_bounds__(kThreads)
    bias_activation_kernel(T* z, const T* bias, T* y, uint8_t* derivatives, int64_t vecs,
                           int64_t columns) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vecs;
       i += stride) {
    float value[kVec];
    load_floats(z + i * kVec, value);
    if (bias != nullptr) {
      float added[kVec];
      load_floats(bias + i * kVec % columns, added);
#pragma unroll
      for (int e = 0; e < kVec; ++e) value[e] += added[e];
      if (y != z) store_floats(z + i * kVec, value);
    }
    if (keeps_pre_activation(kActivation) && derivatives != nullptr) {
      Vec<uint8_t, kVec> bytes;
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        bytes.elem[e] = derivative_byte(derivative<kActivation>(value[e]));
      }
      store_vec(derivatives + i * kVec, bytes);
    }
#pragma unroll
    for (int e = 0; e < kVec; ++e) value[e] = activated<kActivation>(value[e]);
    store_floats(y + i * kVec, value);
  }
}

template <class T, Activation kActivation>
using Saved = std::conditional_t<kActivation == Activation::kNone, uint8_t, T>;

template <class T, int kVec, Activation kActivation>
__global__ void __launch_bounds__(kThreads)
    derivative_kernel(const T* dy, const Saved<T, kActivation>* saved, T* dx, int64_t vecs) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vecs;
       i += stride) {
    float gradient[kVec];
    float at[kVec];
    load_floats(dy + i * kVec, gradient);
    load_floats(saved + i * kVec, at);
#pragma unroll
    for (int e = 0; e < kVec; ++e) gradient[e] *= derivative<kActivation>(at[e]);
    store_floats(dx + i * kVec, gradient);
  }
}

// 4 blocks of 8 warps with 8 loads in flight are 128 KiB per SM, enough to cover the latency.
constexpr int kColumnBlocksPerSm = 4;
constexpr int kRowsInFlight = 8;

/// partial[block row][column] = sum over the block's rows.
template <class T, int kVec>
__global__ void __launch_bounds__(kThreads, kColumnBlocksPerSm)
    column_partials_kernel(const T* values, int64_t rows, int64_t columns, int64_t rows_per_block,
                           float* partial) {
  __shared__ float of_warp[kWarps][kWarpThreads * kVec];
  wait_for_kernel_before();
  begin_next_kernel();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarpThreads + lane) * kVec;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * rows_per_block;
  const int64_t end = begin + rows_per_block < rows ? begin + rows_per_block : rows;

  float sum[kVec] = {};
  if (column < columns) {
    int64_t row = begin + warp;
    for (; row + (kRowsInFlight - 1) * kWarps < end; row += kRowsInFlight * kWarps) {
      Vec<T, kVec> vec[kRowsInFlight];
#pragma unroll
      for (int r = 0; r < kRowsInFlight; ++r) {
        vec[r] =
            *reinterpret_cast<const Vec<T, kVec>*>(values + (row + r * kWarps) * columns + column);
      }
#pragma unroll
      for (int r = 0; r < kRowsInFlight; ++r) {
#pragma unroll
        for (int i = 0; i < kVec; ++i) sum[i] += to_float(vec[r].elem[i]);
      }
    }
    for (; row < end; row += kWarps) {
      float value[kVec];
      load_floats(values + row * columns + column, value);
#pragma unroll
      for (int i = 0; i < kVec; ++i) sum[i] += value[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kVec; ++i) of_warp[warp][lane * kVec + i] = sum[i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kWarpThreads * kVec; i += kThreads) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarpThreads * kVec + i;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += of_warp[w][i];
    if (at < columns) partial[blockIdx.y * columns + at] = total;
  }
}

template <class Work>
void dispatch_activation(Activation activation, const Work& work) {
  switch (activation) {
    case Activation::kNone:
      return work(ActivationTag<Activation::kNone>{});
    case Activation::kGeluTanh:
      return work(ActivationTag<Activation::kGeluTanh>{});
    case Activation::kTanh:
      return work(ActivationTag<Activation::kTanh>{});
    case Activation::kGelu:
      return work(ActivationTag<Activation::kGelu>{});
  }
}

template <class T, int kVec>
void launch_column_sums(CudaContext& context, const View& values, Accumulate accumulate,
                        const View& target) {
  const int64_t rows = values.extent(0);
  const int64_t columns = values.extent(1);
  const int64_t across = ceil_div(columns, kWarpThreads * kVec);
  const auto kernel = &column_partials_kernel<T, kVec>;
  // On sm_90a twice as many blocks as run at once; a block has at least one round of loads.
  const int64_t blocks =
      context.sm_count * blocks_per_sm(context, kernel, kThreads, 0, kBlocksPerSm);
  const int64_t wanted = blocks / across < 1 ? 1 : blocks / across;
  constexpr int64_t kMinRows = kWarps * kRowsInFlight;
  const int64_t even = ceil_div(rows, wanted);
  const int64_t rows_per_block = even < kMinRows ? kMinRows : even;
  const int64_t partials = ceil_div(rows, rows_per_block);
  auto* partial = static_cast<float*>(context.scratch.take(column_sum_bytes(partials, columns, 1)));
  launch_dependent(context, kernel, {{across, partials}, kThreads}, elements<T>(values), rows,
                   columns, rows_per_block, partial);
  add_up_columns(context, partial, partials, accumulate, target);
}

}  // namespace

void add_up_columns(const CudaContext& context, const float* partial, int64_t blocks,
                    Accumulate accumulate, const View& target) {
  dispatch_io(target.dtype, [&]<class T>(TypeTag<T>) {
    finish_column_sums<T, 1>(context, partial, blocks, target.elements(),
                             {{{elements<T>(target), accumulate == Accumulate::kYes}}});
  });
}

void add_bias_and_activate(CudaContext& context, const View& z, const View& bias,
                           const LinearFwd& args) {
  const int64_t columns = z.extent(1);
  dispatch_io(z.dtype, [&]<class T>(TypeTag<T>) {
    dispatch_activation(args.activation, [&]<Activation kActivation>(ActivationTag<kActivation>) {
      T* from = elements<T>(z);
      T* to = elements<T>(args.y);
      const T* added = optional_elements<T>(bias);
      auto* derivatives = static_cast<uint8_t*>(args.derivative.data);
      const bool is_wide = columns % kVec16<T> == 0 && is_aligned({from, to, added, derivatives});
      dispatch_vec<T>(is_wide, [&]<int N>(std::integral_constant<int, N>) {
        const int64_t vecs = z.elements() / N;
        launch_kernel(context.stream, bias_activation_kernel<T, N, kActivation>,
                      {blocks_on(context, vecs, kThreads, kBlocksPerSm), kThreads}, from, added, to,
                      derivatives, vecs, columns);
      });
    });
  });
}

void multiply_by_derivative(CudaContext& context, const View& dy, const View& saved, const View& dx,
                            Activation activation) {
  dispatch_io(dy.dtype, [&]<class T>(TypeTag<T>) {
    dispatch_activation(activation, [&]<Activation kActivation>(ActivationTag<kActivation>) {
      const T* from = elements<T>(dy);
      const auto* factors = static_cast<const Saved<T, kActivation>*>(saved.data);
      T* to = elements<T>(dx);
      const int64_t count = dy.elements();
      const bool is_wide = count % kVec16<T> == 0 && is_aligned({from, factors, to});
      dispatch_vec<T>(is_wide, [&]<int N>(std::integral_constant<int, N>) {
        launch_kernel(context.stream, derivative_kernel<T, N, kActivation>,
                      {blocks_on(context, count / N, kThreads, kBlocksPerSm), kThreads}, from,
                      factors, to, count / N);
      });
    });
  });
}

void sum_columns(CudaContext& context, const View& values, Accumulate accumulate,
                 const View& target) {
  dispatch_io(values.dtype, [&]<class T>(TypeTag<T>) {
    const bool is_wide = values.extent(1) % kVec16<T> == 0 && is_aligned({values.data});
    dispatch_vec<T>(is_wide, [&]<int N>(std::integral_constant<int, N>) {
      launch_column_sums<T, N>(context, values, accumulate, target);
    });
  });
}

}  // namespace bertha
