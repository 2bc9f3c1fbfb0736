#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/format/shard_file.h"
#include "data/prepare/pairs_and_masks.h"

namespace bertha {

/// What is known of a finished part: the samples of one text file.
struct PartRecord {
  std::string key;  // everything that decides the part's content, as text
  int64_t documents = 0;
  int64_t sentences = 0;
  int64_t text_tokens = 0;
  int64_t samples = 0;
  int64_t bytes = 0;  // of the part's file
  std::string xxh3;
};

/// The record at `record_path`, if it has this key and the file at `part_path` is the one it tells
/// of, byte for byte; otherwise nothing.
std::optional<PartRecord> find_finished_part(const std::string& record_path,
                                             const std::string& part_path, const std::string& key);

/// Writes the samples and then the record, each appearing by rename.
struct PartToWrite {
  const std::string& record_path;
  const std::string& part_path;
  const std::string& key;
  ShardLayout layout;
  SampleLimits limits;
  const Documents& documents;
  const GeneratedSamples& samples;
};
PartRecord write_part(const PartToWrite& part);

}  // namespace bertha
