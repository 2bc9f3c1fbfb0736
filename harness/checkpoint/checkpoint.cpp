#include "harness/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/files/tokenizer_settings.h"
#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/load_weights.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/checkpoint/optimizer_files.h"
#include "harness/checkpoint/stated_model.h"
#include "harness/checkpoint/weight_file.h"
#include "harness/checkpoint/weight_folder.h"
#include "kernels/base/log.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kState = "state.json";

/// Every rank hashes its share of the files that a resume reads, so that each is hashed once.
void verify_share(const std::string& path, const World& world) {
  std::vector<std::string> names = optimizer_file_names(path);
  names.insert(names.begin(), {kWeights, kState});
  for (size_t i = static_cast<size_t>(world.rank()); i < names.size();
       i += static_cast<size_t>(world.size())) {
    verify_folder(path, {names[i]});
  }
}

void remove_others(const std::string& folder, const std::string& saved, const TrainingState& state,
                   const CheckpointConfig& config) {
  const std::string best = config.keep_best ? best_checkpoint(folder, state.evals) : "";
  if (!best.empty()) point_best_to(folder, best);
  remove_old_checkpoints(folder, {.saved = saved,
                                  .newest = std::max<int64_t>(config.keep, 1),
                                  .every_steps = config.keep_every_steps,
                                  .best = best});
}

void write_common_files(const std::string& partial, const TrainingState& state,
                        const CheckpointParts& parts) {
  write_weight_file(partial + "/" + kWeights, parts);
  const Config& config = *parts.config;
  const std::string source = source_config(config.checkpoint.init);
  write_new_file(partial + "/config.json",
                 hugging_face_config(config.model, ModelHeads::kAll, source));
  write_new_file(partial + "/" + kState, to_json(state));
  const std::string& vocab = config.data.vocab;
  if (vocab.empty()) return;
  write_tokenizer_files(vocab, read_tokenizer_settings(vocab), config.model.max_positions, false,
                        partial);
}

}  // namespace

std::string save_checkpoint(const std::string& folder, const TrainingState& state,
                            const CheckpointParts& parts) {
  World& world = *parts.world;
  const bool is_first_rank = world.rank() == 0;
  char name[32];
  std::snprintf(name, sizeof(name), "step_%08lld", static_cast<long long>(state.step));
  std::string path = folder + "/" + name;
  const std::string partial = path + ".partial";

  try {
    on_first_rank(world, [&] { make_partial_folder(path); });
    std::string own_line;  // each rank hashes the files that it wrote
    on_all_ranks(world, [&] {
      if (parts.optimizer->is_first_of_shard()) {
        own_line = done_line(write_optimizer_file(partial, parts));
      }
      if (is_first_rank) write_common_files(partial, state, parts);
    });
    const std::vector<std::string> lines = world.gather_texts(own_line);
    on_first_rank(world, [&] { seal_folder(partial, path, lines); });
  } catch (const Error&) {
    std::error_code ignored;  // the first error is the one to report
    if (is_first_rank) fs::remove_all(partial, ignored);
    throw;
  }
  if (is_first_rank) remove_others(folder, path, state, parts.config->checkpoint);
  return path;
}

bool is_best_evaluation(const std::vector<EvalPoint>& evals) {
  return !evals.empty() && std::all_of(evals.begin(), evals.end() - 1, [&](const EvalPoint& eval) {
    return eval.mlm_accuracy < evals.back().mlm_accuracy;
  });
}

std::string best_checkpoint(const std::string& folder, const std::vector<EvalPoint>& evals) {
  std::string best;
  double most = -1;
  for (const std::string& path : list_checkpoints(folder)) {
    const auto eval = std::find_if(evals.rbegin(), evals.rend(), [&](const EvalPoint& point) {
      return point.step == step_of_checkpoint(path);
    });
    if (eval == evals.rend() || eval->mlm_accuracy <= most || !is_complete(path)) continue;
    most = eval->mlm_accuracy;
    best = path;
  }
  return best;
}

std::optional<std::string> newest_checkpoint(const std::string& folder) {
  std::vector<std::string> paths = list_checkpoints(folder);
  int64_t num_damaged = 0;  // without torn ones, which were never complete
  std::string first_reason;
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    try {
      verify_folder(*path);
      return *path;
    } catch (const Error& error) {
      // A live run has removed it after saving a newer one.
      if (!fs::exists(*path)) return newest_checkpoint(folder);
      log_line(LogLevel::kWarning, concat("skipping a damaged checkpoint: ", error.what()));
      if (is_complete(*path) && ++num_damaged == 1) first_reason = error.what();
    }
  }
  if (num_damaged > 0) {
    fail(ExitCode::kData, "none of the ", num_damaged, " checkpoints in ", folder, " is intact (",
         first_reason, "); repair one, or set checkpoint.resume to never.");
  }
  return std::nullopt;
}

TrainingState load_checkpoint(const std::string& path, const CheckpointParts& parts) {
  World& world = *parts.world;
  TrainingState state;
  on_all_ranks(world, [&] {
    if (!is_complete(path)) {
      fail(ExitCode::kData, path,
           ": has no DONE, so it is not a complete checkpoint; give the "
           "folder of one, for example <run>/ckpt/step_00001000.");
    }
    verify_share(path, world);
  });
  on_all_ranks(world, [&] {  // nothing is parsed before all hashes have been compared
    if (world.rank() == 0) {
      check_weight_tensors(path, *parts.table, parts.dims, MissingHeads::kRefuse);
    }
    state = training_state_from_json(read_text_file(path + "/" + kState), path + "/" + kState);
    read_optimizer_files(path, parts);
  });
  parts.device->copy(*parts.stream, parts.optimizer->state().data, &state.lamb, sizeof(LambState));
  parts.stream->wait_on_host();
  parts.optimizer->publish_master();
  return state;
}

}  // namespace bertha
