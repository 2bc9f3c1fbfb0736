// BatchNorm + ReLU and BatchNorm + Add + ReLU with a bit per element for backward.
//
// Bytes at [128, 64, 112 * 112] bf16 (U = 205.5 MB, 48.1 us at the 4.27 TB/s of a large copy), bits
// at U / 16 per pass over them:
//
//   training forward      3 U (x twice, y),            with addend 4 U; + U / 16
//   inference forward     2 U,                         with addend 3 U; + U / 16 where bits are
//                                                      wanted
//   training backward     5 U (dy and x twice, dx),    with daddend 6 U; + U / 8
//   inference backward    4 U (dy twice, x, dx),       with daddend 5 U; + U / 8
//
// Limited by memory. A tensor that fits into the second-level cache (60 MB) is read from memory
// once.
//
// Statistics take one pass: a thread sums differences to the first element that it sees of a
// channel, in f32. That element is one of those it sums, so its distance to their mean is at most
// the root of their squared deviations, and the sum of squares grows by a factor of at most 1 + the
// elements of a thread (some hundred) over what a mean known beforehand would give, whatever the
// values are. (Where a thread begins behind the end of a ragged plane, the plane's last element
// takes that place, for one thread per plane.) Threads are merged in f64 around the channel's first
// element.
//
// Measured: kernels/measured/rows.md.

#include "kernels/cuda/channel_map.cuh"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/operations.h"

namespace bertha {
namespace {

constexpr int kThreads = 256;  // of the kernels over channels

// --- statistics ------------------------------------------------------------------------------

/// Sums of x - r and of their squares, r being the channel's first element.
template <class T>
struct MomentSums {
  using Sum = double;
  static constexpr int kQuantities = 2;
  static constexpr int kInFlight = 8 / static_cast<int>(sizeof(T));
  template <int kLanes>
  struct Operands {
    LaneGroup<T, kLanes> x;
  };

  const T* x;
  int64_t inner;

  /// What a thread measures its differences from.
  __device__ float constant(int64_t, int64_t at) const { return to_float(x[at]); }
  template <int kLanes>
  __device__ Operands<kLanes> load(int64_t at, const LaneRange& lanes, bool wide) const {
    return {load_group<kLanes>(x + at, lanes, wide)};
  }
  template <int kLanes>
  __device__ void add(const Operands<kLanes>& in, const float (&pivots)[kLanes], int64_t,
                      const LaneRange& lanes, bool, float (&sums)[2][kLanes]) const {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      if (kLanes > 1 && !lanes.has(i)) continue;
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

/// What the passes over x need of a channel. Each f32 [C], in scratch.
struct ForwardTables {
  float* mean;
  float* scale;  // rstd * gamma
  float* beta;
};

struct ChannelParameters {
  const float* gamma;
  const float* beta;
  float* running_mean;  // null: nobody wants them
  float* running_var;
  float* mean;
  float* rstd;
  float momentum;
  float epsilon;
};

__device__ __forceinline__ void write_channel(const ChannelParameters& p,
                                              const ForwardTables& tables, int64_t channel,
                                              double mean, double variance) {
  const float rstd = static_cast<float>(1.0 / sqrt(variance + static_cast<double>(p.epsilon)));
  p.mean[channel] = static_cast<float>(mean);
  p.rstd[channel] = rstd;
  tables.mean[channel] = static_cast<float>(mean);
  tables.scale[channel] = rstd * p.gamma[channel];
  tables.beta[channel] = p.beta[channel];
}

/// running += momentum * (batch - running).
__device__ __forceinline__ void move_running(float& running, double batch, float momentum) {
  const double before = static_cast<double>(running);
  running = static_cast<float>(before + static_cast<double>(momentum) * (batch - before));
}

/// A warp per channel adds up its splits.
template <class T>
__global__ void __launch_bounds__(kThreads)
    finish_moments_kernel(const double* partial, int64_t splits, int64_t channels, double count,
                          MomentSums<T> moments, ChannelParameters p, ForwardTables tables) {
  constexpr int kWarps = kThreads / kWarpThreads;
  const int64_t channel =
      static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  if (channel >= channels) return;  // whole warps
  double sum = 0.0;
  double squares = 0.0;
  for (int64_t split = lane; split < splits; split += kWarpThreads) {
    sum += partial[2 * split * channels + channel];
    squares += partial[(2 * split + 1) * channels + channel];
  }
  sum = warp_sum(sum);
  squares = warp_sum(squares);
  if (lane != 0) return;
  const double mean = static_cast<double>(moments.first(channel)) + sum / count;
  const double around_mean = squares - sum * (sum / count);
  const double deviations = around_mean < 0.0 ? 0.0 : around_mean;  // NaN stays
  write_channel(p, tables, channel, mean, deviations / count);
  if (p.running_mean == nullptr) return;
  move_running(p.running_mean[channel], mean, p.momentum);
  if (count > 1.0) move_running(p.running_var[channel], deviations / (count - 1.0), p.momentum);
}

__global__ void __launch_bounds__(kThreads)
    running_statistics_kernel(int64_t channels, ChannelParameters p, ForwardTables tables) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (channel >= channels) return;
  write_channel(p, tables, channel, static_cast<double>(p.running_mean[channel]),
                static_cast<double>(p.running_var[channel]));
}

// --- forward ---------------------------------------------------------------------------------

/// Normalise, add, ReLU and bits in one pass.
template <class T>
struct ForwardMap {
  static constexpr int kTables = 3;
  static constexpr int kBlocks = 3;
  static constexpr int kInFlight = 4 / static_cast<int>(sizeof(T));
  struct Operands {
    Octet<T> x;
    Octet<T> addend;
  };

