#pragma once

#include <type_traits>

#include "kernels/cuda/common/types.cuh"

namespace bertha {

/// Neighbouring columns of one thread in the row kernels: 16 bytes of a 16-bit type, a byte of a
/// dropout mask.
inline constexpr int kOctet = 8;

/// Eight elements in registers, as words: of 16-bit lanes the compiler would give each its own
/// register.
template <class T>
struct Octet {
  static constexpr int kWords = kOctet * static_cast<int>(sizeof(T)) / 4;
  uint32_t word[kWords];
};

/// Lets the compiler know nothing of the words' origin: floats made of them before are not kept in
/// registers for later, where unpacking again is cheaper than the rows in flight that they cost.
template <class T>
__device__ __forceinline__ void keep_packed(Octet<T>& octet) {
#pragma unroll
  for (int i = 0; i < Octet<T>::kWords; ++i) asm volatile("" : "+r"(octet.word[i]));
}

/// Element i; i is a constant.
template <class T>
__device__ __forceinline__ float element(const Octet<T>& octet, int i) {
  if constexpr (std::is_same_v<T, float>) {
    return __uint_as_float(octet.word[i]);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const uint32_t word = octet.word[i / 2];
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
  } else {
    const __half2 pair = *reinterpret_cast<const __half2*>(&octet.word[i / 2]);
    return i % 2 == 0 ? __low2float(pair) : __high2float(pair);
  }
}

/// Rounded to T, to nearest even.
template <class T>
__device__ __forceinline__ Octet<T> rounded_octet(const float (&values)[kOctet]) {
  Octet<T> octet;
#pragma unroll
  for (int i = 0; i < Octet<T>::kWords; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      octet.word[i] = __float_as_uint(values[i]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      octet.word[i] = *reinterpret_cast<const uint32_t*>(&pair);
    } else {
      const __half2 pair = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      octet.word[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
  return octet;
}

template <class T>
__device__ __forceinline__ void set_words(Octet<T>& octet, int quarter, const uint4& words) {
  octet.word[4 * quarter] = words.x;
  octet.word[4 * quarter + 1] = words.y;
  octet.word[4 * quarter + 2] = words.z;
  octet.word[4 * quarter + 3] = words.w;
}

template <class T>
__device__ __forceinline__ Octet<T> load_octet(const T* from) {
  Octet<T> octet;
#pragma unroll
  for (int i = 0; i < Octet<T>::kWords / 4; ++i) {
    set_words(octet, i, reinterpret_cast<const uint4*>(from)[i]);
  }
  return octet;
}

/// Reads what no kernel soon reads again, first to leave the caches.
template <class T>
__device__ __forceinline__ Octet<T> load_octet_once(const T* from) {
  Octet<T> octet;
#pragma unroll
  for (int i = 0; i < Octet<T>::kWords / 4; ++i) {
    set_words(octet, i, __ldcs(reinterpret_cast<const uint4*>(from) + i));
  }
  return octet;
}

/// From global memory, without taking a place in L1; T of 16 bits.
template <class T>
__device__ __forceinline__ Octet<T> load_octet_past_l1(const T* from) {
  static_assert(Octet<T>::kWords == 4);
  Octet<T> octet;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(octet.word[0]), "=r"(octet.word[1]), "=r"(octet.word[2]), "=r"(octet.word[3])
               : "l"(from)
               : "memory");
  return octet;
}

template <class T>
__device__ __forceinline__ void store_octet(T* to, const Octet<T>& octet) {
#pragma unroll
  for (int i = 0; i < Octet<T>::kWords / 4; ++i) {
    reinterpret_cast<uint4*>(to)[i] = make_uint4(octet.word[4 * i], octet.word[4 * i + 1],
                                                 octet.word[4 * i + 2], octet.word[4 * i + 3]);
  }
}

/// The same to global memory that this kernel does not read: in whole stores of 16 bytes, of which
/// nvcc sometimes makes four where rows lie at constant distances.
template <class T>
__device__ __forceinline__ void store_octet_once(T* to, const Octet<T>& octet) {
#pragma unroll
  for (int i = 0; i < Octet<T>::kWords / 4; ++i) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to + i * (16 / sizeof(T))),
                 "r"(octet.word[4 * i]), "r"(octet.word[4 * i + 1]), "r"(octet.word[4 * i + 2]),
                 "r"(octet.word[4 * i + 3]));
  }
}

/// To global memory in one store, marked as the first to leave L2; T of 16 bits. Behind what the
/// thread has read before: `to` may be among it.
template <class T>
__device__ __forceinline__ void store_octet_first_out(T* to, const Octet<T>& octet) {
  static_assert(Octet<T>::kWords == 4);
  asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(octet.word[0]),
               "r"(octet.word[1]), "r"(octet.word[2]), "r"(octet.word[3])
               : "memory");
}

/// To shared memory, in whole stores of 16 bytes too; T of 16 bits.
template <class T>
__device__ __forceinline__ void store_octet_shared(T* to, const Octet<T>& octet) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "r"(octet.word[0]), "r"(octet.word[1]), "r"(octet.word[2]), "r"(octet.word[3])
               : "memory");
}

template <class T>
__device__ __forceinline__ void to_floats(const Octet<T>& octet, float (&to)[kOctet]) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i) to[i] = element(octet, i);
}

/// Typed pointer to a view that is read in words of 16 bytes.
template <class T>
T* aligned_elements(const View& view) {
  BERTHA_CHECK(reinterpret_cast<uintptr_t>(view.data) % 16 == 0, "a view ", view.shape_text(),
               " begins at an address that is no multiple of 16 bytes");
  return elements<T>(view);
}

}  // namespace bertha
