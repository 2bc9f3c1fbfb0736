#include "kernels/ops/check_channels.h"

namespace bertha {

ChannelsShape check_channels(const ArgumentCheck& check, const char* field, const View& view) {
  check.rank(field, view, 3);
  check.io(field, view);
  const ChannelsShape shape = channels_shape(view);
  check.view(field, view, shape.io, {shape.outer, shape.channels, shape.inner});
  return shape;
}

}  // namespace bertha