  const T* x;
  const T* addend;  // or null
  T* y;
  uint8_t* mask;  // or null
  ForwardTables tables;

  __device__ const float* table(int t) const {
    return t == 0 ? tables.mean : (t == 1 ? tables.scale : tables.beta);
  }
  __device__ Operands load(int64_t at, const LaneRange& lanes, bool wide) const {
    Operands in{load_lanes(x + at, lanes, wide), {}};
    if (addend != nullptr) in.addend = load_lanes(addend + at, lanes, wide);
    return in;
  }
  __device__ void apply(const Operands& in, const float (&constants)[kTables][kOctet], int64_t at,
                        const LaneRange& lanes, bool wide) const {
    float values[kOctet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      float value = fmaf(element(in.x, i) - constants[0][i], constants[1][i], constants[2][i]);
      if (addend != nullptr) value += element(in.addend, i);
      values[i] = value <= 0.0f ? 0.0f : value;  // NaN is not below zero
    }
    store_lanes(y + at, values, lanes, wide);
    if (mask == nullptr) return;
    const Octet<T> stored = rounded_octet<T>(values);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if (lanes.has(i) && element(stored, i) != 0.0f) bits |= 1u << i;
    }
    mask[at / kOctet] = static_cast<uint8_t>(bits);
  }
};

// --- backward --------------------------------------------------------------------------------

/// dy where the bit is one, and zero elsewhere whatever dy is.
template <class Group>
__device__ __forceinline__ float selected(const Group& dy, uint32_t bits, int i) {
  return (bits >> i & 1u) != 0 ? element(dy, i) : 0.0f;
}

/// Sums of g and of g * (x - mean).
template <class T>
struct GradientSums {
  using Sum = float;
  static constexpr int kQuantities = 2;
  static constexpr int kInFlight = 4 / static_cast<int>(sizeof(T));
  template <int kLanes>
  struct Operands {
    LaneGroup<T, kLanes> dy;
    LaneGroup<T, kLanes> x;
    uint32_t bits;
  };

  const T* dy;
  const T* x;
  const uint8_t* mask;
  const float* mean;

  __device__ float constant(int64_t channel, int64_t) const { return mean[channel]; }
  template <int kLanes>
  __device__ Operands<kLanes> load(int64_t at, const LaneRange& lanes, bool wide) const {
    return {load_group<kLanes>(dy + at, lanes, wide), load_group<kLanes>(x + at, lanes, wide),
            group_bits<kLanes>(mask, at)};
  }
  template <int kLanes>
  __device__ void add(const Operands<kLanes>& in, const float (&means)[kLanes], int64_t,
                      const LaneRange& lanes, bool, float (&sums)[2][kLanes]) const {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      if (kLanes > 1 && !lanes.has(i)) continue;
      const float g = selected(in.dy, in.bits, i);
      sums[0][i] += g;
      sums[1][i] = fmaf(g, element(in.x, i) - means[i], sums[1][i]);
    }
  }
  __device__ float total(int quantity, const float (&sums)[2], int64_t, float, int64_t) const {
    return sums[quantity];
  }
};

/// dx = scale * (g - mean_g - (x - mean) * pull). Each f32 [C], in scratch.
struct BackwardTables {
  float* mean;
  float* scale;   // rstd * gamma
  float* mean_g;  // sum of g / M
  float* pull;    // rstd^2 * sum of g (x - mean) / M
};

struct GradientParameters {
  const float* gamma;
  const float* mean;
  const float* rstd;
  float* dgamma;
  float* dbeta;
  bool add;
};

/// sums: f32 [2, C] of g and g (x - mean).
__global__ void __launch_bounds__(kThreads)
    finish_gradients_kernel(const float* sums, int64_t channels, double count, GradientParameters p,
                            BackwardTables tables) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (channel >= channels) return;
  const float rstd = p.rstd[channel];
  const float sum_g = sums[channel];
  const float sum_gn = sums[channels + channel] * rstd;
  tables.mean[channel] = p.mean[channel];
  tables.scale[channel] = rstd * p.gamma[channel];
  tables.mean_g[channel] = static_cast<float>(static_cast<double>(sum_g) / count);
  tables.pull[channel] = static_cast<float>(static_cast<double>(sum_gn) / count) * rstd;
  p.dgamma[channel] = p.add ? p.dgamma[channel] + sum_gn : sum_gn;
  p.dbeta[channel] = p.add ? p.dbeta[channel] + sum_g : sum_g;
}

