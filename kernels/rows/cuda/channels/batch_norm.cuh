#pragma once

#include <optional>

#include "kernels/rows/cuda/channels/channel_apply.cuh"
#include "kernels/rows/cuda/channels/channel_sums.cuh"
#include "kernels/rows/cuda/channels/channel_tiles.cuh"

namespace bertha {

// What batch_norm_relu_fwd.cu and batch_norm_relu_bwd.cu share: the sums of each channel and what
// follows from them, policies of channel_sums.cuh and channel_tiles.cuh; and their launches.
//
// Statistics take one pass: a thread sums differences to the first element that it sees of a
// channel, in f32. That element is one of those it sums, so its distance to their mean is at most
// the root of their squared deviations, and the sum of squares grows by a factor of at most 1 + the
// elements of a thread (some hundred) over what a mean known beforehand would give, whatever the
// values are. In tiles of columns the threads of a warp that share a channel sum differences to the
// first element of all of them, which is the same for some hundred elements. Threads are merged in
// f64 around the channel's first element.

/// Sums of x - r and of their squares, r being the channel's first element.
template <class T>
struct MomentSums {
  using Sum = double;
  static constexpr int kQuantities = 2;
  static constexpr int kInFlight = 8 / static_cast<int>(sizeof(T));
  template <int N>
  struct Operands {
    Vec<T, N> x;
  };

  const T* x;
  int64_t inner;

  /// What a thread measures its differences from.
  __device__ float constant(int64_t, int64_t at) const { return to_float(x[at]); }
  template <int N>
  __device__ Operands<N> load(int64_t at) const {
    return {load_vec<N>(x + at)};
  }
  template <int N>
  __device__ void add(const Operands<N>& in, const float (&pivots)[N], int64_t,
                      float (&sums)[2][N]) const {
    for (int i = 0; i < N; ++i) {
      const float difference = element(in.x, i) - pivots[i];
      sums[0][i] += difference;
      sums[1][i] = fmaf(difference, difference, sums[1][i]);
    }
  }
  /// With d = pivot - r: sum (x - r) = sum + n d, sum (x - r)^2 = squares + 2 d sum + n d^2.
  __device__ double total(int quantity, const float (&sums)[2], int64_t count, float pivot,
                          int64_t channel) const {
    const double moved = static_cast<double>(pivot) - static_cast<double>(first(channel));
    const double sum = static_cast<double>(sums[0]);
    const double all = static_cast<double>(count) * moved;
    if (quantity == 0) return sum + all;
    return static_cast<double>(sums[1]) + moved * (2.0 * sum + all);
  }
  __device__ float first(int64_t channel) const { return to_float(x[channel * inner]); }
};

/// Mean, rstd and the running statistics; constants: mean, rstd * gamma, beta.
template <class T>
struct MomentFinish {
  using Sum = double;
  static constexpr int kQuantities = 2;
  static constexpr int kTables = 3;
  struct Inputs {
    float first;
    float gamma;
    float beta;
    float running_mean;
    float running_var;
  };

  MomentSums<T> moments;
  const float* gamma;
  const float* beta;
  float* running_mean;  // null: nobody wants them
  float* running_var;
  float* mean;
  float* rstd;
  double momentum;
  double epsilon;
  double per_element;        // 1 / M, M elements of a channel
  double per_other_element;  // 1 / (M - 1), or 0 where M is 1

