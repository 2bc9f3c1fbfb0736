#include "harness/train/post_mortem.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "data/files/new_file.h"
#include "harness/checkpoint/weight_file.h"
#include "harness/train/host_pieces.h"
#include "harness/train/step.h"

namespace bertha {
namespace {

using Json = nlohmann::json;

/// Adds the figures of a tensor on the device (f32, bf16 or f16), over its finite elements, to
/// report[list], and its name to report["not_finite"] if it has others. Blocks: the host.
void add_figures(Json& report, const char* list, const std::string& name, const View& values,
                 HostPieces& pieces) {
  int64_t not_finite = 0;
  double largest = 0, sum = 0, squares = 0;
  std::vector<float> widened;
  pieces.each(values, [&](const View& piece) {
    const float* const floats = as_floats(piece, widened);
    for (int64_t i = 0; i < piece.elements(); ++i) {
      const double x = floats[i];
      if (!std::isfinite(x)) {
        ++not_finite;
        continue;
      }
      largest = std::max(largest, std::abs(x));
      sum += x;
      squares += x * x;
    }
  });
  const auto finite = static_cast<double>(std::max<int64_t>(values.elements() - not_finite, 1));
  report[list].push_back({{"name", name},
                          {"elements", values.elements()},
                          {"not_finite", not_finite},
                          {"largest", largest},
                          {"mean", sum / finite},
                          {"rms", std::sqrt(squares / finite)}});
  if (not_finite > 0) report["not_finite"].push_back(name);
}

/// Runs forward and backward of the last batch once more, with the loss scale of the step, and adds
/// the figures of the results: activations of each micro-batch, then gradients, in the order of
/// their computation. Weights and optimizer are not changed.
void add_step(Json& report, const Run& run, float loss_scale, HostPieces& pieces) {
  const Session& session = *run.session;
  Device& device = session.backend->device();
  Stream& stream = session.backend->stream();
  Bert& model = *session.model;
  const LambState state{.loss_scale = loss_scale};
  const Buffer on_device = device.allocate(sizeof(LambState));
  device.copy(stream, on_device.data(), &state, sizeof(LambState));
  stream.wait_on_host();
  const View state_view(on_device.data(), DType::kU8, {on_device.bytes()});

  const StepBatch& batch = *run.last_batch;
  const StepSettings settings = step_settings(run.config, *run.world, run.state.seed);
  const size_t micro_batches = batch.micro_batches.size();
  report["fp8_scale_exponents"] = model.scale_exponents();
  model.begin_step();
  for (size_t i = 0; i < micro_batches; ++i) {
    const HostBatch& micro = batch.micro_batches[i];
    report["sample_ids"].push_back(micro.sample_ids);
    model.set_random(settings.dropout_seed, static_cast<uint64_t>(batch.step) * micro_batches + i);
    model.upload(micro);
    model.forward_train(loss_mean_of(micro, batch, settings), state_view);
    const std::string of_many = micro_batches > 1 ? concat("micro-batch ", i + 1, ": ") : "";
    for (const NamedView& saved : model.activations()) {
      add_figures(report, "figures", of_many + saved.name, saved.values, pieces);
    }
    model.backward();
  }
  const auto& params = session.table.params;
  for (auto param = params.rbegin(); param != params.rend(); ++param) {
    add_figures(report, "figures", "gradient of " + param->name,
                session.optimizer->gradients().rows(param->offset, param->elements), pieces);
  }
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
  HostPieces pieces(session.backend->device(), session.backend->stream());
  for (const ParamInfo& param : session.table.params) {
    add_figures(report, "weights", "weight " + param.name,
                session.optimizer->weights().rows(param.offset, param.elements), pieces);
  }
  if (run.last_batch) add_step(report, run, lamb.loss_scale, pieces);
  char name[64];
  std::snprintf(name, sizeof(name), "/post_mortem.rank_%04d.json", run.world->rank());
  std::string path = run.run_dir + name;
  write_new_file(path, report.dump(2) + "\n");
  return path;
}

}  // namespace bertha
