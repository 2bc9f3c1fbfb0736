#pragma once

#include "kernels/base/check.h"
#include "kernels/base/host_device.h"

namespace bertha {

/// A tensor of channels, [N, C, S] in row-major order; see kernels/rows/ops/prelu.h.
struct ChannelsShape {
  int64_t outer;     // N
  int64_t channels;  // C
  int64_t inner;     // S

  BERTHA_HOST_DEVICE int64_t elements() const { return outer * channels * inner; }
  BERTHA_HOST_DEVICE int64_t of_channel() const { return outer * inner; }
};

/// The extents of three axes; does not check.
inline ChannelsShape channels_shape(const View& view) {
  return {view.extent(0), view.extent(1), view.extent(2)};
}

/// Three axes of an io dtype.
inline ChannelsShape check_channels(const ArgumentCheck& check, const char* field,
                                    const View& view) {
  check.rank(field, view, 3);
  check.io(field, view);
  const ChannelsShape shape = channels_shape(view);
  check.view(field, view, view.dtype, {shape.outer, shape.channels, shape.inner});
  return shape;
}

/// Bytes of one bit per element.
inline int64_t bit_bytes(int64_t elements) { return (elements + 7) / 8; }

}  // namespace bertha
