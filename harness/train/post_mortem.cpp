#include "harness/train/post_mortem.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/files/json_file.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/pipeline/collate.h"
#include "data/pipeline/pipeline.h"
#include "harness/checkpoint/weight_file.h"
#include "harness/config/load.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {
namespace {

using Json = nlohmann::json;

constexpr const char* kWeights = "post_mortem.safetensors";

/// The samples of a batch, as lists: those that collate() makes it from.
Json samples_json(const HostBatch& batch) {
  Json samples = Json::array();
  size_t m = 0;
  for (size_t b = 0; b < static_cast<size_t>(batch.num_seqs); ++b) {
    const int32_t begin = batch.cu_seqlens[b], end = batch.cu_seqlens[b + 1];
    const auto tokens = static_cast<size_t>(end - begin);
    Json positions = Json::array(), labels = Json::array();
    for (; m < batch.masked_positions.size() && batch.masked_positions[m] < end; ++m) {
      positions.push_back(batch.masked_positions[m] - begin);
      labels.push_back(batch.masked_labels[m]);
    }
    samples.push_back(
        {{"id", batch.sample_ids[b]},
         {"token_ids", batch.word_ids.subspan(static_cast<size_t>(begin), tokens)},
         {"segment_ids", batch.segment_ids.subspan(static_cast<size_t>(begin), tokens)},
         {"masked_positions", positions},
         {"masked_ids", labels},
         {"next_sentence_label", batch.next_sentence_labels[b]}});
  }
  return samples;
}

template <class Integer>
void read_list(const JsonField& field, std::vector<Integer>& into, int64_t least, int64_t most) {
  field.for_each([&](const JsonField& element) {
    into.push_back(static_cast<Integer>(element.integer(least, most)));
  });
}

HostBatch batch_from(const JsonField& field, const Config& config) {
  SampleSet set;
  const int64_t most_token = config.model.vocab_size - 1;
  const int64_t most_tokens = config.model.max_positions;
  field.for_each([&](const JsonField& sample) {
    const size_t tokens_before = set.token_ids.size(), masked_before = set.masked_ids.size();
    read_list(sample["token_ids"], set.token_ids, 0, most_token);
    read_list(sample["segment_ids"], set.segment_ids, 0, config.model.segment_types - 1);
    const auto tokens = static_cast<int64_t>(set.token_ids.size() - tokens_before);
    if (tokens < 1 || tokens > most_tokens || set.segment_ids.size() != set.token_ids.size()) {
      sample.wrong(concat("1 to ", most_tokens, " tokens, each with a segment"));
    }
    read_list(sample["masked_positions"], set.masked_positions, 0, tokens - 1);
    read_list(sample["masked_ids"], set.masked_ids, 0, most_token);
    if (set.masked_ids.size() != set.masked_positions.size() ||
        set.masked_ids.size() - masked_before > static_cast<size_t>(tokens)) {
      sample.wrong("a token for each masked position");
    }
    set.ids.push_back(sample["id"].integer(INT64_MIN, INT64_MAX));
    set.token_offsets.push_back(std::ssize(set.token_ids));
    set.masked_offsets.push_back(std::ssize(set.masked_ids));
    set.next_sentence_labels.push_back(
        static_cast<int8_t>(sample["next_sentence_label"].integer(0, 1)));
  });
  std::vector<SampleView> samples;
  for (int64_t i = 0; i < set.size(); ++i) samples.push_back(set[i]);
  return collate(samples, PipelineOptions{}.group_bucket_tokens, plain_host_allocator());
}

Json figures_json(const std::vector<TensorFigures>& figures) {
  Json all = Json::array();
  for (const TensorFigures& f : figures) {
    all.push_back({{"name", f.name},
                   {"elements", f.elements},
                   {"not_finite", f.not_finite},
                   {"largest", f.largest},
                   {"mean", f.mean},
                   {"rms", f.rms}});
  }
  return all;
}

TracedStep last_step(const TrainingRun& run, const LambState& lamb) {
  const StepBatch& batch = *run.last_batch;
  const StepSettings settings = step_settings(run.config, *run.world, run.state.seed);
  TracedStep step{
      .dropout_seed = settings.dropout_seed,
      .first_micro_step = static_cast<uint64_t>(batch.step) * batch.micro_batches.size(),
      .loss_scale = lamb.loss_scale,
      .fp8_scale_exponents = run.session->model->scale_exponents()};
  for (const HostBatch& micro : batch.micro_batches) {
    step.micro_batches.push_back({.batch = micro, .mean = loss_mean_of(micro, batch, settings)});
  }
  return step;
}

/// Adds them as a list, and those that are not finite by name.
void add_figures(Json& report, Json& list, const std::vector<TensorFigures>& figures) {
  list = figures_json(figures);
  for (const TensorFigures& tensor : figures) {
    if (tensor.not_finite > 0) report["not_finite"].push_back(tensor.name);
  }
}

void add_weights(Json& report, const Session& session) {
  HostPieces pieces(*session.backend.device, *session.backend.stream);
  std::vector<TensorFigures> figures;
  for (const ParamInfo& param : session.table.params) {
    figures.push_back(figures_of("weight " + param.name,
                                 session.optimizer->weights().rows(param.offset, param.elements),
                                 pieces));
  }
  add_figures(report, report["weights"], figures);
}

/// What replay needs, and the figures of the step as this run computes it.
void add_step(Json& report, const TrainingRun& run, const LambState& lamb) {
  const Session& session = *run.session;
  const TracedStep step = last_step(run, lamb);
  Json micro_batches = Json::array();
  for (const TracedStep::MicroBatch& micro : step.micro_batches) {
    micro_batches.push_back({{"masked", micro.mean.masked},
                             {"seqs", micro.mean.seqs},
                             {"numerator", micro.mean.numerator},
                             {"nsp_weight", micro.mean.nsp_weight},
                             {"samples", samples_json(micro.batch)}});
  }
  report["replay"] = {{"config", to_yaml(run.config)},
                      {"rank", run.world->rank()},
                      {"num_ranks", run.world->size()},
                      {"io", name(session.io)},
                      {"device", session.backend.device->description()},
                      {"dropout_seed", step.dropout_seed},
                      {"first_micro_step", step.first_micro_step},
                      {"loss_scale", step.loss_scale},
                      {"fp8_scale_exponents", step.fp8_scale_exponents},
                      {"micro_batches", micro_batches}};
  add_figures(report, report["replay"]["figures"],
              trace_step(step, *session.model, session.parts(), session.table,
                         session.optimizer->gradients()));
}

DType io_from(const JsonField& field) {
  for (const DType io : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (field.text() == name(io)) return io;
  }
  field.wrong("f32, bf16 or f16");
}

/// What is wrong with it is wrong with the file, not with a command.
Config config_from(const JsonField& field, const std::string& path) {
  try {
    return config_from_yaml(field.text(), path + ": field replay.config");
  } catch (const Error& error) {
    fail(ExitCode::kData, error.what());
  }
}

PostMortem post_mortem_from(const JsonField& root, const std::string& path) {
  const JsonField replay = root["replay"];
  PostMortem read{.config = config_from(replay["config"], path),
                  .step = root["step"].count(),
                  .rank = static_cast<int>(replay["rank"].integer(0, INT32_MAX)),
                  .num_ranks = static_cast<int>(replay["num_ranks"].integer(1, INT32_MAX)),
                  .io = io_from(replay["io"]),
                  .device = replay["device"].text()};
  root["not_finite"].for_each([&](const JsonField& tensor) {
    if (tensor.text().starts_with("weight ")) read.weights_not_finite.push_back(tensor.text());
  });
  TracedStep& traced = read.traced;
  traced.dropout_seed = replay["dropout_seed"].word();
  traced.first_micro_step = replay["first_micro_step"].word();
  traced.loss_scale = static_cast<float>(replay["loss_scale"].number());
  read_list(replay["fp8_scale_exponents"], traced.fp8_scale_exponents, -100, 100);
  replay["micro_batches"].for_each([&](const JsonField& micro) {
    traced.micro_batches.push_back({.batch = batch_from(micro["samples"], read.config),
                                    .mean = {.masked = micro["masked"].count(),
                                             .seqs = micro["seqs"].count(),
                                             .numerator = micro["numerator"].number(),
                                             .nsp_weight = micro["nsp_weight"].number()}});
  });
  replay["figures"].for_each([&](const JsonField& f) {
    read.figures.push_back({.name = f["name"].text(),
                            .elements = f["elements"].count(),
                            .not_finite = f["not_finite"].count(),
                            .largest = f["largest"].number(),
                            .mean = f["mean"].number(),
                            .rms = f["rms"].number()});
  });
  return read;
}

/// Those of rank 0 are those of all ranks.
void write_weights(const TrainingRun& run) {
  const std::string path = run.run_dir + "/" + kWeights;
  try {
    write_weight_file(path, run.session->checkpoint_parts());
  } catch (const Error& error) {
    if (error.code != ExitCode::kNumeric) throw;
    std::filesystem::remove(path);  // the report names what is not finite
  }
}

}  // namespace

