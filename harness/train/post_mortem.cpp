#include "harness/train/post_mortem.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace bertha {
namespace {

double sum_of_squares(const Session& session, const View& values) {
  Device& device = *session.backend.device;
  Stream& stream = *session.backend.stream;
  const Buffer on_device = device.allocate(sizeof(double));
  const Buffer pinned = device.allocate_pinned(sizeof(double));
  session.backend.ops->run(
      SumOfSquares{.values = values, .result = View(on_device.data(), DType::kF64, {1})});
  device.copy(stream, pinned.data(), on_device.data(), sizeof(double));
  stream.wait_on_host();
  return *static_cast<const double*>(pinned.data());
}

View flat_part(const View& flat, const ParamInfo& param) {
  return flat.rows(param.offset, param.elements);
}

/// JSON has no infinities: finite numbers stay numbers, the rest become strings.
nlohmann::json as_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : "inf";
}

}  // namespace

std::string write_post_mortem(const TrainingRun& run, const LambState& lamb) {
  const Session& session = *run.session;
  nlohmann::json report = {{"step", run.state.step},
                           {"successful_steps", lamb.successful_steps},
                           {"skipped_steps", lamb.skipped_steps},
                           {"skips_in_a_row", lamb.skips_in_a_row},
                           {"most_skips_in_a_row", lamb.most_skips_in_a_row},
                           {"loss_scale", lamb.loss_scale},
                           {"learning_rate", lamb.learning_rate},
                           {"sample_ids", nlohmann::json::array()},
                           {"not_finite", nlohmann::json::array()},
                           {"tensors", nlohmann::json::object()}};
  if (run.last_batch) {
    for (const HostBatch& micro : run.last_batch->micro_batches) {
      report["sample_ids"].push_back(micro.sample_ids);
    }
  }
  for (const ParamInfo& param : session.table.params) {
    const double weight = sum_of_squares(session, flat_part(session.optimizer->weights(), param));
    const double gradient =
        sum_of_squares(session, flat_part(session.optimizer->gradients(), param));
    report["tensors"][param.name] = {{"weight_sum_of_squares", as_json(weight)},
                                     {"gradient_sum_of_squares", as_json(gradient)}};
    if (!std::isfinite(weight)) report["not_finite"].push_back("weight " + param.name);
    if (!std::isfinite(gradient)) report["not_finite"].push_back("gradient " + param.name);
  }

  char name[64];
  std::snprintf(name, sizeof(name), "/post_mortem.rank_%04d.json", run.world->rank());
  const std::string path = run.run_dir + name;
  std::ofstream file(path);
  file << report.dump(2) << "\n";
  if (!file.flush()) {
    fail(ExitCode::kData, path, ": cannot be written; check space and permissions.");
  }
  return path;
}

}  // namespace bertha
