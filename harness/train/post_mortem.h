#pragma once

#include <string>
#include <vector>

#include "harness/train/run.h"
#include "harness/train/step_trace.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

/// What a run that ended on a numeric failure leaves of one rank, read back.
struct PostMortem {
  Config config;
  int64_t step = 0;
  int rank = 0;
  int num_ranks = 1;
  DType io = DType::kF32;
  std::string device = {};
  std::string weights = {};                          // their file; "" = they could not be saved
  std::vector<std::string> weights_not_finite = {};  // tensors
  TracedStep traced = {};                            // the last batch
  std::vector<TensorFigures> figures = {};           // of the run, see trace_step()
};

/// Writes <run_dir>/post_mortem.rank_%04d.json after a numeric failure: counters (`lamb` as the
/// device has them now) and the figures of every tensor of weights; then this rank's last batch,
/// which runs through the model once more, with its seeds and scales and the figures of every
/// activation and of this rank's gradients. Tensors that are not finite are named. Rank 0 also
/// writes the weights, post_mortem.safetensors, 4 bytes for each parameter, where they are finite.
/// All ranks call it. Returns the path.
///
/// Errors    Error(kData) when a file cannot be written.
std::string write_post_mortem(const TrainingRun& run, const LambState& lamb);

/// Errors    Error(kData) naming the file and the field that is wrong, or that the run ended before
///           its first batch.
PostMortem read_post_mortem(const std::string& path);

}  // namespace bertha
