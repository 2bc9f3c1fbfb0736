#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/ops/lamb.h"

namespace bertha::testing {

/// A shard with everything the operations need, in plain vectors.
struct Shard {
  explicit Shard(int64_t elements, int64_t tensors_in)
      : tensors(tensors_in),
        gradient(static_cast<size_t>(elements)),
        weight(static_cast<size_t>(elements)),
        m(static_cast<size_t>(elements)),
        v(static_cast<size_t>(elements)),
        update(static_cast<size_t>(elements)),
        model_weight(static_cast<size_t>(elements)),
        norms(static_cast<size_t>(2 * tensors_in), 99.0) {}

  static View of(std::vector<float>& values) {
    return View(values.data(), DType::kF32, {static_cast<int64_t>(values.size())});
  }
  View norms_view() { return View(norms.data(), DType::kF64, {tensors, 2}); }
  View state_view() { return View(&state, DType::kU8, {sizeof(LambState)}); }
  View sum_view() { return View(&sum, DType::kF64, {1}); }

  LambPrepare prepare_args() {
    return {.state = state_view(),
            .gradient_sum_of_squares = sum_view(),
            .rules = {.schedule = {.base = 1}}};
  }
  LambMoments moments_args() {
    return {.gradient = of(gradient),
            .weight = of(weight),
            .m = of(m),
            .v = of(v),
            .update = of(update),
            .norms = norms_view(),
            .state = state_view(),
            .segments = segments};
  }
  LambApply apply_args() {
    return {.weight = of(weight),
            .model_weight = of(model_weight),
            .update = of(update),
            .norms = norms_view(),
            .state = state_view(),
            .segments = segments};
  }

  int64_t tensors;
  std::vector<float> gradient, weight, m, v, update, model_weight;
  std::vector<double> norms;
  std::vector<LambSegment> segments;
  LambState state;
  double sum = 0;
};

inline void fill_random(std::vector<float>& values, uint32_t seed, float deviation) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  for (float& value : values) value = normal(engine);
}

/// Seven segments of five tensors with gaps, in no order of the tensors; tensors 4 and 6 have two
/// segments each with others between them, one block is crossed.
inline Shard ragged_shard() {
  Shard shard(40000, 7);
  int64_t begin = 3;
  const int64_t sizes[] = {1, 7, 33, 511, 20000, 16384, 64};
  const int64_t tensors[] = {4, 1, 6, 2, 4, 5, 6};
  for (int i = 0; i < 7; ++i) {
    shard.segments.push_back({.tensor = tensors[i],
                              .begin = begin,
                              .end = begin + sizes[i],
                              .decay = tensors[i] != 1 && tensors[i] != 5});
    begin += sizes[i] + 13;
  }
  fill_random(shard.weight, 1, 0.5f);
  return shard;
}

/// |w| and |u| of one tensor as sums of squares, and the ratio that follows.
struct TrustRatioCase {
  bool is_on;
  bool decay;
  double w2;
  double u2;
  float ratio;
};
inline constexpr TrustRatioCase kTrustRatioCases[] = {
    {true, true, 16, 4, 2}, {true, false, 16, 4, 1},    {true, true, 0, 4, 1},
    {true, true, 16, 0, 1}, {true, true, 1, 100, 0.1f}, {false, true, 16, 4, 1}};

/// One weight of 10 with an update of 1 at learning rate 0.5.
inline Shard trust_ratio_shard(const TrustRatioCase& c) {
  Shard shard(1, 1);
  shard.segments = {{.tensor = 0, .begin = 0, .end = 1, .decay = c.decay}};
  shard.weight = {10.0f};
  shard.update = {1.0f};
  shard.norms = {c.w2, c.u2};
  shard.state.learning_rate = 0.5f;
  return shard;
}

}  // namespace bertha::testing
