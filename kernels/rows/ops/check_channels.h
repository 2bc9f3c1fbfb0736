#pragma once

#include "kernels/base/check.h"

namespace bertha {

/// A tensor of channels, [N, C, S] in row-major order; see kernels/rows/ops/prelu.h.
struct ChannelsShape {
  DType io = DType::kF32;
  int64_t outer = 0;     // N
  int64_t channels = 0;  // C
  int64_t inner = 0;     // S

  int64_t elements() const { return outer * channels * inner; }
  int64_t elements_per_channel() const { return outer * inner; }
};

/// The extents of three axes; does not check.
inline ChannelsShape channels_shape(const View& view) {
  return {.io = view.dtype,
          .outer = view.extent(0),
          .channels = view.extent(1),
          .inner = view.extent(2)};
}

/// Three axes of an io dtype.
inline ChannelsShape check_channels(const ArgumentCheck& check, const char* field,
                                    const View& view) {
  check.rank(field, view, 3);
  check.io(field, view);
  const ChannelsShape shape = channels_shape(view);
  check.view(field, view, shape.io, {shape.outer, shape.channels, shape.inner});
  return shape;
}

/// Bytes of one bit per element.
inline int64_t bit_bytes(int64_t elements) { return (elements + 7) / 8; }

}  // namespace bertha
