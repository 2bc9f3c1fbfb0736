#pragma once

#include "kernels/cuda/common/types.cuh"

namespace bertha {

/// N neighbours that move in instructions of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T lane[N];
};

/// Elements of T in 16 bytes: the widest access of a thread.
template <class T>
inline constexpr int kPack16 = 16 / static_cast<int>(sizeof(T));

/// N elements as floats. `from` is aligned to the pack.
template <int N, class T>
__device__ __forceinline__ void load_floats(const T* from, float (&to)[N]) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(pack.lane[i]);
}

/// N floats, rounded to T. `to` is aligned to the pack.
template <int N, class T>
__device__ __forceinline__ void store_floats(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.lane[i] = from_float<T>(from[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

}  // namespace bertha
