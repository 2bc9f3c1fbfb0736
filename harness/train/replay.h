#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/train/post_mortem.h"

namespace bertha {

/// The first tensor of a step, in the order of computation, that is not what it should be.
struct Finding {
  std::string tensor;
  std::string text;  // a sentence
};

/// How far figures of the same tensor may lie apart that were computed with two roundings to io for
/// each tensor before it, and sums in f32 of `terms` terms. Roundings are independent, so that
/// their squares add up: after n of them the relative error is sqrt(n) times that of one, half a
/// unit in the last place of io, and sqrt(terms) times that of f32. Four times as much is never
/// reached by chance.
double figure_tolerance(DType io, bool fp8, int64_t tensors_before, int64_t terms);

/// Compares a run's figures with those of a reference in fp32. `io`, `fp8`: of the run. Returns the
/// first tensor with elements that are not finite, or further from the reference than
/// figure_tolerance() of its rms, for rms and mean, or of its largest element.
std::optional<Finding> first_finding(const std::vector<TensorFigures>& run,
                                     const std::vector<TensorFigures>& reference, DType io,
                                     bool fp8, int64_t terms);

/// Runs the step of a post-mortem again on a backend, fp32 on the CPU or the run's precision on a
/// GPU. `weights`: f32 [table.elements] on the host.
std::vector<TensorFigures> replay_step(const PostMortem& post_mortem, const ParamTable& table,
                                       const std::vector<float>& weights, const ModelParts& parts);

}  // namespace bertha
