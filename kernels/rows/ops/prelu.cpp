#include "kernels/rows/ops/prelu.h"

#include "kernels/rows/ops/check_channels.h"

namespace bertha {

void validate(const PreluFwd& args) {
  const ArgumentCheck check(PreluFwd::kName);
  const ChannelsShape shape = check_channels(check, "x", args.x);
  check.view("slope", args.slope, args.x.dtype, {shape.channels});
  check.view("y", args.y, args.x.dtype, {shape.outer, shape.channels, shape.inner});
}

void validate(const PreluBwd& args) {
  const ArgumentCheck check(PreluBwd::kName);
  const ChannelsShape shape = check_channels(check, "dy", args.dy);
  check.views({{"x", args.x}, {"dx", args.dx}}, args.dy.dtype,
              {shape.outer, shape.channels, shape.inner});
  check.views({{"slope", args.slope}, {"dslope", args.dslope}}, args.dy.dtype, {shape.channels});
}

}  // namespace bertha