template <class T, NormStatistics kStatistics>
struct BackwardMap {
  static constexpr bool kIsBatch = kStatistics == NormStatistics::kBatch;
  static constexpr int kTables = kIsBatch ? 4 : 1;
  static constexpr int kBlocks = 3;
  static constexpr int kInFlight = 4 / static_cast<int>(sizeof(T));
  struct Operands {
    Octet<T> dy;
    Octet<T> x;  // with kBatch
    uint32_t bits;
  };

  const T* dy;
  const T* x;
  const uint8_t* mask;
  T* dx;
  T* daddend;  // or null
  BackwardTables tables;

  __device__ const float* table(int t) const {
    if (t == 0) return tables.scale;
    return t == 1 ? tables.mean : (t == 2 ? tables.mean_g : tables.pull);
  }
  __device__ Operands load(int64_t at, const LaneRange& lanes, bool wide) const {
    Operands in{load_lanes(dy + at, lanes, wide), {}, mask[at / kOctet]};
    if constexpr (kIsBatch) in.x = load_lanes(x + at, lanes, wide);
    return in;
  }
  __device__ void apply(const Operands& in, const float (&constants)[kTables][kOctet], int64_t at,
                        const LaneRange& lanes, bool wide) const {
    float g[kOctet];
    float values[kOctet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      g[i] = selected(in.dy, in.bits, i);
      float centred = g[i];
      if constexpr (kIsBatch) {
        const float difference = element(in.x, i) - constants[1][i];
        centred = fmaf(-difference, constants[3][i], g[i] - constants[2][i]);
      }
      values[i] = constants[0][i] * centred;
    }
    store_lanes(dx + at, values, lanes, wide);
    if (daddend != nullptr) store_lanes(daddend + at, g, lanes, wide);
  }
};

/// One block of scratch, cut into pieces that begin at multiples of 16 bytes.
class ScratchPieces {
 public:
  explicit ScratchPieces(void* begin) : at_(static_cast<char*>(begin)) {}
  static int64_t rounded(int64_t bytes) { return (bytes + 15) / 16 * 16; }
  template <class T>
  T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(at_);
    at_ += rounded(count * static_cast<int64_t>(sizeof(T)));
    return piece;
  }

 private:
  char* at_;
};

int64_t table_bytes(int64_t channels, int tables) {
  return tables * ScratchPieces::rounded(channels * static_cast<int64_t>(sizeof(float)));
}

double elements_per_channel(const ChannelExtents& extents) {
  return static_cast<double>(extents.outer) * static_cast<double>(extents.inner);
}

template <class T>
void forward(CudaContext& context, const BatchNormReluFwd& args, const ChannelExtents& extents) {
  const int64_t channels = extents.channels;
  const T* x = elements<T>(args.x);
  const bool is_batch = args.statistics == NormStatistics::kBatch;
  const bool x_aligned = is_aligned({x});
  ChannelSumPlan plan{};
  if (is_batch) plan = plan_channel_sums(context, extents, x_aligned);
  const int64_t partial_count = 2 * plan.splits * channels;
  ScratchPieces scratch(context.scratch.take(
      ScratchPieces::rounded(partial_count * static_cast<int64_t>(sizeof(double))) +
      table_bytes(channels, 3)));
  auto* partial = scratch.take<double>(partial_count);
  const ForwardTables tables{scratch.take<float>(channels), scratch.take<float>(channels),
                             scratch.take<float>(channels)};
  const bool has_running = args.running_mean.has_data();
  const ChannelParameters parameters{
      .gamma = args.gamma.as<float>(),
      .beta = args.beta.as<float>(),
      .running_mean = has_running ? args.running_mean.as<float>() : nullptr,
      .running_var = has_running ? args.running_var.as<float>() : nullptr,
      .mean = args.mean.as<float>(),
      .rstd = args.rstd.as<float>(),
      .momentum = args.momentum,
      .epsilon = args.epsilon};
  if (is_batch) {
    const MomentSums<T> moments{x, extents.inner};
    launch_channel_sums(context, moments, extents, plan, x_aligned, partial);
    const unsigned blocks = blocks_for(channels, kThreads / kWarpThreads, INT32_MAX);
    finish_moments_kernel<T><<<blocks, kThreads, 0, context.stream>>>(
        partial, plan.splits, channels, elements_per_channel(extents), moments, parameters, tables);
  } else {
    running_statistics_kernel<<<blocks_for(channels, kThreads, INT32_MAX), kThreads, 0,
                                context.stream>>>(channels, parameters, tables);
  }
  BERTHA_CUDA_CHECK(cudaGetLastError());
  const ForwardMap<T> map{.x = x,
                          .addend = args.addend.has_data() ? elements<T>(args.addend) : nullptr,
                          .y = elements<T>(args.y),
                          .mask = args.mask.has_data() ? args.mask.as<uint8_t>() : nullptr,
                          .tables = tables};
  map_channels(context, map, extents, is_aligned({map.x, map.addend, map.y}), true);
}

