#include "harness/train/resume.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "data/files/hashing.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/prepare/tokenizer_files.h"
#include "data/prepare/vocabulary.h"
#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/config/run_plan.h"
#include "harness/optim/lamb_settings.h"
#include "harness/report/run_folder.h"
#include "harness/report/text_format.h"
#include "harness/train/data_source.h"
#include "kernels/base/joined.h"
#include "kernels/ops/lamb_rules.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

bool names_a_checkpoint(const std::string& resume) { return resume != "auto" && resume != "never"; }

/// The value of checkpoint.resume with which the continuation in this run folder began.
std::string origin_file(const std::string& run_dir) {
  return checkpoint_dir(run_dir) + "/resumed_from";
}

bool has_continued(const std::string& run_dir, const std::string& resume) {
  const std::string path = origin_file(run_dir);
  return fs::exists(path) && read_text_file(path) == resume + "\n";
}

/// On rank 0: the folder of the checkpoint to resume from; empty for a new run.
std::string choose_checkpoint(const Run& run) {
  const std::string& resume = run.config.checkpoint.resume;
  if (resume == "never") return "";
  const bool named = names_a_checkpoint(resume);
  if (named && !has_continued(run.run_dir, resume)) return resume;
  const auto newest = newest_checkpoint(checkpoint_dir(run.run_dir));
  return newest.value_or(named ? resume : "");
}

template <class Value>
void check_same(const std::string& checkpoint, const char* key, const Value& configured,
                const Value& saved) {
  if (configured == saved) return;
  fail(ExitCode::kUsage, checkpoint, " was trained with ", key, " ", saved, ", found ", configured,
       "; set ", key, " to ", saved, " to resume, or checkpoint.resume to never to start over.");
}

/// Whether two values are known and differ.
bool differ(const std::string& saved, const std::string& configured) {
  return !saved.empty() && !configured.empty() && saved != configured;
}

/// Fails if the run would resume from `checkpoint` with other data or another order than it was
/// trained with: Error(kUsage), or Error(kData) for other content, with the key or folder, what was
/// found and what is wanted.
void check_data_position(const DataPosition& saved, const DataPosition& configured,
                         const Config& config, const std::string& checkpoint) {
  check_same(checkpoint, "train.global_batch_seqs", configured.global_batch_seqs,
             saved.global_batch_seqs);
  check_same(checkpoint, "data.order", word_of(configured.order), word_of(saved.order));
  if (configured.order == SampleOrder::kWindowed) {  // the published order has no windows
    check_same(checkpoint, "data.window_shards", configured.window_shards, saved.window_shards);
  } else if (saved.ranks > 0) {
    check_same(checkpoint, "train.accumulation_steps", configured.micro_batches,
               saved.micro_batches);
    if (configured.ranks != saved.ranks) {
      fail(ExitCode::kUsage, checkpoint, " was trained on ", counted_text(saved.ranks, "rank"),
           ", found ", configured.ranks, ", but data.order published depends on their number; ",
           "start as many to resume, or set checkpoint.resume to never to start over.");
    }
  }
  if (configured.identity != saved.identity && config.data.synthetic) {
    fail(ExitCode::kUsage, checkpoint,
         " was trained on other data than data.synthetic gives with data.synthetic_lengths = \"",
         config.data.synthetic_lengths,
         "\"; set both as before to resume, or checkpoint.resume to never to start over.");
  }
  if (configured.identity != saved.identity) {
    fail(ExitCode::kUsage, checkpoint,
         " was trained on other shards than those in data.train: the names and sizes in ",
         config.data.train, " have the md5 ", configured.identity, ", want ", saved.identity,
         "; set data.train to the shards that it was trained on to resume, or ",
         "checkpoint.resume to never to start over.");
  }
  if (differ(saved.content, configured.content)) {
    fail(ExitCode::kData, config.data.train, ": names and sizes are those of the shards that ",
         checkpoint, " was trained on, but the hashes in the manifest have the md5 ",
         configured.content, ", want ", saved.content,
         ": the shards were prepared again, from other text or with another vocabulary or seed; "
         "set ",
         "data.train to the shards that it was trained on to resume, or ",
         "checkpoint.resume to never to start over.");
  }
}

