#include <vector>

#include "kernels/base/cpu/operations.h"
#include "kernels/rows/cpu/channel_runs.h"
#include "kernels/rows/ops/prelu.h"

namespace bertha {

template <>
void run_cpu(WorkerPool& pool, const PreluFwd& args) {
  require_f32("prelu_fwd", "x", args.x);
  const float* x = args.x.as<float>();
  const float* slope = args.slope.as<float>();
  float* y = args.y.as<float>();
  for_elements(pool, channels_shape(args.x), [&](int64_t i, int64_t channel) {
    y[i] = x[i] > 0.0f ? x[i] : slope[channel] * x[i];
  });
}

template <>
void run_cpu(WorkerPool& pool, const PreluBwd& args) {
  require_f32("prelu_bwd", "dy", args.dy);
  const ChannelsShape shape = channels_shape(args.dy);
  const float* dy = args.dy.as<float>();
  const float* x = args.x.as<float>();
  const float* slope = args.slope.as<float>();
  float* dx = args.dx.as<float>();
  float* dslope = args.dslope.as<float>();
  std::vector<double> sums(static_cast<size_t>(shape.channels), 0.0);
  if (args.accumulate == Accumulate::kYes) sums.assign(dslope, dslope + shape.channels);
  for_channels(
      pool, shape,
      [&](int64_t c, int64_t i) {
        const float gradient = dy[i];
        const bool positive = x[i] > 0.0f;
        dx[i] = positive ? gradient : slope[c] * gradient;
        if (!positive) {
          sums[static_cast<size_t>(c)] += static_cast<double>(gradient) * static_cast<double>(x[i]);
        }
      },
      [&](int64_t c) { dslope[c] = static_cast<float>(sums[static_cast<size_t>(c)]); });
}

}  // namespace bertha
