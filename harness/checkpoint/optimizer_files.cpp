#include "harness/checkpoint/optimizer_files.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <vector>

#include "harness/checkpoint/finite.h"
#include "harness/checkpoint/safetensors.h"
#include "kernels/base/joined.h"
#include "kernels/base/parse_number.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> kTensors = {"master", "m", "v"};

std::array<View, 3> shard_views(const Optimizer& optimizer) {
  return {optimizer.master(), optimizer.m(), optimizer.v()};
}

struct ShardFile {
  std::string name;
  SafeTensorsHeader header;
  std::vector<ShardRange> ranges = {};
};

/// -1 if the text is not a count.
int64_t parse_count(std::string_view text) { return parse_number<int64_t>(text).value_or(-1); }

std::string metadata_text(const SafeTensorsHeader& header, const std::string& key) {
  const auto found = header.metadata.find(key);
  return found == header.metadata.end() ? "" : found->second;
}

int64_t metadata_number(const std::string& path, const SafeTensorsHeader& header,
                        const std::string& key) {
  const std::string text = metadata_text(header, key);
  const int64_t number = parse_count(text);
  if (number < 0) {
    fail(ExitCode::kData, path, ": has ", key, " \"", shortened(text),
         "\", want a count; it is not an optimizer file of Bertha.");
  }
  return number;
}

/// Elements of each of the three tensors.
int64_t elements_of(const std::string& path, const SafeTensorsHeader& header) {
  int64_t elements = -1;
  for (const char* name : kTensors) {
    const auto found = header.tensors.find(name);
    const int64_t here = found == header.tensors.end() ? -1 : found->second.elements();
    if (here < 0 || (elements >= 0 && here != elements)) {
      fail(ExitCode::kData, path, ": ", name, here < 0 ? " is missing" : " has another size",
           ", want tensors master, m and v of one size; it is not an optimizer file of Bertha.");
    }
    elements = here;
  }
  return elements;
}

std::string ranges_text(const std::vector<ShardRange>& ranges) {
  return joined(ranges, " ", [](const ShardRange& range) {
    return concat(range.flat_begin, "-", range.flat_begin + range.elements);
  });
}

/// The ranges of the flat buffer that `elements` elements of the tensors cover.
std::vector<ShardRange> read_ranges(const std::string& path, const SafeTensorsHeader& header,
                                    int64_t elements) {
  if (!header.metadata.contains("ranges")) {
    return {{.flat_begin = metadata_number(path, header, "first_element"),
             .shard_begin = 0,
             .elements = elements}};
  }
  const std::string text = metadata_text(header, "ranges");
  std::istringstream words(text);
  std::vector<ShardRange> ranges;
  int64_t elements_found = 0;
  for (std::string word; words >> word;) {
    const size_t dash = word.find('-');
    const int64_t begin = parse_count(std::string_view(word).substr(0, dash));
    const int64_t end = dash == std::string::npos ? -1 : parse_count(word.substr(dash + 1));
    if (begin < 0 || end < begin || end - begin > elements - elements_found) {
      elements_found = -1;
      break;
    }
    ranges.push_back({.flat_begin = begin, .shard_begin = elements_found, .elements = end - begin});
    elements_found += end - begin;
  }
  if (elements_found != elements) {
    fail(ExitCode::kData, path, ": has ranges \"", shortened(text), "\", want ", elements,
         " elements of the flat buffer; it is not an optimizer file of Bertha.");
  }
  return ranges;
}

ShardFile open_shard(const std::string& folder, const std::string& name, int64_t table_elements) {
  const std::string path = folder + "/" + name;
  ShardFile shard{.name = name, .header = read_safetensors_header(path)};
  const int64_t found = metadata_number(path, shard.header, "table_elements");
  if (found != table_elements) {
    fail(ExitCode::kData, path, ": belongs to a model of ", found, " elements, want ",
         table_elements, "; set the keys under model to its shape.");
  }
  shard.ranges = read_ranges(path, shard.header, elements_of(path, shard.header));
  return shard;
}

/// The files in the order in which this rank opens them: first the one with the position of its
/// shard among the shards, which is all that it needs if as many shards were saved.
std::vector<std::string> names_from_own(const std::string& folder, const Optimizer& optimizer) {
  std::vector<std::string> names = optimizer_file_names(folder);
  const auto own = std::ssize(names) * optimizer.shard() / optimizer.shard_count();
  std::rotate(names.begin(), names.begin() + own, names.end());
  return names;
}

/// The ranges of this rank without the padding after the table, which files may omit.
std::vector<ShardRange> live_ranges(const Optimizer& optimizer, int64_t table_elements) {
  std::vector<ShardRange> ranges;
  for (ShardRange range : optimizer.shard_ranges()) {
    range.elements = std::min(range.elements, table_elements - range.flat_begin);
    if (range.elements > 0) ranges.push_back(range);
  }
  return ranges;
}

/// Elements that two shards share.
struct Overlap {
  int64_t from_element = 0;  // in the first shard
  int64_t to_element = 0;    // in the second shard
  int64_t elements = 0;
};