/// The difference of the evaluation data, as md5s; "" = none is known.
std::string evaluation_change(const DataPosition& saved, const DataPosition& configured) {
  if (differ(saved.eval_identity, configured.eval_identity)) {
    return concat("names and sizes of shards, and eval.max_samples, have the md5 ",
                  configured.eval_identity, ", before ", saved.eval_identity);
  }
  if (!differ(saved.eval_content, configured.eval_content)) return "";
  return concat("hashes of shards in the manifest have the md5 ", configured.eval_content,
                ", before ", saved.eval_content);
}

/// Error(kData) if the vocabulary of the run's checkpoints would change.
void check_same_vocabulary(const Config& config, const std::string& checkpoint) {
  const std::string& path = config.data.vocab;
  const bool is_folder = fs::is_directory(path);
  const std::string kept = is_folder ? checkpoint : checkpoint + "/vocab.txt";
  if (path.empty() || !(is_folder ? has_tokenizer_files(kept) : fs::exists(kept))) return;
  const std::string found = vocabulary_sha256(path), wanted = vocabulary_sha256(kept);
  if (found == wanted) return;
  fail(ExitCode::kData, path, ": has the SHA-256 ", found, ", but ", kept,
       ", which the run was trained with, has ", wanted,
       "; set data.vocab to a copy of that one to resume, or ",
       "checkpoint.resume to never to start over.");
}

void report_resume(const Run& run, const DataPosition& saved, Reporter& reporter) {
  const std::string& resume = run.config.checkpoint.resume;
  reporter.event(concat("resumed from ", run.origin, " at step ", run.state.step));
  if (names_a_checkpoint(resume) && run.origin != resume) {
    reporter.event(concat("this folder already continues ", resume,
                          "; to begin there again, choose another folder with log.run_dir"));
  }
  const std::string other_evaluation = evaluation_change(saved, run.state.data);
  if (!other_evaluation.empty()) {
    reporter.warning(concat("data.eval (", run.config.data.eval,
                            ") differs from the run's earlier evaluation data: ", other_evaluation,
                            "; earlier evaluations no longer count for the best checkpoint",
                            run.config.train.target_accuracy > 0 ? " and the target" : ""));
  }
  if (run.state.last_layer != run.config.train.last_layer) {
    reporter.event(concat("continues with train.last_layer ", word_of(run.state.last_layer),
                          ", with which this run began"));
  }
  const std::string change = learning_rate_change(run.config, run.state.lamb);
  if (!change.empty()) reporter.warning(change);
}

void go_on_from(const std::string& from, Run& run, Reporter& reporter) {
  const TrainConfig& train = run.config.train;
  const TrainingState& state = run.state;
  const DataPosition position = state.data;
  const DataPosition saved = restore_state(run, from);
  if (state.seed != static_cast<uint64_t>(train.seed)) {
    fail(ExitCode::kUsage, from, " was trained with train.seed ", state.seed, ", found ",
         train.seed, "; set train.seed to ", state.seed,
         " to resume, or checkpoint.resume to never to start over.");
  }
  on_all_ranks(*run.world, [&] {
    check_data_position(saved, position, run.config, from);
    if (run.world->rank() == 0) check_same_vocabulary(run.config, from);
  });
  run.first_step = state.step;
  run.saved_step = state.step;
  run.last_checkpoint = from;
  run.origin = from;
  run.earlier_seconds = state.training_seconds;
  run.earlier_joules = state.joules;
  report_resume(run, saved, reporter);
}

