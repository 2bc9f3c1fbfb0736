#include "data/prepare/part_store.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "data/files/hashing.h"
#include "data/files/json_file.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"

namespace bertha {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const PartRecord& record) {
  return {{"key", record.key},
          {"documents", record.documents},
          {"sentences", record.sentences},
          {"text_tokens", record.text_tokens},
          {"samples", record.samples},
          {"tokens", record.tokens},
          {"masked", record.masked},
          {"token_length_histogram", record.token_length_histogram},
          {"bytes", record.bytes},
          {"xxh3", record.xxh3}};
}

PartRecord from_json(const nlohmann::json& json) {
  return {.key = json.at("key"),
          .documents = json.at("documents"),
          .sentences = json.at("sentences"),
          .text_tokens = json.at("text_tokens"),
          .samples = json.at("samples"),
          .tokens = json.at("tokens"),
          .masked = json.at("masked"),
          .token_length_histogram = json.at("token_length_histogram"),
          .bytes = json.at("bytes"),
          .xxh3 = json.at("xxh3")};
}

}  // namespace

std::optional<PartRecord> find_finished_part(const std::string& record_path,
                                             const std::string& part_path, const std::string& key) {
  if (!std::filesystem::exists(record_path)) return std::nullopt;
  PartRecord record;
  try {
    record = from_json(parse_json(read_text_file(record_path)));
  } catch (const Json::exception&) {
    return std::nullopt;  // a damaged record only costs making the part again
  }
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(part_path, error));
  if (error || record.key != key || bytes != record.bytes) return std::nullopt;
  if (xxh3_of_file(part_path) != record.xxh3) return std::nullopt;
  return record;
}

PartRecord write_part(const PartToWrite& part) {
  PartRecord record{.key = part.key,
                    .documents = part.documents.size(),
                    .sentences = part.documents.num_sentences(),
                    .text_tokens = part.documents.num_tokens(),
                    .samples = part.samples.size(),
                    .token_length_histogram = {},
                    .xxh3 = {}};
  record.token_length_histogram.resize(static_cast<size_t>(part.limits.max_seq_tokens + 1));
  const auto writer = make_shard_writer(part.part_path, part.layout, part.limits);
  for (int64_t place = 0; place < part.samples.size(); ++place) {
    const SampleView sample = part.samples.at(place);
    writer->append(sample);
    ++record.token_length_histogram[sample.token_ids.size()];
    record.tokens += static_cast<int64_t>(sample.token_ids.size());
    record.masked += static_cast<int64_t>(sample.masked_ids.size());
  }
  writer->finish();
  record.bytes = static_cast<int64_t>(std::filesystem::file_size(part.part_path));
  record.xxh3 = xxh3_of_file(part.part_path);
  write_new_file(part.record_path, to_json(record).dump(1) + "\n");
  return record;
}

}  // namespace bertha