std::vector<Overlap> overlaps(const std::vector<ShardRange>& from,
                              const std::vector<ShardRange>& to) {
  std::vector<Overlap> found;
  for (const ShardRange& a : from) {
    for (const ShardRange& b : to) {
      const int64_t begin = std::max(a.flat_begin, b.flat_begin);
      const int64_t end = std::min(a.flat_begin + a.elements, b.flat_begin + b.elements);
      if (begin >= end) continue;
      found.push_back({.from_element = a.shard_begin + begin - a.flat_begin,
                       .to_element = b.shard_begin + begin - b.flat_begin,
                       .elements = end - begin});
    }
  }
  return found;
}

/// Name of the parameter that an element of a shard belongs to.
std::string param_at(const CheckpointParts& parts, int64_t shard_element) {
  for (const ShardRange& range : parts.optimizer->shard_ranges()) {
    const int64_t flat = range.flat_begin + shard_element - range.shard_begin;
    if (flat < range.flat_begin || flat >= range.flat_begin + range.elements) continue;
    for (const ParamInfo& param : parts.table->params) {
      if (flat >= param.offset && flat < param.offset + param.elements) return param.name;
    }
  }
  return "the padding";
}

/// Error(kNumeric) if a number of this rank's shard is not finite.
void check_shard(const std::string& path, const std::string& tensor, const float* values,
                 const CheckpointParts& parts) {
  const int64_t elements = parts.optimizer->shard_elements();
  const int64_t bad = first_not_finite(values, elements);
  if (bad < 0) return;
  check_finite(ExitCode::kNumeric, path, concat(tensor, " (first in ", param_at(parts, bad), ")"),
               values, elements);
}

}  // namespace

std::vector<std::string> optimizer_file_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("optimizer-") && name.ends_with(".safetensors")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::string write_optimizer_file(const std::string& folder, const CheckpointParts& parts) {
  const Optimizer& optimizer = *parts.optimizer;
  char name[64];
  std::snprintf(name, sizeof(name), "optimizer-%05d-of-%05d.safetensors", optimizer.shard(),
                optimizer.shard_count());
  std::string path = folder + "/" + name;
  std::vector<SafeTensorsWriter::Entry> entries;
  for (const char* tensor : kTensors) {
    entries.push_back({.name = tensor, .shape = {optimizer.shard_elements()}});
  }
  SafeTensorsWriter writer(path, entries,
                           {{"ranges", ranges_text(optimizer.shard_ranges())},
                            {"table_elements", std::to_string(parts.table->elements)}});
  const Buffer pinned = parts.device->allocate_pinned(optimizer.master().bytes());
  for (size_t tensor = 0; tensor < kTensors.size(); ++tensor) {
    const View values = shard_views(optimizer)[tensor];
    parts.device->copy(*parts.stream, pinned.data(), values.data, values.bytes());
    parts.stream->wait_on_host();
    const auto* floats = static_cast<const float*>(pinned.data());
    check_shard(path, kTensors[tensor], floats, parts);
    writer.append(floats, optimizer.shard_elements());
  }
  writer.finish();
  return path;
}

void check_moments(const std::string& path, const std::string& tensor,
                   const std::vector<float>& values) {
  check_finite(ExitCode::kData, path, tensor, values.data(), std::ssize(values));
  if (tensor == "v" && std::ranges::any_of(values, [](float v) { return v < 0; })) {
    fail(ExitCode::kData, path,
         ": v has negative numbers, want means of squares; the checkpoint is damaged, use an "
         "earlier one.");
  }
}

void read_optimizer_files(const std::string& folder, const CheckpointParts& parts) {
  const Optimizer& optimizer = *parts.optimizer;
  const Buffer pinned = parts.device->allocate_pinned(3 * optimizer.master().bytes());
  float* staging = static_cast<float*>(pinned.data());
  std::fill_n(staging, 3 * optimizer.shard_elements(), 0.0f);  // files may omit the padding

  const std::vector<ShardRange> mine = live_ranges(optimizer, parts.table->elements);
  int64_t elements_wanted = 0;
  for (const ShardRange& range : mine) elements_wanted += range.elements;
  int64_t elements_read = 0;
  for (const std::string& name : names_from_own(folder, optimizer)) {
    if (elements_read >= elements_wanted) break;
    const ShardFile file = open_shard(folder, name, parts.table->elements);
    for (const Overlap& overlap : overlaps(file.ranges, mine)) {
      for (size_t tensor = 0; tensor < kTensors.size(); ++tensor) {
        const std::vector<float> values =
            read_safetensor(folder + "/" + file.name, file.header, kTensors[tensor],
                            overlap.from_element, overlap.elements);
        check_moments(folder + "/" + file.name, kTensors[tensor], values);
        std::copy(values.begin(), values.end(),
                  staging + static_cast<int64_t>(tensor) * optimizer.shard_elements() +
                      overlap.to_element);
      }
      elements_read += overlap.elements;
    }
  }
  if (elements_read != elements_wanted) {
    fail(ExitCode::kData, folder, ": its optimizer files contain ", elements_read,
         " elements of the ranges ", ranges_text(mine), ", want all ", elements_wanted,
         "; a file is missing, use an earlier checkpoint.");
  }
  for (size_t tensor = 0; tensor < kTensors.size(); ++tensor) {
    const View values = shard_views(optimizer)[tensor];
    parts.device->copy(*parts.stream, values.data,
                       staging + static_cast<int64_t>(tensor) * optimizer.shard_elements(),
                       values.bytes());
  }
  parts.stream->wait_on_host();
}

}  // namespace bertha