std::string write_post_mortem(const TrainingRun& run, const LambState& lamb) {
  const Session& session = *run.session;
  Json report = {{"step", run.state.step},
                 {"successful_steps", lamb.successful_steps},
                 {"skipped_steps", lamb.skipped_steps},
                 {"skips_in_a_row", lamb.skips_in_a_row},
                 {"most_skips_in_a_row", lamb.most_skips_in_a_row},
                 {"loss_scale", lamb.loss_scale},
                 {"learning_rate", lamb.learning_rate},
                 {"sample_ids", Json::array()},
                 {"not_finite", Json::array()}};
  if (run.last_batch) {
    for (const HostBatch& micro : run.last_batch->micro_batches) {
      report["sample_ids"].push_back(micro.sample_ids);
    }
  }
  add_weights(report, session);
  if (run.last_batch) add_step(report, run, lamb);
  char name[64];
  std::snprintf(name, sizeof(name), "/post_mortem.rank_%04d.json", run.world->rank());
  std::string path = run.run_dir + name;
  write_new_file(path, report.dump(2) + "\n");
  if (run.last_batch && run.world->rank() == 0) write_weights(run);
  return path;
}

PostMortem read_post_mortem(const std::string& path) {
  const std::string text = read_text_file(path);
  try {
    const Json json = parse_json(text);
    if (json.is_object() && json.contains("step") && !json.contains("replay")) {
      fail(ExitCode::kData, path,
           ": the run ended before its first batch, or another version of "
           "this program wrote it; there is no step to run again.");
    }
    PostMortem read = post_mortem_from(JsonField(path, json), path);
    const auto weights = std::filesystem::path(path).parent_path() / kWeights;
    if (std::filesystem::exists(weights)) read.weights = weights.string();
    return read;
  } catch (const JsonError& error) {
    fail(ExitCode::kData, path, ": is no JSON (", error.what(), "); give a post-mortem of a run.");
  }
}

}  // namespace bertha
