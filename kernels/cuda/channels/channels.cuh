#pragma once

#include <type_traits>

#include "kernels/base/host_device.h"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/ops/check_channels.h"

namespace bertha {

// Tensors of channels [N, C, S] in octets of the flat element index, so that rows of any length
// move in full 16-byte packs and an octet is a byte of a bit mask. Which channels an octet meets
// depends on S and C alone.

BERTHA_HOST_DEVICE inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// What the eight channels of an octet look like.
enum class OctetChannels : uint8_t {
  kSame,        // all eight in one channel: S % 8 == 0, or a single channel
  kNeighbours,  // eight channels in a row, beginning at a multiple of 8: S == 1 and C % 8 == 0
  kTwo,         // two at most: S >= 8
  kAny,
};

/// The extents that kernels see, of the same elements: a single channel is one plane.
struct ChannelExtents {
  int64_t outer;
  int64_t channels;
  int64_t inner;

  BERTHA_HOST_DEVICE int64_t elements() const { return outer * channels * inner; }
};

inline ChannelExtents channel_extents(const View& view) {
  const ChannelsShape shape = channels_shape(view);
  if (shape.channels == 1) return {1, 1, shape.elements()};
  return {shape.outer, shape.channels, shape.inner};
}

/// The channel of an element, and the element's number among its S neighbours.
struct ChannelPlace {
  int64_t channel;
  int64_t inner;
};

BERTHA_HOST_DEVICE inline ChannelPlace place_of(int64_t element, const ChannelExtents& extents) {
  const int64_t plane = element / extents.inner;
  return {plane % extents.channels, element - plane * extents.inner};
}

/// The place of the element behind the one at `place`.
__device__ __forceinline__ ChannelPlace place_behind(ChannelPlace place,
                                                     const ChannelExtents& extents) {
  if (++place.inner == extents.inner) {
    place.inner = 0;
    if (++place.channel == extents.channels) place.channel = 0;
  }
  return place;
}

/// values[i] = table[channel of the octet's element i]; for kNeighbours the table is aligned to 16
/// bytes.
template <OctetChannels kChannels, class T>
__device__ __forceinline__ void channel_values(const T* table, const ChannelPlace& place,
                                               const ChannelExtents& extents,
                                               float (&values)[kVecSize]) {
  if constexpr (kChannels == OctetChannels::kSame) {
    const float value = to_float(table[place.channel]);
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) values[i] = value;
  } else if constexpr (kChannels == OctetChannels::kNeighbours) {
    to_floats(load_vec(table + place.channel), values);
  } else if constexpr (kChannels == OctetChannels::kTwo) {
    const int64_t after = place.channel + 1 == extents.channels ? 0 : place.channel + 1;
    const float first = to_float(table[place.channel]);
    const float second = to_float(table[after]);
    const int64_t left = extents.inner - place.inner;
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) values[i] = i < left ? first : second;
  } else {
    ChannelPlace at = place;
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      values[i] = to_float(table[at.channel]);
      at = place_behind(at, extents);
    }
  }
}

/// Sum of an octet's eight numbers, in pairs.
__device__ __forceinline__ float octet_sum(const float (&values)[kVecSize]) {
  return ((values[0] + values[1]) + (values[2] + values[3])) +
         ((values[4] + values[5]) + (values[6] + values[7]));
}

/// Which kernel; `table_aligned` says whether all tables of channels begin at multiples of 16
/// bytes. work(std::integral_constant<OctetChannels, ..>).
template <class Work>
void dispatch_octet_channels(const ChannelExtents& extents, bool table_aligned, const Work& work) {
  using Kind = OctetChannels;
  if (extents.channels == 1 || extents.inner % kVecSize == 0) {
    return work(std::integral_constant<Kind, Kind::kSame>{});
  }
  if (extents.inner == 1 && extents.channels % kVecSize == 0 && table_aligned) {
    return work(std::integral_constant<Kind, Kind::kNeighbours>{});
  }
  if (extents.inner >= kVecSize) return work(std::integral_constant<Kind, Kind::kTwo>{});
  work(std::integral_constant<Kind, Kind::kAny>{});
}

/// The lanes [low, high) of an octet; those of the tensor's last octet, of a plane's first and last
/// one, and all of them elsewhere.
struct LaneRange {
  int low;
  int high;

  __device__ __forceinline__ bool is_whole() const { return low == 0 && high == kVecSize; }
  __device__ __forceinline__ bool has(int lane) const { return lane >= low && lane < high; }
};

/// The octet at `from`: in wide words where `wide` says that these are allowed, else lanes one by
/// one, and zeros beyond them.
template <class T>
__device__ __forceinline__ Vec<T, kVecSize> load_lanes(const T* from, const LaneRange& lanes,
                                                       bool wide) {
  if (wide) return load_vec(from);
  float values[kVecSize] = {};
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) {
    if (lanes.has(i)) values[i] = to_float(from[i]);
  }
  return to_vec<T>(values);
}

/// Lanes of `values` at `to`; others are not touched.
template <class T>
__device__ __forceinline__ void store_lanes(T* to, const float (&values)[kVecSize],
                                            const LaneRange& lanes, bool wide) {
  if (wide) {
    store_vec(to, to_vec<T>(values));
    return;
  }
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) {
    if (lanes.has(i)) to[i] = from_float<T>(values[i]);
  }
}

}  // namespace bertha
