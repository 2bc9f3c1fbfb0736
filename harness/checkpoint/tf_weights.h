#pragma once

#include <memory>
#include <string>

#include "harness/checkpoint/weight_source.h"

namespace bertha {

/// The variables of a TensorFlow checkpoint by their names. Where tf.train.Checkpoint wrote it,
/// they are those that the saved object graph states, and for models of the model garden the paths
/// among saved objects, with the shapes of the official code.
std::unique_ptr<WeightSource> open_tf_weights(const std::string& prefix);

}  // namespace bertha
