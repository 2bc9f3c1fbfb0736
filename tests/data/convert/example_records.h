#pragma once

#include <data/files/tensorflow.pb.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "data/convert/tfrecord_file.h"
#include "data/format/sample.h"
#include "tests/data/example_data.h"

namespace bertha {

/// The features of one tf.train.Example, to be made wrong.
struct ExampleFeatures {
  std::map<std::string, std::vector<int64_t>> integers;
  std::vector<float> weights;  // masked_lm_weights
};

inline ExampleFeatures features_of(const SampleView& sample, const SampleLimits& limits) {
  const auto padded = [](const auto& values, int64_t width) {
    std::vector<int64_t> wide(values.begin(), values.end());
    wide.resize(static_cast<size_t>(width));
    return wide;
  };
  const std::vector<int64_t> mask(sample.token_ids.size(), 1);
  ExampleFeatures features;
  features.integers["input_ids"] = padded(sample.token_ids, limits.max_seq_tokens);
  features.integers["input_mask"] = padded(mask, limits.max_seq_tokens);
  features.integers["segment_ids"] = padded(sample.segment_ids, limits.max_seq_tokens);
  features.integers["masked_lm_positions"] =
      padded(sample.masked_positions, limits.max_masked_per_seq);
  features.integers["masked_lm_ids"] = padded(sample.masked_ids, limits.max_masked_per_seq);
  features.integers["next_sentence_labels"] = {sample.next_sentence_label};
  features.weights.assign(sample.masked_ids.size(), 1.0f);
  features.weights.resize(static_cast<size_t>(limits.max_masked_per_seq));
  return features;
}

inline std::string example_of(const ExampleFeatures& features) {
  tf::Example example;
  const auto add = [&](const std::string& name) {
    tf::FeatureEntry* entry = example.mutable_features()->add_feature();
    entry->set_key(name);
    return entry->mutable_value();
  };
  for (const auto& [name, values] : features.integers) {
    add(name)->mutable_int64_list()->mutable_value()->Assign(values.begin(), values.end());
  }
  const std::vector<float>& weights = features.weights;
  add("masked_lm_weights")
      ->mutable_float_list()
      ->mutable_value()
      ->Assign(weights.begin(), weights.end());
  add("unknown");
  return example.SerializeAsString();
}

/// A record around these bytes.
inline std::string record(const std::string& contents) {
  const auto text = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const auto crc = [&](const std::string& bytes) {
    return text(masked_crc32c(std::as_bytes(std::span(bytes))));
  };
  const std::string length = text(static_cast<uint64_t>(contents.size()));
  return length + crc(length) + contents + crc(contents);
}

inline std::string records_of(const SampleSet& samples, const SampleLimits& limits = {}) {
  std::string bytes;
  for (int64_t i = 0; i < samples.size(); ++i) {
    bytes += record(example_of(features_of(samples[i], limits)));
  }
  return bytes;
}

inline void write_records(const std::string& path, const SampleSet& samples,
                          const SampleLimits& limits = {}) {
  write_bytes(path, records_of(samples, limits));
}

}  // namespace bertha