bool is_in(const std::string& path, const std::string& folder) {
  std::error_code ignored;  // if so, they are not the same
  const fs::path without_slash = (fs::weakly_canonical(path, ignored) / "").parent_path();
  return without_slash.parent_path() == fs::weakly_canonical(folder, ignored);
}

void record_origin(const Run& run) {
  const std::string path = origin_file(run.run_dir);
  std::error_code ignored;  // a file that remains matches no other checkpoint.resume
  if (run.origin.empty()) fs::remove(path, ignored);
  if (names_a_checkpoint(run.config.checkpoint.resume)) {
    write_new_file(path, run.config.checkpoint.resume + "\n");
  }
}

}  // namespace

void begin_or_go_on(Run& run, Reporter& reporter) {
  World& world = *run.world;
  DataPosition& position = run.state.data;
  const std::string from = text_of_first_rank(world, [&] {
    std::string chosen = choose_checkpoint(run);
    identify_data(run.config, position);
    return chosen;
  });
  const std::array parts{&position.identity, &position.content, &position.eval_identity,
                         &position.eval_content};
  std::istringstream lines(
      world.broadcast(joined(parts, "\n", [](const std::string* part) { return *part; }), 0));
  for (std::string* part : parts) std::getline(lines, *part);
  const TrainConfig& train = run.config.train;
  const bool is_published = run.config.data.order == SampleOrder::kPublished;
  position.global_batch_seqs = train.global_batch_seqs;
  position.order = run.config.data.order;
  position.window_shards = run.config.data.window_shards;
  position.ranks = is_published ? world.size() : 0;
  position.micro_batches = is_published ? train.accumulation_steps : 0;
  if (from.empty()) {
    restore_state(run, "");
  } else {
    go_on_from(from, run, reporter);
  }
}

DataPosition restore_state(Run& run, const std::string& checkpoint) {
  TrainingState& state = run.state;
  DataPosition data = state.data, saved;
  if (checkpoint.empty()) {
    state = {};
    state.seed = static_cast<uint64_t>(run.config.train.seed);
    state.last_layer = run.config.train.last_layer;
    run.session->initialize_weights();
  } else {
    state = load_checkpoint(checkpoint, run.session->checkpoint_parts());
    saved = state.data;
    if (data.content.empty()) data.content = saved.content;
    if (!evaluation_change(saved, data).empty()) {
      state.evals.clear();
    } else if (data.eval_content.empty()) {
      data.eval_content = saved.eval_content;
    }
  }
  state.data = data;
  run.session->model->set_scale_exponents(state.fp8_scale_exponents);
  run.session->model->set_last_layer(state.last_layer);
  return saved;
}

void claim_checkpoints(const Run& run) {
  on_first_rank(*run.world, [&] {
    const std::string folder = checkpoint_dir(run.run_dir);
    const bool goes_on_here = !run.origin.empty() && is_in(run.origin, folder);
    set_aside_later_checkpoints(folder, goes_on_here ? run.first_step : -1);
    record_origin(run);
  });
}

std::string learning_rate_change(const Config& config, const LambState& lamb) {
  const int64_t last = lamb.successful_steps - 1;
  if (last < 0) return "";
  const LrSchedule schedule =
      learning_rate_schedule(config.optimizer, make_run_plan(config).schedule_steps);
  const double was = lamb.learning_rate, would_be = scheduled_learning_rate(schedule, last);
  constexpr double kRounding = 1e-4;  // far above f32 rounding, far below a relevant change
  if (std::abs(was - would_be) <= kRounding * std::max(was, would_be)) return "";
  return concat(
      "the learning rate changes from ", exponent_text(was), " at the last step to ",
      exponent_text(scheduled_learning_rate(schedule, lamb.successful_steps)),
      " at the next because this configuration has another schedule than the checkpoint's; "
      "if that is not intended, set optimizer.base_learning_rate, "
      "optimizer.warmup_steps, optimizer.schedule_steps and train.max_steps as before");
}

}  // namespace bertha
