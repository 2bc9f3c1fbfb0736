#pragma once

#include <string>
#include <vector>

#include "data/format/hdf5_output.h"
#include "data/format/sample.h"
#include "data/format/shard_layout.h"
#include "tests/data/example_data.h"

namespace bertha {

/// A dataset as a table of numbers, to be made wrong before it is written.
struct RawDataset {
  std::string name;
  Hdf5Element element = Hdf5Element::kI16;
  Hdf5Rows rows = Hdf5Rows::kPlain;
  int64_t columns = 0;
  std::vector<std::vector<int>> values;  // [rows][columns, or as many as the row has]
};

inline std::vector<std::vector<int>> field_of(const SampleSet& samples, const std::string& name) {
  std::vector<std::vector<int>> values;
  for (int64_t i = 0; i < samples.size(); ++i) {
    const SampleView sample = samples[i];
    const auto add = [&](const auto& row) { values.emplace_back(row.begin(), row.end()); };
    if (name == dataset_names::kInputIds) add(sample.token_ids);
    if (name == dataset_names::kInputMask) values.emplace_back(sample.token_ids.size(), 1);
    if (name == dataset_names::kSegmentIds) add(sample.segment_ids);
    if (name == dataset_names::kMaskedPositions) add(sample.masked_positions);
    if (name == dataset_names::kMaskedIds) add(sample.masked_ids);
    if (name == dataset_names::kNextSentenceLabels) values.push_back({sample.next_sentence_label});
    const auto count = [&](size_t size) { values.push_back({static_cast<int>(size)}); };
    if (name == dataset_names::kPackedTokens) count(sample.token_ids.size());
    if (name == dataset_names::kPackedMasked) count(sample.masked_ids.size());
  }
  return values;
}

/// The datasets of one layout; rows of the fixed-length one are 512 tokens and 76 masked wide,
/// packs hold one sample each.
inline std::vector<RawDataset> raw_shard(const SampleSet& samples, ShardLayout layout) {
  std::vector<RawDataset> datasets;
  const auto add = [&](const DatasetFormat& format) {
    RawDataset dataset{.name = format.name,
                       .element = format.element,
                       .rows = format.rows,
                       .columns = format.width == RowWidth::kTokens   ? 512
                                  : format.width == RowWidth::kMasked ? 76
                                                                      : 0,
                       .values = field_of(samples, format.name)};
    for (auto& row : dataset.values) {
      if (dataset.columns > 0) row.resize(static_cast<size_t>(dataset.columns));
    }
    datasets.push_back(std::move(dataset));
  };
  switch (layout) {
    case ShardLayout::kFixedLength:
      for (const auto& format : kFixedLengthDatasets) add(format);
      break;
    case ShardLayout::kVariableLength:
      for (const auto& format : kVariableLengthDatasets) add(format);
      break;
    case ShardLayout::kPacked:
      for (const auto& format : kPackedDatasets) add(format);
      break;
  }
  return datasets;
}

inline RawDataset& dataset_of(std::vector<RawDataset>& shard, const std::string& name) {
  for (RawDataset& dataset : shard) {
    if (dataset.name == name) return dataset;
  }
  fail(ExitCode::kInternal, "no dataset ", name);
}

template <class T>
void write_raw_values(Hdf5Output& file, const RawDataset& dataset) {
  std::vector<T> values;
  std::vector<int64_t> offsets{0};
  for (const auto& row : dataset.values) {
    for (const int value : row) values.push_back(static_cast<T>(value));
    offsets.push_back(std::ssize(values));
  }
  if (dataset.rows == Hdf5Rows::kPlain) {
    file.append(dataset.name, std::ssize(dataset.values), values);
  } else {
    file.append_lists(dataset.name, values, offsets);
  }
}

inline void write_raw_shard(const std::string& path, const std::vector<RawDataset>& shard) {
  Hdf5Output file(path);
  for (const RawDataset& dataset : shard) {
    file.create(dataset.name, dataset.element, dataset.rows, dataset.columns, 16);
    if (dataset.element == Hdf5Element::kI8) write_raw_values<int8_t>(file, dataset);
    if (dataset.element == Hdf5Element::kI16) write_raw_values<int16_t>(file, dataset);
    if (dataset.element == Hdf5Element::kI32) write_raw_values<int32_t>(file, dataset);
  }
  const std::string_view bytes = file.close();
  write_bytes(path, std::string(bytes));
}

}  // namespace bertha
