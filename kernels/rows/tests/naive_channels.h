#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/base/view.h"

namespace bertha {

// PReLU and BatchNorm + ReLU element by element, straight from their contracts, in f64.

using Doubles = std::vector<double>;

struct ChannelsExtents {
  int64_t outer;
  int64_t channels;
  int64_t inner;

  int64_t elements() const { return outer * channels * inner; }
  int64_t channel_of(int64_t element) const { return element / inner % channels; }
  std::string text() const { return concat(" [", outer, ",", channels, ",", inner, "]"); }
};

/// Channels first and last, one channel, rows that are no multiple of eight, 7 x 7, none at all.
inline const std::vector<ChannelsExtents> kChannelsExtents = {
    {0, 3, 5},   {3, 0, 5},   {2, 3, 0},   {1, 1, 1},     {1, 1, 37},   {5, 1, 33}, {2, 3, 7},
    {3, 5, 8},   {4, 3, 49},  {2, 17, 64}, {33, 16, 1},   {511, 8, 1},  {7, 5, 1},  {65, 33, 1},
    {3, 2, 511}, {9, 264, 1}, {2, 2, 3},   {300, 520, 1}, {2, 3, 3136}, {1, 70, 2}};

struct NaivePreluGradient {
  Doubles dx;
  Doubles dslope;
  Doubles terms;  // per channel: sum of magnitudes
};

inline double at(const Doubles& values, int64_t i) { return values[static_cast<size_t>(i)]; }
inline double& at(Doubles& values, int64_t i) { return values[static_cast<size_t>(i)]; }

inline Doubles naive_prelu(const ChannelsExtents& e, const Doubles& x, const Doubles& slope) {
  Doubles y = x;
  for (int64_t i = 0; i < e.elements(); ++i) {
    if (!(at(x, i) > 0.0)) at(y, i) = at(slope, e.channel_of(i)) * at(x, i);
  }
  return y;
}

inline NaivePreluGradient naive_prelu_backward(const ChannelsExtents& e, const Doubles& x,
                                               const Doubles& slope, const Doubles& dy) {
  const auto channels = static_cast<size_t>(e.channels);
  NaivePreluGradient gradient{dy, Doubles(channels, 0.0), Doubles(channels, 0.0)};
  for (int64_t i = 0; i < e.elements(); ++i) {
    if (at(x, i) > 0.0) continue;
    const int64_t c = e.channel_of(i);
    at(gradient.dx, i) = at(slope, c) * at(dy, i);
    at(gradient.dslope, c) += at(x, i) * at(dy, i);
    at(gradient.terms, c) += std::abs(at(x, i) * at(dy, i));
  }
  return gradient;
}

struct NaiveMoments {
  Doubles mean;
  Doubles variance;  // biased
};

inline NaiveMoments naive_moments(const ChannelsExtents& e, const Doubles& x) {
  const auto channels = static_cast<size_t>(e.channels);
  const auto count = static_cast<double>(e.outer * e.inner);
  NaiveMoments moments{Doubles(channels, 0.0), Doubles(channels, 0.0)};
  for (int64_t i = 0; i < e.elements(); ++i) at(moments.mean, e.channel_of(i)) += at(x, i) / count;
  for (int64_t i = 0; i < e.elements(); ++i) {
    const double difference = at(x, i) - at(moments.mean, e.channel_of(i));
    at(moments.variance, e.channel_of(i)) += difference * difference / count;
  }
  return moments;
}

/// What is normalised by: mean and rstd.
struct NaiveBatchNorm {
  ChannelsExtents e;
  Doubles x;
  Doubles gamma;
  Doubles mean;
  Doubles rstd;

  double normalized(int64_t i) const {
    const int64_t c = e.channel_of(i);
    return (at(x, i) - at(mean, c)) * at(rstd, c);
  }
  /// Before ReLU; `addend` may be empty.
  Doubles forward(const Doubles& beta, const Doubles& addend) const {
    Doubles z(x.size());
    for (int64_t i = 0; i < e.elements(); ++i) {
      const int64_t c = e.channel_of(i);
      at(z, i) =
          normalized(i) * at(gamma, c) + at(beta, c) + (addend.empty() ? 0.0 : at(addend, i));
    }
    return z;
  }
};

struct NaiveBatchNormGradient {
  Doubles g;
  Doubles dx;
  Doubles dgamma;
  Doubles dbeta;
};

/// `ones` says which elements ReLU let through.
inline NaiveBatchNormGradient naive_batch_norm_backward(const NaiveBatchNorm& norm,
                                                        const Doubles& dy,
                                                        const std::vector<bool>& ones,
                                                        bool is_batch) {
  const ChannelsExtents& e = norm.e;
  const auto channels = static_cast<size_t>(e.channels);
  const auto count = static_cast<double>(e.outer * e.inner);
  NaiveBatchNormGradient gradient{dy, dy, Doubles(channels, 0.0), Doubles(channels, 0.0)};
  for (int64_t i = 0; i < e.elements(); ++i) {
    if (!ones[static_cast<size_t>(i)]) at(gradient.g, i) = 0.0;
    at(gradient.dbeta, e.channel_of(i)) += at(gradient.g, i);
    at(gradient.dgamma, e.channel_of(i)) += at(gradient.g, i) * norm.normalized(i);
  }
  for (int64_t i = 0; i < e.elements(); ++i) {
    const int64_t c = e.channel_of(i);
    double centred = at(gradient.g, i);
    if (is_batch) {
      centred -=
          at(gradient.dbeta, c) / count + norm.normalized(i) * at(gradient.dgamma, c) / count;
    }
    at(gradient.dx, i) = at(norm.gamma, c) * at(norm.rstd, c) * centred;
  }
  return gradient;
}

}  // namespace bertha
