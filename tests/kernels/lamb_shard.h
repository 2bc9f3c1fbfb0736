#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/lamb.h"

namespace bertha::testing {

inline constexpr LambMomentsRules kAdamWRules = {
    .beta_1 = 0.8, .beta_2 = 0.97, .epsilon = 1e-3, .weight_decay = 0.05};

/// What the operations are told about a shard, wherever its memory is.
template <class AnyShard>
struct ShardArguments {
  LambPrepare prepare_args() {
    return {.state = shard().state_view(),
            .gradient_sum_of_squares = shard().sum_view(),
            .rules = {.schedule = {.base = 1}}};
  }
  LambMoments moments_args() {
    return {.gradient = shard().gradient_view(),
            .weight = shard().weight_view(),
            .m = shard().m_view(),
            .v = shard().v_view(),
            .update = shard().update_view(),
            .norms = shard().norms_view(),
            .state = shard().state_view(),
            .segments = shard().segments};
  }
  LambApply apply_args() {
    return {.weight = shard().weight_view(),
            .model_weight = shard().model_weight_view(),
            .update = shard().update_view(),
            .norms = shard().norms_view(),
            .state = shard().state_view(),
            .segments = shard().segments};
  }
  LambStep step_args() {
    return {.gradient = shard().gradient_view(),
            .weight = shard().weight_view(),
            .model_weight = shard().model_weight_view(),
            .m = shard().m_view(),
            .v = shard().v_view(),
            .norms = shard().norms_view(),
            .state = shard().state_view(),
            .segments = shard().segments,
            .rules = kAdamWRules};
  }
  AdamWStep adamw_args() {
    return {.gradient = shard().gradient_view(),
            .weight = shard().weight_view(),
            .model_weight = shard().model_weight_view(),
            .m = shard().m_view(),
            .v = shard().v_view(),
            .state = shard().state_view(),
            .segments = shard().segments,
            .rules = kAdamWRules};
  }

 private:
  AnyShard& shard() { return static_cast<AnyShard&>(*this); }
};

/// A shard with everything the operations need, in plain vectors.
struct Shard : ShardArguments<Shard> {
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
  View gradient_view() { return of(gradient); }
  View weight_view() { return of(weight); }
  View m_view() { return of(m); }
  View v_view() { return of(v); }
  View update_view() { return of(update); }
  View model_weight_view() { return of(model_weight); }
  View norms_view() { return View(norms.data(), DType::kF64, {tensors, 2}); }
  View state_view() { return View(&state, DType::kU8, {sizeof(LambState)}); }
  View sum_view() { return View(&sum, DType::kF64, {1}); }

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
  bool decay;
  double w2;
  double u2;
  float ratio;
};
inline constexpr TrustRatioCase kTrustRatioCases[] = {
    {true, 16, 4, 2}, {false, 16, 4, 1}, {true, 0, 4, 1}, {true, 16, 0, 1}, {true, 1, 100, 0.1f}};

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

/// The scalars of update t, as LambPrepare would set them.
inline void set_update(LambState& state, int t) {
  state.successful_steps = t;
  state.gradient_multiplier = 0.125f;
  state.learning_rate = 0.02f;
  state.bias_correction_1 = static_cast<float>(1 - std::pow(kAdamWRules.beta_1, t));
  state.bias_correction_2 = static_cast<float>(1 - std::pow(kAdamWRules.beta_2, t));
}

/// The shard before its fifth update: moments are not zero, and every element of the model's copy
/// is 5, so that a stray write shows.
inline Shard before_fifth_update(Shard shard) {
  fill_random(shard.weight, 1, 0.5f);
  fill_random(shard.gradient, 2, 8.0f);
  fill_random(shard.m, 3, 0.3f);
  fill_random(shard.v, 4, 0.3f);
  for (float& value : shard.v) value *= value;
  for (float& value : shard.model_weight) value = 5.0f;
  set_update(shard.state, 5);
  return shard;
}

/// Ragged segments with gaps, and shards of odd sizes that one segment covers.
inline std::vector<Shard> adamw_shards() {
  std::vector<Shard> shards = {before_fifth_update(ragged_shard())};
  for (const int64_t elements : {0, 1, 7, 33, 511}) {
    Shard shard(elements, 1);
    shard.segments = {{.tensor = 0, .begin = 0, .end = elements, .decay = elements != 33}};
    shards.push_back(before_fifth_update(shard));
  }
  return shards;
}

/// Segments for which the ratio of LambApply is 1.
inline std::vector<LambSegment> without_decay(std::vector<LambSegment> segments) {
  for (LambSegment& segment : segments) segment.decay = false;
  return segments;
}

/// The elements of all segments against a run in double.
inline void expect_close(const std::vector<float>& found, const std::vector<double>& want,
                         const Shard& shard, const char* what, int step) {
  for (const LambSegment& segment : shard.segments) {
    for (auto i = static_cast<size_t>(segment.begin); i < static_cast<size_t>(segment.end); ++i) {
      ASSERT_NEAR(found[i], want[i], tolerance::kLambF32 * std::max(1.0, std::abs(want[i])))
          << what << " of element " << i << " after step " << step;
    }
  }
}

}  // namespace bertha::testing
