#pragma once

#include <type_traits>

#include "kernels/base/cuda/types.cuh"

namespace bertha {

/// Neighbouring columns of one thread in the row kernels: 16 bytes of a 16-bit type, a byte of a
/// dropout mask.
inline constexpr int kVecSize = 8;

/// Elements of T in 16 bytes: the widest access of a thread.
template <class T>
inline constexpr int kVec16 = 16 / static_cast<int>(sizeof(T));

/// N neighboring elements as in memory, N a power of two. Registers contain them as 32-bit
/// words: of single 16-bit elements the compiler would give each its own register.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  static constexpr int kBytes = N * static_cast<int>(sizeof(T));
  using Word = std::conditional_t<kBytes % 4 == 0, uint32_t,
                                  std::conditional_t<kBytes % 2 == 0, uint16_t, uint8_t>>;
  static constexpr int kWords = kBytes / static_cast<int>(sizeof(Word));
  union {
    Word word[kWords];
    T elem[N];
  };
};

/// Element i, a constant, as f32.
template <class T, int N>
__device__ __forceinline__ float element(const Vec<T, N>& vec, int i) {
  if constexpr (N == 1 || sizeof(T) != 2) {
    return to_float(vec.elem[i]);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const uint32_t word = vec.word[i / 2];
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
  } else {
    const __half2 pair = *reinterpret_cast<const __half2*>(&vec.word[i / 2]);
    return i % 2 == 0 ? __low2float(pair) : __high2float(pair);
  }
}

template <class T, int N>
__device__ __forceinline__ void to_floats(const Vec<T, N>& vec, float (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = element(vec, i);
}

/// Rounded to T, to nearest even.
template <class T, int N>
__device__ __forceinline__ Vec<T, N> to_vec(const float (&values)[N]) {
  Vec<T, N> vec;
  if constexpr (N == 1 || sizeof(T) != 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) vec.elem[i] = from_float<T>(values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
        vec.word[i] = *reinterpret_cast<const uint32_t*>(&pair);
      } else {
        const __half2 pair = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
        vec.word[i] = *reinterpret_cast<const uint32_t*>(&pair);
      }
    }
  }
  return vec;
}

/// a + b, rounded to T.
template <class T, int N>
__device__ __forceinline__ Vec<T, N> sum_of(const Vec<T, N>& a, const Vec<T, N>& b) {
  float sums[N];
#pragma unroll
  for (int i = 0; i < N; ++i) sums[i] = element(a, i) + element(b, i);
  return to_vec<T>(sums);
}

/// Hides the origin of the words from the compiler: it then unpacks them again instead of keeping
/// the floats that it computed from them, which would use the registers of rows in flight.
template <class T, int N>
__device__ __forceinline__ void keep_packed(Vec<T, N>& vec) {
  if constexpr (Vec<T, N>::kBytes >= 4) {
#pragma unroll
    for (int i = 0; i < Vec<T, N>::kWords; ++i) asm volatile("" : "+r"(vec.word[i]));
  }
}

/// The 16 bytes number `part` of a Vec.
template <class T, int N>
__device__ __forceinline__ void set_words(Vec<T, N>& vec, int part, const uint4& words) {
  vec.word[4 * part] = words.x;
  vec.word[4 * part + 1] = words.y;
  vec.word[4 * part + 2] = words.z;
  vec.word[4 * part + 3] = words.w;
}

/// Loads from an address that is aligned to the Vec, in instructions of up to 16 bytes.
template <int N = kVecSize, class T>
__device__ __forceinline__ Vec<T, N> load_vec(const T* from) {
  using V = Vec<T, N>;
  V vec;
  if constexpr (V::kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < V::kBytes / 16; ++i) {
      set_words(vec, i, reinterpret_cast<const uint4*>(from)[i]);
    }
  } else if constexpr (V::kBytes == 8) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    vec.word[0] = words.x;
    vec.word[1] = words.y;
  } else {
    vec.word[0] = *reinterpret_cast<const typename V::Word*>(from);
  }
  return vec;
}

