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

/// The relative error of a value that is rounded to io after a sum in f32 of `terms` terms: half a
/// unit in the last place of io, and sqrt(terms) times that of f32.
double rounding_error(DType io, bool fp8, int64_t terms);

/// Weights, each changed by this relative error with a random sign.
std::vector<float> with_rounding_errors(std::vector<float> weights, double rounding);

/// A step in fp32: as it is, and with_rounding_errors().
struct Reference {
  std::vector<TensorFigures> figures;
  std::vector<TensorFigures> with_errors;
};

/// How far figures of tensor i may lie from the reference, as a part of its rms; the larger of:
///   independent errors   two roundings for each tensor up to this one, whose squares add up
///   what errors become   what weights with errors change it by: models that diverge enlarge errors
///                        without bound. A layer's weights round once, its tensors up to four times
/// Four times the first and eight times the second are never reached by chance. Infinite where
/// errors make elements that are not finite.
double figure_tolerance(const Reference& reference, size_t i, double rounding);

/// Compares a run's figures with the reference. Returns the first tensor with elements that are not
/// finite, or further away than figure_tolerance() of its rms, for rms and mean, or of its largest
/// element. `rounding`: of the run, rounding_error() of its io.
std::optional<Finding> first_finding(const std::vector<TensorFigures>& run,
                                     const Reference& reference, DType io, double rounding);

/// Runs the step of a post-mortem again on a backend, fp32 on the CPU or the run's precision on a
/// GPU. `weights`: f32 [table.elements] on the host.
std::vector<TensorFigures> replay_step(const PostMortem& post_mortem, const ParamTable& table,
                                       const std::vector<float>& weights, const ModelParts& parts);

}  // namespace bertha
