#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "data/format/sample.h"
#include "kernels/base/error.h"
#include "tests/support/source_dir.h"

namespace bertha {

inline std::string golden_path(const std::string& name) {
  return std::string(kSourceDir) + "/tests/golden/prepare/" + name;
}

/// The integers of a field of a golden sample line.
inline std::vector<int64_t> integers(const std::string& field) {
  std::istringstream text(field);
  std::vector<int64_t> values;
  for (int64_t value = 0; text >> value;) values.push_back(value);
  return values;
}

/// A .samples file of make_pretraining_golden.py.
inline SampleSet read_golden_samples(const std::string& name) {
  std::ifstream file(golden_path(name));
  BERTHA_CHECK(file, golden_path(name));
  SampleSet samples;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::vector<int64_t>> fields;
    std::istringstream text(line);
    for (std::string field; std::getline(text, field, '|');) fields.push_back(integers(field));
    BERTHA_CHECK(fields.size() == 5, line);
    const std::vector<TokenId> tokens(fields[2].begin(), fields[2].end());
    const std::vector<int16_t> positions(fields[3].begin(), fields[3].end());
    const std::vector<TokenId> labels(fields[4].begin(), fields[4].end());
    std::vector<int8_t> segments(tokens.size(), 1);
    std::fill_n(segments.begin(), fields[1].at(0), int8_t{0});
    samples.append(SampleView{.id = samples.size(),
                              .token_ids = tokens,
                              .segment_ids = segments,
                              .masked_positions = positions,
                              .masked_ids = labels,
                              .next_sentence_label = static_cast<int8_t>(fields[0].at(0))});
  }
  return samples;
}

}  // namespace bertha
