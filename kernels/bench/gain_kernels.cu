#include "kernels/bench/gain_kernels.h"

#include "kernels/cuda/channels/channels.cuh"
#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/embedding/paired_atomic_add.cuh"
#include "kernels/cuda/handles.h"

namespace bertha {
namespace {

// GPUs add f32 and pairs of 16-bit numbers atomically. Of a single one of 16 bits nvcc makes a loop
// that compares and swaps the word it lies in.

constexpr int kThreads = 256;
constexpr int kRowThreads = 128;       // of a row of 1,024 columns
constexpr int64_t kMostBlocks = 2048;  // about what is resident; they go on in strides

template <AtomicAdds kAdds, class T, class Sum>
__global__ void __launch_bounds__(kRowThreads)
    add_rows_kernel(const T* rows, const int32_t* ids, int64_t count, int64_t columns, Sum* table) {
  for (int64_t row = blockIdx.x; row < count; row += gridDim.x) {
    const int64_t id = ids[row];
    for (int64_t at = threadIdx.x * kVecSize; at < columns; at += kRowThreads * kVecSize) {
      float values[kVecSize];
      load_floats(rows + row * columns + at, values);
      Sum* const target = table + id * columns + at;
      if constexpr (kAdds == AtomicAdds::kPairs) {
        add_run_atomically(target, values);
      } else {
#pragma unroll
        for (int i = 0; i < kVecSize; ++i) atomicAdd(target + i, from_float<Sum>(values[i]));
      }
    }
  }
}

/// Bit i: element i is positive.
template <class T>
__device__ __forceinline__ uint32_t positive(const Vec<T, kVecSize>& y) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) bits |= (element(y, i) > 0 ? 1u : 0u) << i;
  return bits;
}

/// Vectors of a warp have consecutive numbers, the first one a multiple of 32.
template <KeptSigns kKept>
__device__ __forceinline__ void write_mask(uint32_t bits, int64_t vec, uint8_t* mask) {
  if constexpr (kKept == KeptSigns::kBytes) {
    Vec<uint8_t, kVecSize> bytes;
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) bytes.elem[i] = bits >> i & 1u;
    store_vec(mask + vec * kVecSize, bytes);
  } else if constexpr (kKept == KeptSigns::kBits) {
    mask[vec] = static_cast<uint8_t>(bits);
  } else if constexpr (kKept == KeptSigns::kBallot) {
    const int lane = static_cast<int>(vec % kWarpThreads);
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      const uint32_t ballot = __ballot_sync(kFullWarp, (bits >> i & 1u) != 0);
      if (lane == i) word = ballot;
    }
    auto* const words = reinterpret_cast<uint32_t*>(mask) + vec / kWarpThreads * kVecSize;
    if (lane < kVecSize) words[lane] = word;
  }
}

template <KeptSigns kKept, class T>
__device__ __forceinline__ uint32_t read_mask(const uint8_t* mask, int64_t vec, const T* y) {
  if constexpr (kKept == KeptSigns::kOutput) return positive(load_vec(y + vec * kVecSize));
  if constexpr (kKept == KeptSigns::kBits) return mask[vec];
  uint32_t bits = 0;
  if constexpr (kKept == KeptSigns::kBytes) {
    const Vec<uint8_t, kVecSize> bytes = load_vec(mask + vec * kVecSize);
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) bits |= uint32_t{bytes.elem[i]} << i;
  } else {
    const auto* const words = reinterpret_cast<const uint32_t*>(mask);
    const auto warp = load_vec(words + vec / kWarpThreads * kVecSize);
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) bits |= (warp.word[i] >> vec % kWarpThreads & 1u) << i;
  }
  return bits;
}

template <KeptSigns kKept, class T>
__global__ void __launch_bounds__(kThreads)
    relu_fwd_kernel(const T* x, const float* constants, T* y, uint8_t* mask, ChannelFinder find,
                    uint32_t vecs) {
  const int64_t channels = find.extents().channels;
  for (uint32_t vec = blockIdx.x * kThreads + threadIdx.x; vec < vecs;
       vec += gridDim.x * kThreads) {
    const float* const of_channel = constants + find.narrow(vec * kVecSize).channel;
    const float scale = of_channel[0];
    const float shift = of_channel[channels];
    float values[kVecSize];
    load_floats(x + int64_t{vec} * kVecSize, values);
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) values[i] = fmaxf(fmaf(values[i], scale, shift), 0.0f);
    const Vec<T, kVecSize> rounded = to_vec<T>(values);
    store_vec(y + int64_t{vec} * kVecSize, rounded);
    write_mask<kKept>(positive(rounded), vec, mask);
  }
}

