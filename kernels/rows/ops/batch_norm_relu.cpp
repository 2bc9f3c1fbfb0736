#include "kernels/rows/ops/batch_norm_relu.h"

#include "kernels/rows/ops/check_channels.h"

namespace bertha {

void validate(const BatchNormReluFwd& args) {
  const ArgumentCheck check(BatchNormReluFwd::kName);
  const ChannelsShape shape = check_channels(check, "x", args.x);
  const std::initializer_list<int64_t> like_x{shape.outer, shape.channels, shape.inner};
  check.optional_view("addend", args.addend, args.x.dtype, like_x);
  check.views(
      {{"gamma", args.gamma}, {"beta", args.beta}, {"mean", args.mean}, {"rstd", args.rstd}},
      DType::kF32, {shape.channels});
  const bool has_mean = args.running_mean.has_data();
  const bool has_var = args.running_var.has_data();
  if (args.statistics == NormStatistics::kRunning || (has_mean && has_var)) {
    check.views({{"running_mean", args.running_mean}, {"running_var", args.running_var}},
                DType::kF32, {shape.channels});
  } else if (has_mean != has_var) {
    check.refuse("running_var", "and running_mean: want both or none with data");
  }
  check.view("y", args.y, args.x.dtype, like_x);
  check.optional_view("mask", args.mask, DType::kU8, {bit_bytes(shape.elements())});
  if (!(args.momentum >= 0.0f && args.momentum <= 1.0f)) {
    check.refuse("momentum", "= ", args.momentum, ", want a value in [0, 1]");
  }
  check.positive("epsilon", static_cast<double>(args.epsilon));
}

void validate(const BatchNormReluBwd& args) {
  const ArgumentCheck check(BatchNormReluBwd::kName);
  const ChannelsShape shape = check_channels(check, "dy", args.dy);
  const std::initializer_list<int64_t> like_dy{shape.outer, shape.channels, shape.inner};
  check.view("x", args.x, args.dy.dtype, like_dy);
  check.view("mask", args.mask, DType::kU8, {bit_bytes(shape.elements())});
  check.views({{"mean", args.mean},
               {"rstd", args.rstd},
               {"gamma", args.gamma},
               {"dgamma", args.dgamma},
               {"dbeta", args.dbeta}},
              DType::kF32, {shape.channels});
  check.view("dx", args.dx, args.dy.dtype, like_dy);
  check.optional_view("daddend", args.daddend, args.dy.dtype, like_dy);
  if (args.daddend.has_data() && args.daddend.data == args.dx.data) {
    check.refuse("daddend", "and dx share memory, want two buffers");
  }
}

}  // namespace bertha
