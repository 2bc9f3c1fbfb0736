#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// What is known of a configuration's data folder without reading a shard.
struct DataFacts {
  int64_t num_samples = 0;
  double mean_seq_tokens = 0;
  double mean_squared_tokens = 0;
};
/// From manifest.json of `data.train`; nothing when there is none.
std::optional<DataFacts> read_data_facts(const Config& config);

/// A sentence for each input that a run would lack.
struct MissingInputs {
  std::vector<std::string> unset;  // keys without a path
  std::vector<std::string> wrong;  // paths that do not exist, or are something else
};

/// What a training run of this configuration would not find, one sentence each with what to do.
MissingInputs missing_inputs(const Config& config);

}  // namespace bertha
