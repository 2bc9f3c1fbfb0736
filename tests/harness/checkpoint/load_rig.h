#pragma once

#include <string>
#include <vector>

#include "harness/checkpoint/load_weights.h"
#include "kernels/base/tests/error_of.h"
#include "tests/harness/checkpoint/checkpoint_rig.h"
#include "tests/support/source_dir.h"

namespace bertha::testing {

const std::string kGolden = std::string(kSourceDir) + "/tests/golden/";

struct Loaded {
  std::vector<float> flat;
  LoadedWeights facts;
};

inline ParamTable table_of(const ModelConfig& config) {
  return make_param_table(make_dims(config), DecayRule::kReference);
}

inline Loaded load_into(const ModelConfig& config, const WeightRequest& request) {
  const ParamTable table = table_of(config);
  Loaded loaded;
  loaded.flat.assign(static_cast<size_t>(table.elements), -1.0f);
  loaded.facts = load_weights(request, config, table, loaded.flat.data());
  return loaded;
}

inline std::string refusal(const ModelConfig& config, const WeightRequest& request) {
  return error_of([&] { load_into(config, request); });
}

}  // namespace bertha::testing