template <KeptSigns kKept, class T>
__global__ void __launch_bounds__(kThreads)
    relu_bwd_kernel(const T* x, const float* constants, const T* y, const T* dy, T* dx,
                    const uint8_t* mask, ChannelFinder find, uint32_t vecs) {
  const int64_t channels = find.extents().channels;
  for (uint32_t vec = blockIdx.x * kThreads + threadIdx.x; vec < vecs;
       vec += gridDim.x * kThreads) {
    const float* const of_channel = constants + find.narrow(vec * kVecSize).channel;
    const uint32_t bits = read_mask<kKept>(mask, vec, y);
    float values[kVecSize];
    float gradient[kVecSize];
    load_floats(x + int64_t{vec} * kVecSize, values);
    load_floats(dy + int64_t{vec} * kVecSize, gradient);
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      const float g = (bits >> i & 1u) != 0 ? gradient[i] : 0.0f;
      values[i] = fmaf(of_channel[2 * channels], g,
                       fmaf(of_channel[3 * channels], values[i], of_channel[4 * channels]));
    }
    store_floats(dx + int64_t{vec} * kVecSize, values);
  }
}

template <KeptSigns kKept>
void run_passes(const BatchNormReluPasses& p, cudaStream_t stream) {
  const ChannelFinder find(channel_extents(p.x));
  const auto vecs = static_cast<uint32_t>(p.x.elements() / kVecSize);
  const LaunchShape shape{blocks_for(vecs, kThreads, kMostBlocks), kThreads};
  const auto* constants = elements<float>(p.constants);
  auto* mask = elements<uint8_t>(p.mask);
  dispatch_16bit(p.x.dtype, [&]<class T>(TypeTag<T>) {
    launch_kernel(stream, relu_fwd_kernel<kKept, T>, shape, elements<T>(p.x), constants,
                  elements<T>(p.y), mask, find, vecs);
    launch_kernel(stream, relu_bwd_kernel<kKept, T>, shape, elements<T>(p.x), constants,
                  elements<T>(p.y), elements<T>(p.dy), elements<T>(p.dx), mask, find, vecs);
  });
}

}  // namespace

void run_gain_kernel(const AtomicRowAdds& args, Stream& stream) {
  const int64_t rows = args.rows.extent(0);
  const auto launch = [&](auto* kernel, auto* from, auto* table) {
    launch_kernel(native(stream), kernel, {blocks_for(rows, 1, kMostBlocks), kRowThreads}, from,
                  elements<int32_t>(args.ids), rows, args.rows.extent(1), table);
  };
  dispatch_16bit(args.rows.dtype, [&]<class T>(TypeTag<T>) {
    if (args.table.dtype == DType::kF32) {
      launch(add_rows_kernel<AtomicAdds::kSingle, T, float>, elements<T>(args.rows),
             elements<float>(args.table));
    } else if (args.adds == AtomicAdds::kSingle) {
      launch(add_rows_kernel<AtomicAdds::kSingle, T, T>, elements<T>(args.rows),
             elements<T>(args.table));
    } else {
      launch(add_rows_kernel<AtomicAdds::kPairs, T, T>, elements<T>(args.rows),
             elements<T>(args.table));
    }
  });
}

void run_gain_kernel(const BatchNormReluPasses& args, Stream& stream) {
  BERTHA_CHECK(args.x.extent(2) % kVecSize == 0 &&
                   args.x.elements() % (kWarpThreads * kVecSize) == 0 &&
                   args.x.elements() <= INT32_MAX,
               "x is ", args.x.shape_text(), "; its vectors want to fill warps");
  const auto run = args.kept == KeptSigns::kOutput   ? run_passes<KeptSigns::kOutput>
                   : args.kept == KeptSigns::kBytes  ? run_passes<KeptSigns::kBytes>
                   : args.kept == KeptSigns::kBallot ? run_passes<KeptSigns::kBallot>
                                                     : run_passes<KeptSigns::kBits>;
  run(args, native(stream));
}

}  // namespace bertha
