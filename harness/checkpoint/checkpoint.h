#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/comm/world.h"
#include "harness/config/config.h"
#include "harness/model/dims.h"
#include "harness/model/params.h"
#include "harness/optim/optimizer.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

struct EvalPoint {
  int64_t step = 0;
  int64_t samples = 0;
  double mlm_accuracy = 0;
  double mlm_loss = 0;  // NaN if read back from a value that was not finite
};

/// What determines the position of a step in the data: a run resumes only if all are the same.
struct DataPosition {
  int64_t global_batch_seqs = 0;
  SampleOrder order = SampleOrder::kWindowed;
  int64_t window_shards = 0;       // data.window_shards
  std::string identity;            // md5 over names and bytes of the training shards
  std::string content = {};        // md5 over these and the hashes in their manifest; "" = unknown
  std::string eval_identity = {};  // for data.eval, with eval.max_samples; "" = unknown
  std::string eval_content = {};   // eval_identity with the hashes of the manifest
  // Numbers on which the published order depends; 0 = another order, or unknown.
  int64_t ranks = 0;
  int64_t micro_batches = 0;  // train.accumulation_steps
};

/// The usual masked-token loss in training: a moving mean over records, and the sums since the last
/// record, so that a resumed run finds the same jumps as an uninterrupted one.
struct UsualLoss {
  double mean = 0;
  int64_t records = 0;      // in the mean, up to its window
  double open_sum = 0;      // sum of the loss over the masked tokens since the last record
  int64_t open_masked = 0;  // their number
};

/// The progress of a run: with weights and moments, everything needed to continue bit for bit.
struct TrainingState {
  int64_t step = 0;              // batches trained on, skipped updates included
  int64_t batches_left_out = 0;  // before the next one, by rewinds
  int64_t samples_trained = 0;   // sequences in successful updates
  uint64_t seed = 0;             // data order, dropout and initialization derive from it
  DataPosition data;
  LambState lamb;
  std::vector<int> fp8_scale_exponents = {};   // see Bert::scale_exponents()
  LastLayer last_layer = LastLayer::kAllRows;  // the run's first setting
  UsualLoss usual_loss = {};
  std::vector<EvalPoint> evals;
  double training_seconds = 0;        // over all processes of the run
  std::optional<double> joules = {};  // all GPUs, all processes; none = a part is unknown
};

/// state.json: counters, scalars of the optimizer and the evaluations so far. Floats are written
/// so that reading them gives the same bits.
std::string to_json(const TrainingState& state);
/// Error(kData) naming `path` and the field.
TrainingState training_state_from_json(const std::string& text, const std::string& path);

/// The objects that a checkpoint is saved from and restored into.
struct CheckpointParts {
  World* world = nullptr;
  Device* device = nullptr;
  Stream* stream = nullptr;
  Optimizer* optimizer = nullptr;
  const ParamTable* table = nullptr;
  Dims dims;
  const Config* config = nullptr;
};

/// Writes <folder>/step_%08d/ with model.safetensors, config.json, vocab.txt, tokenizer_config.json
/// unless it is the default (names and layout of Hugging Face), optimizer-%05d-of-%05d.safetensors
/// (one per shard), state.json, and DONE as the last file; built under a temporary name, renamed.
/// Then removes the complete ones that checkpoint.keep, keep_every_steps and keep_best do not keep;
/// with keep_best, points <folder>/best to the best. All ranks call it. Returns the path.
///
/// Errors    on all ranks, without touching earlier checkpoints: Error(kData) (full disk, no
///           permission), Error(kNumeric) if a weight or a moment is not finite.
std::string save_checkpoint(const std::string& folder, const TrainingState& state,
                            const CheckpointParts& parts);

/// Whether the last evaluation is better than all before.
bool is_best_evaluation(const std::vector<EvalPoint>& evals);

/// The complete checkpoint in `folder` of the best evaluation that has one, the first of equals;
/// "" if none has.
std::string best_checkpoint(const std::string& folder, const std::vector<EvalPoint>& evals);

/// The newest intact checkpoint in `folder`; torn and damaged ones are reported and skipped.
///
/// Errors    Error(kData) if there are complete ones and all of them are damaged.
std::optional<std::string> newest_checkpoint(const std::string& folder);

/// Restores optimizer, weights and state, at any world size.
///
/// Errors    Error(kData): another shape (with the tensor, found and wanted), a missing or torn
///           file, a checksum that differs, numbers that are not finite.
TrainingState load_checkpoint(const std::string& path, const CheckpointParts& parts);

}  // namespace bertha