  __device__ Inputs load(int64_t channel) const {
    const bool runs = running_mean != nullptr;
    return {moments.first(channel), gamma[channel], beta[channel],
            runs ? running_mean[channel] : 0.0f, runs ? running_var[channel] : 0.0f};
  }
  __device__ void operator()(int64_t channel, const Inputs& in, const double (&sums)[2],
                             bool writes, float* constants) const {
    const double mean_difference = sums[0] * per_element;
    const double of_batch = static_cast<double>(in.first) + mean_difference;
    const double around_mean = sums[1] - sums[0] * mean_difference;
    const double deviations = around_mean < 0.0 ? 0.0 : around_mean;  // NaN stays
    normalise_by(channel, in, of_batch, deviations * per_element, writes, constants);
    if (!writes || running_mean == nullptr) return;
    running_mean[channel] = moved(in.running_mean, of_batch);
    if (per_other_element > 0.0) {
      running_var[channel] = moved(in.running_var, deviations * per_other_element);
    }
  }
  __device__ void normalise_by(int64_t channel, const Inputs& in, double by_mean, double variance,
                               bool writes, float* constants) const {
    const auto by_rstd = static_cast<float>(rsqrt(variance + epsilon));
    constants[0] = static_cast<float>(by_mean);
    constants[1] = by_rstd * in.gamma;
    constants[2] = in.beta;
    if (!writes) return;
    mean[channel] = constants[0];
    rstd[channel] = by_rstd;
  }
  /// running + momentum * (batch - running).
  __device__ float moved(float running, double batch) const {
    const auto before = static_cast<double>(running);
    return static_cast<float>(before + momentum * (batch - before));
  }
};

/// The constants of inference: the running statistics instead of sums.
template <class T>
struct RunningFinish : MomentFinish<T> {
  __device__ void operator()(int64_t channel, const typename MomentFinish<T>::Inputs& in,
                             const double (&)[2], bool writes, float* constants) const {
    this->normalise_by(channel, in, static_cast<double>(in.running_mean),
                       static_cast<double>(in.running_var), writes, constants);
  }
};

/// dy where the bit is one, and zero elsewhere whatever dy is.
template <class T, int N>
__device__ __forceinline__ float selected(const Vec<T, N>& dy, uint32_t bits, int i) {
  return (bits >> i & 1u) != 0 ? element(dy, i) : 0.0f;
}

/// Sums of g and of g * (x - mean).
template <class T>
struct GradientSums {
  using Sum = float;
  static constexpr int kQuantities = 2;
  static constexpr int kInFlight = 4 / static_cast<int>(sizeof(T));
  template <int N>
  struct Operands {
    Vec<T, N> dy;
    Vec<T, N> x;
    uint32_t bits;
  };

  const T* dy;
  const T* x;
  const uint8_t* mask;
  const float* mean;

  __device__ float constant(int64_t channel, int64_t) const { return mean[channel]; }
  template <int N>
  __device__ Operands<N> load(int64_t at) const {
    const uint32_t byte = mask[at / kVecSize];
    return {load_vec<N>(dy + at), load_vec<N>(x + at), N == 1 ? byte >> (at % kVecSize) : byte};
  }
  template <int N>
  __device__ void add(const Operands<N>& in, const float (&means)[N], int64_t,
                      float (&sums)[2][N]) const {
    for (int i = 0; i < N; ++i) {
      const float g = selected(in.dy, in.bits, i);
      sums[0][i] += g;
      sums[1][i] = fmaf(g, element(in.x, i) - means[i], sums[1][i]);
    }
  }
  __device__ float total(int quantity, const float (&sums)[2], int64_t, float, int64_t) const {
    return sums[quantity];
  }
};

/// dx = scale * (g - mean_g - (x - mean) * pull). constants: scale = rstd * gamma, mean, mean_g =
/// sum of g / M, pull = rstd^2 * sum of g (x - mean) / M.
struct GradientFinish {
  using Sum = float;
  static constexpr int kQuantities = 2;
  static constexpr int kTables = 4;
  struct Inputs {
    float gamma;
    float mean;
    float rstd;
    float dgamma;
    float dbeta;
  };

  const float* gamma;
  const float* mean;
  const float* rstd;
  float* dgamma;
  float* dbeta;
  bool add;
  double per_element;  // 1 / M, M elements of a channel

  __device__ Inputs load(int64_t channel) const {
    return {gamma[channel], mean[channel], rstd[channel], add ? dgamma[channel] : 0.0f,
            add ? dbeta[channel] : 0.0f};
  }
  __device__ void operator()(int64_t channel, const Inputs& in, const float (&sums)[2], bool writes,
                             float* constants) const {
    const float sum_gn = sums[1] * in.rstd;
    constants[0] = in.rstd * in.gamma;
    constants[1] = in.mean;
    constants[2] = static_cast<float>(static_cast<double>(sums[0]) * per_element);
    constants[3] = static_cast<float>(static_cast<double>(sum_gn) * per_element) * in.rstd;
    if (!writes) return;
    dgamma[channel] = in.dgamma + sum_gn;
    dbeta[channel] = in.dbeta + sums[0];
  }
};

/// What the applying kernels of forward and backward share (channel_apply.cuh).
template <class T>
struct NormApply {
  static constexpr int kThreads = 128;
  static constexpr int kBlocksPerSm = 3;
  static constexpr int kVecs = 4 / static_cast<int>(sizeof(T));
  static constexpr bool kOverlapsPlanes = false;  // measured: slower
};

/// Tiles whose elements are all kept, or nothing.
template <class Tile>
std::optional<ChannelTiles> plan_tiles(const CudaContext& context, const ChannelsShape& extents,
                                       bool aligned) {
  constexpr int64_t kVecBytes = kVecSize * sizeof(typename Tile::Element);
  const auto plan = extents.inner == 1 ? plan_column_tiles : plan_plane_tiles;
  return plan(context, extents, Tile::kKept, kVecBytes, aligned);
}

}  // namespace bertha