/// The same for data that no kernel reads again soon (ld.global.cs: evicted first).
template <class T>
__device__ __forceinline__ Vec<T, kVecSize> load_vec_streaming(const T* from) {
  using V = Vec<T, kVecSize>;
  V vec;
#pragma unroll
  for (int i = 0; i < V::kBytes / 16; ++i) {
    set_words(vec, i, __ldcs(reinterpret_cast<const uint4*>(from) + i));
  }
  return vec;
}

/// Loads from global memory without allocation in L1.
template <class T>
__device__ __forceinline__ Vec<T, kVecSize> load_vec_no_allocate(const T* from) {
  using V = Vec<T, kVecSize>;
  V vec;
#pragma unroll
  for (int i = 0; i < V::kBytes / 16; ++i) {
    uint4 words;
    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from + i * kVec16<T>)
                 : "memory");
    set_words(vec, i, words);
  }
  return vec;
}

/// Stores to an address that is aligned to the Vec, in instructions of up to 16 bytes.
template <class T, int N>
__device__ __forceinline__ void store_vec(T* to, const Vec<T, N>& vec) {
  using V = Vec<T, N>;
  if constexpr (V::kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < V::kBytes / 16; ++i) {
      reinterpret_cast<uint4*>(to)[i] = make_uint4(vec.word[4 * i], vec.word[4 * i + 1],
                                                   vec.word[4 * i + 2], vec.word[4 * i + 3]);
    }
  } else if constexpr (V::kBytes == 8) {
    *reinterpret_cast<uint2*>(to) = make_uint2(vec.word[0], vec.word[1]);
  } else {
    *reinterpret_cast<typename V::Word*>(to) = vec.word[0];
  }
}

/// Stores to global memory that this kernel does not read, always in whole stores of 16 bytes:
/// if rows are at constant distances, nvcc sometimes splits one into four.
template <class T>
__device__ __forceinline__ void store_vec_global(T* to, const Vec<T, kVecSize>& vec) {
#pragma unroll
  for (int i = 0; i < Vec<T, kVecSize>::kBytes / 16; ++i) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to + i * kVec16<T>),
                 "r"(vec.word[4 * i]), "r"(vec.word[4 * i + 1]), "r"(vec.word[4 * i + 2]),
                 "r"(vec.word[4 * i + 3]));
  }
}

/// Stores to global memory in stores of 16 bytes that are evicted first (st.global.cs). Ordered
/// after what the thread has read: `to` may be among it.
template <class T>
__device__ __forceinline__ void store_vec_streaming(T* to, const Vec<T, kVecSize>& vec) {
#pragma unroll
  for (int i = 0; i < Vec<T, kVecSize>::kBytes / 16; ++i) {
    asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to + i * kVec16<T>),
                 "r"(vec.word[4 * i]), "r"(vec.word[4 * i + 1]), "r"(vec.word[4 * i + 2]),
                 "r"(vec.word[4 * i + 3])
                 : "memory");
  }
}

/// Stores to shared memory, in one store of 16 bytes too; T of 16 bits.
template <class T>
__device__ __forceinline__ void store_vec_shared(T* to, const Vec<T, kVecSize>& vec) {
  static_assert(sizeof(T) == 2);
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "r"(vec.word[0]), "r"(vec.word[1]), "r"(vec.word[2]), "r"(vec.word[3])
               : "memory");
}

/// N elements as floats. `from` is aligned to the Vec.
template <int N, class T>
__device__ __forceinline__ void load_floats(const T* from, float (&to)[N]) {
  to_floats(load_vec<N>(from), to);
}

/// N floats, rounded to T. `to` is aligned to the Vec.
template <int N, class T>
__device__ __forceinline__ void store_floats(T* to, const float (&from)[N]) {
  store_vec(to, to_vec<T>(from));
}

/// Typed pointer to a view that is read in accesses of 16 bytes.
template <class T>
T* aligned_elements(const View& view) {
  BERTHA_CHECK(reinterpret_cast<uintptr_t>(view.data) % 16 == 0, "a view ", view.shape_text(),
               " begins at an address that is not a multiple of 16 bytes");
  return elements<T>(view);
}

}  // namespace bertha
