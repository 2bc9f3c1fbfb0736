#pragma once

#include <type_traits>

#include "kernels/base/cuda/vec.cuh"
#include "kernels/base/divide.h"
#include "kernels/rows/ops/check_channels.h"

namespace bertha {

// Tensors of channels [N, C, S] as vectors of eight elements of the flat index: 16 bytes of a
// 16-bit type, a byte of a bit mask.

/// Channels of a vector's eight elements.
enum class VecChannels : uint8_t {
  kOne,          // S % 8 == 0, or a single channel
  kConsecutive,  // eight, the first a multiple of 8: S == 1 and C % 8 == 0
  kTwo,          // two at most: S >= 8
  kAny,          // and any address and number of elements: the slow path
};

/// A number to divide by, known when a kernel is launched: a product and a shift instead of the
/// some twenty instructions of a division.
class Divisor {
 public:
  /// `by` is in [1, 2^31].
  explicit Divisor(int64_t by) : value_(static_cast<uint32_t>(by)) {
    while ((uint64_t{1} << shift_) < value_) ++shift_;
    // 2^32 (2^shift / by - 1), rounded up: exact for dividends below 2^31.
    const uint64_t beyond = (uint64_t{1} << shift_) - value_;
    multiplier_ = static_cast<uint32_t>((beyond << 32) / value_ + 1);
  }

  /// The quotient of a dividend below 2^31.
  __device__ __forceinline__ uint32_t quotient(uint32_t dividend) const {
    return (__umulhi(dividend, multiplier_) + dividend) >> shift_;
  }
  __device__ __forceinline__ uint32_t remainder(uint32_t dividend) const {
    return dividend - quotient(dividend) * value_;
  }

 private:
  uint32_t value_;
  uint32_t multiplier_ = 0;
  uint32_t shift_ = 0;
};

/// The extents that kernels see, of the same elements: a single channel is one plane.
inline ChannelsShape channel_extents(const View& view) {
  const ChannelsShape shape = channels_shape(view);
  return shape.channels == 1 ? ChannelsShape{1, 1, shape.elements()} : shape;
}

/// The channel of an element, and the element's index among its S neighbours.
struct ChannelPlace {
  int64_t channel;
  int64_t inner;
};

/// Finds the channel of an element, without divisions where elements are counted in 31 bits.
class ChannelFinder {
 public:
  explicit ChannelFinder(const ChannelsShape& extents)
      : extents_(extents),
        is_narrow_(extents.elements() <= INT32_MAX),
        inner_(is_narrow_ ? extents.inner : 1),
        channels_(is_narrow_ ? extents.channels : 1) {}

  __device__ __forceinline__ const ChannelsShape& extents() const { return extents_; }
  __device__ __forceinline__ ChannelPlace operator()(int64_t element) const {
    if (is_narrow_) return narrow(static_cast<uint32_t>(element));
    const int64_t plane = element / extents_.inner;
    return {plane % extents_.channels, element - plane * extents_.inner};
  }
  /// The place of an element that is counted in 31 bits.
  __device__ __forceinline__ ChannelPlace narrow(uint32_t element) const {
    const uint32_t plane = inner_.quotient(element);
    return {channels_.remainder(plane), element - plane * static_cast<uint32_t>(extents_.inner)};
  }

 private:
  ChannelsShape extents_;
  bool is_narrow_;
  Divisor inner_;
  Divisor channels_;
};

/// values[i] = table[channel of the vector's element i]; for kConsecutive the table is aligned to
/// 16 bytes.
template <VecChannels kChannels, class T>
__device__ __forceinline__ void channel_values(const T* table, const ChannelPlace& place,
                                               const ChannelsShape& extents,
                                               float (&values)[kVecSize]) {
  if constexpr (kChannels == VecChannels::kOne) {
    const float value = to_float(table[place.channel]);
    for (int i = 0; i < kVecSize; ++i) values[i] = value;
  } else if constexpr (kChannels == VecChannels::kConsecutive) {
    to_floats(load_vec(table + place.channel), values);
  } else if constexpr (kChannels == VecChannels::kTwo) {
    const int64_t after = place.channel + 1 == extents.channels ? 0 : place.channel + 1;
    const float first = to_float(table[place.channel]);
    const float second = to_float(table[after]);
    const int64_t in_first = extents.inner - place.inner;
    for (int i = 0; i < kVecSize; ++i) values[i] = i < in_first ? first : second;
  } else {
    ChannelPlace at = place;
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      values[i] = to_float(table[at.channel]);
      if (++at.inner < extents.inner) continue;
      at.inner = 0;
      if (++at.channel == extents.channels) at.channel = 0;
    }
  }
}

/// How a vector is accessed: how many of its elements exist, from the first one, and whether
/// 16-byte accesses are allowed.
struct VecAccess {
  int count = kVecSize;
  bool wide = true;
};

/// The vector at `from`, with zeros for elements that do not exist.
template <class T>
__device__ __forceinline__ Vec<T, kVecSize> load_part(const T* from, const VecAccess& access) {
  if (access.wide) return load_vec(from);
  float values[kVecSize] = {};
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) {
    if (i < access.count) values[i] = to_float(from[i]);
  }
  return to_vec<T>(values);
}

template <class T>
__device__ __forceinline__ void store_part(T* to, const float (&values)[kVecSize],
                                           const VecAccess& access) {
  if (access.wide) return store_vec_global(to, to_vec<T>(values));
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) {
    if (i < access.count) to[i] = from_float<T>(values[i]);
  }
}

/// Sum of a vector's numbers, in pairs.
template <int N>
__device__ __forceinline__ float vec_sum(const float (&values)[N]) {
  static_assert(N == 1 || N == 8);
  if constexpr (N == 1) {
    return values[0];
  } else {
    return ((values[0] + values[1]) + (values[2] + values[3])) +
           ((values[4] + values[5]) + (values[6] + values[7]));
  }
}

}  // namespace bertha
