#include <cmath>
#include <vector>

#include "kernels/base/cpu/operations.h"
#include "kernels/rows/cpu/channel_runs.h"
#include "kernels/rows/ops/batch_norm_relu.h"

namespace bertha {
namespace {

float rstd_of(double variance, float epsilon) {
  return static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(epsilon)));
}

/// running += momentum * (batch - running).
void move(float& running, double batch, float momentum) {
  const auto before = static_cast<double>(running);
  running = static_cast<float>(before + static_cast<double>(momentum) * (batch - before));
}

/// Fills mean and rstd, and updates the running statistics; two passes in f64.
void take_statistics(WorkerPool& pool, const BatchNormReluFwd& args) {
  const ChannelsShape shape = channels_shape(args.x);
  const float* x = args.x.as<float>();
  float* mean = args.mean.as<float>();
  float* rstd = args.rstd.as<float>();
  const bool has_running = args.running_mean.has_data();
  float* running_mean = has_running ? args.running_mean.as<float>() : nullptr;
  float* running_var = has_running ? args.running_var.as<float>() : nullptr;
  if (args.statistics == NormStatistics::kRunning) {
    for (int64_t c = 0; c < shape.channels; ++c) {
      mean[c] = running_mean[c];
      rstd[c] = rstd_of(static_cast<double>(running_var[c]), args.epsilon);
    }
    return;
  }
  struct Moments {
    double mean = 0.0;
    double squares = 0.0;  // sum of squared differences to the mean
  };
  std::vector<Moments> moments(static_cast<size_t>(shape.channels));
  const auto of = [&](int64_t c) -> Moments& { return moments[static_cast<size_t>(c)]; };
  const auto count = static_cast<double>(shape.of_channel());
  for_channels(
      pool, shape, [&](int64_t c, int64_t i) { of(c).mean += static_cast<double>(x[i]); },
      [&](int64_t c) { of(c).mean /= count; });
  for_channels(
      pool, shape,
      [&](int64_t c, int64_t i) {
        const double difference = static_cast<double>(x[i]) - of(c).mean;
        of(c).squares += difference * difference;
      },
      [&](int64_t c) {
        mean[c] = static_cast<float>(of(c).mean);
        rstd[c] = rstd_of(of(c).squares / count, args.epsilon);
        if (!has_running) return;
        move(running_mean[c], of(c).mean, args.momentum);
        if (count > 1.0) move(running_var[c], of(c).squares / (count - 1.0), args.momentum);
      });
}

bool bit_at(const uint8_t* mask, int64_t i) { return (mask[i / 8] >> (i % 8) & 1) != 0; }

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const BatchNormReluFwd& args) {
  require_f32("batch_norm_relu_fwd", "x", args.x);
  const ChannelsShape shape = channels_shape(args.x);
  if (shape.elements() == 0) return;
  take_statistics(pool, args);
  const float* x = args.x.as<float>();
  const float* addend = args.addend.has_data() ? args.addend.as<float>() : nullptr;
  const float* gamma = args.gamma.as<float>();
  const float* beta = args.beta.as<float>();
  const float* mean = args.mean.as<float>();
  const float* rstd = args.rstd.as<float>();
  float* y = args.y.as<float>();
  uint8_t* mask = args.mask.has_data() ? args.mask.as<uint8_t>() : nullptr;
  for_elements(pool, shape, [&](int64_t i, int64_t c) {
    float value = (x[i] - mean[c]) * (rstd[c] * gamma[c]) + beta[c];
    if (addend != nullptr) value += addend[i];
    y[i] = value <= 0.0f ? 0.0f : value;  // NaN is not below zero
    if (mask == nullptr) return;
    const unsigned bit = y[i] != 0.0f ? 1u : 0u;
    const unsigned before = i % 8 == 0 ? 0u : mask[i / 8];
    mask[i / 8] = static_cast<uint8_t>(before | bit << (i % 8));
  });
}

template <>
void run_cpu(WorkerPool& pool, const BatchNormReluBwd& args) {
  require_f32("batch_norm_relu_bwd", "dy", args.dy);
  const ChannelsShape shape = channels_shape(args.dy);
  const float* dy = args.dy.as<float>();
  const float* x = args.x.as<float>();
  const auto* mask = static_cast<const uint8_t*>(args.mask.data);
  const float* mean = args.mean.as<float>();
  const float* rstd = args.rstd.as<float>();
  const float* gamma = args.gamma.as<float>();
  float* dx = args.dx.as<float>();
  float* daddend = args.daddend.has_data() ? args.daddend.as<float>() : nullptr;
  float* dgamma = args.dgamma.as<float>();
  float* dbeta = args.dbeta.as<float>();
  const auto gradient = [&](int64_t i) { return bit_at(mask, i) ? dy[i] : 0.0f; };

  struct Sums {
    double g = 0.0;
    double gx = 0.0;  // g * (x - mean)
  };
  std::vector<Sums> sums(static_cast<size_t>(shape.channels));
  const auto of = [&](int64_t c) -> Sums& { return sums[static_cast<size_t>(c)]; };
  const bool add = args.accumulate == Accumulate::kYes;
  const auto write = [&](float& target, double sum) {
    target = static_cast<float>(add ? static_cast<double>(target) + sum : sum);
  };
  for_channels(
      pool, shape,
      [&](int64_t c, int64_t i) {
        const auto g = static_cast<double>(gradient(i));
        of(c).g += g;
        of(c).gx += g * (static_cast<double>(x[i]) - static_cast<double>(mean[c]));
      },
      [&](int64_t c) {
        write(dbeta[c], of(c).g);
        const bool none = shape.of_channel() == 0;  // then nothing was saved
        write(dgamma[c], none ? 0.0 : of(c).gx * static_cast<double>(rstd[c]));
      });

  const bool is_batch = args.statistics == NormStatistics::kBatch;
  const auto count = static_cast<double>(shape.of_channel());
  for_elements(pool, shape, [&](int64_t i, int64_t c) {
    const float g = gradient(i);
    auto centred = static_cast<double>(g);
    if (is_batch) {
      const auto scale = static_cast<double>(rstd[c]);
      const double difference = static_cast<double>(x[i]) - static_cast<double>(mean[c]);
      centred -= of(c).g / count + difference * scale * scale * of(c).gx / count;
    }
    dx[i] = static_cast<float>(static_cast<double>(rstd[c] * gamma[c]) * centred);
    if (daddend != nullptr) daddend[i] = g;
  });
}

}  // namespace bertha
