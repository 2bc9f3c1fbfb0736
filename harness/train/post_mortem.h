#pragma once

#include <string>

#include "data/pipeline/batch.h"
#include "harness/train/session.h"

namespace bertha {

/// What is known at a numeric failure.
struct PostMortem {
  std::string run_dir;
  const Session* session = nullptr;
  LambState lamb;
  int64_t step = 0;
  const StepBatch* batch = nullptr;  // the last one of this rank, or none
};

/// Writes <run_dir>/post_mortem.rank_%04d.json: counters, the sample ids of the last batch, and the
/// sum of squares of every tensor's weights and of this rank's gradients, with those that are not
/// finite named. All ranks call it. Returns the path.
std::string write_post_mortem(const PostMortem& facts);

}  // namespace bertha