template <class T, NormStatistics kStatistics>
void launch_backward_map(CudaContext& context, const BatchNormReluBwd& args,
                         const ChannelExtents& extents, const BackwardTables& tables) {
  const BackwardMap<T, kStatistics> map{
      .dy = elements<T>(args.dy),
      .x = elements<T>(args.x),
      .mask = args.mask.as<uint8_t>(),
      .dx = elements<T>(args.dx),
      .daddend = args.daddend.has_data() ? elements<T>(args.daddend) : nullptr,
      .tables = tables};
  map_channels(context, map, extents, is_aligned({map.dy, map.x, map.dx, map.daddend}), true);
}

template <class T>
void backward(CudaContext& context, const BatchNormReluBwd& args, const ChannelExtents& extents) {
  const int64_t channels = extents.channels;
  const GradientSums<T> gradient{elements<T>(args.dy), elements<T>(args.x), args.mask.as<uint8_t>(),
                                 args.mean.as<float>()};
  const bool aligned = is_aligned({gradient.dy, gradient.x});
  const ChannelSumPlan plan = plan_channel_sums(context, extents, aligned);
  const int64_t partial_bytes = column_sum_bytes(plan.splits, channels, 2);
  ScratchPieces scratch(context.scratch.take(
      ScratchPieces::rounded(partial_bytes) +
      ScratchPieces::rounded(2 * channels * static_cast<int64_t>(sizeof(float))) +
      table_bytes(channels, 4)));
  auto* partial = scratch.take<float>(2 * plan.splits * channels);
  auto* sums = scratch.take<float>(2 * channels);
  const BackwardTables tables{scratch.take<float>(channels), scratch.take<float>(channels),
                              scratch.take<float>(channels), scratch.take<float>(channels)};
  launch_channel_sums(context, gradient, extents, plan, aligned, partial);
  finish_column_sums<float, 2>(context, partial, plan.splits, channels,
                               {{{sums, false}, {sums + channels, false}}});
  finish_gradients_kernel<<<blocks_for(channels, kThreads, INT32_MAX), kThreads, 0,
                            context.stream>>>(sums, channels, elements_per_channel(extents),
                                              {.gamma = args.gamma.as<float>(),
                                               .mean = args.mean.as<float>(),
                                               .rstd = args.rstd.as<float>(),
                                               .dgamma = args.dgamma.as<float>(),
                                               .dbeta = args.dbeta.as<float>(),
                                               .add = args.accumulate == Accumulate::kYes},
                                              tables);
  BERTHA_CUDA_CHECK(cudaGetLastError());
  if (args.statistics == NormStatistics::kBatch) {
    launch_backward_map<T, NormStatistics::kBatch>(context, args, extents, tables);
  } else {
    launch_backward_map<T, NormStatistics::kRunning>(context, args, extents, tables);
  }
}

}  // namespace

void run_cuda(CudaContext& context, const BatchNormReluFwd& args) {
  const ChannelExtents extents = channel_extents(args.x);
  if (extents.elements() == 0) return;
  dispatch_io(args.x.dtype,
              [&](auto tag) { forward<typename decltype(tag)::Type>(context, args, extents); });
}

void run_cuda(CudaContext& context, const BatchNormReluBwd& args) {
  const ChannelExtents extents = channel_extents(args.dy);
  if (extents.channels == 0) return;
  if (extents.elements() == 0) {  // sums over nothing
    const bool add = args.accumulate == Accumulate::kYes;
    finish_column_sums<float, 2>(context, nullptr, 0, extents.channels,
                                 {{{args.dgamma.as<float>(), add}, {args.dbeta.as<float>(), add}}});
    return;
  }
  dispatch_io(args.dy.dtype,
              [&](auto tag) { backward<typename decltype(tag)::Type>(context, args, extents); });
}

}  // namespace bertha
