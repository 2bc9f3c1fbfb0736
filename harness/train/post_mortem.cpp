#include "harness/train/post_mortem.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/files/new_file.h"
#include "harness/train/step_trace.h"

namespace bertha {
namespace {

using Json = nlohmann::json;

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

TracedStep last_step(const Run& run, const LambState& lamb) {
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
  HostPieces pieces(session.backend->device(), session.backend->stream());
  std::vector<TensorFigures> figures;
  for (const ParamInfo& param : session.table.params) {
    figures.push_back(figures_of("weight " + param.name,
                                 session.optimizer->weights().rows(param.offset, param.elements),
                                 pieces));
  }
  add_figures(report, report["weights"], figures);
}

/// The step's scales, and its figures as this run computes them.
void add_step(Json& report, const Run& run, const LambState& lamb) {
  const Session& session = *run.session;
  const TracedStep step = last_step(run, lamb);
  report["fp8_scale_exponents"] = step.fp8_scale_exponents;
  add_figures(report, report["figures"],
              trace_step(step, *session.model, session.parts(), session.table,
                         session.optimizer->gradients()));
}

}  // namespace

std::string write_post_mortem(const Run& run, const LambState& lamb) {
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
  return path;
}

}  // namespace bertha
