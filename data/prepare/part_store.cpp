#include "data/prepare/part_store.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "data/files/hashing.h"
#include "data/files/json_file.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/format/shard_writer.h"

namespace bertha {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PartRecord, key, documents, sentences, text_tokens, samples,
                                   bytes, xxh3)

std::optional<PartRecord> find_finished_part(const std::string& record_path,
                                             const std::string& part_path, const std::string& key) {
  if (!std::filesystem::exists(record_path)) return std::nullopt;
  PartRecord record;
  try {
    record = parse_json(read_text_file(record_path));
  } catch (const nlohmann::json::exception&) {
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
                    .xxh3 = {}};
  ShardWriter writer(part.part_path, part.layout, part.limits);
  for (int64_t place = 0; place < part.samples.size(); ++place) {
    writer.append(part.samples.at(place));
  }
  writer.finish();
  record.bytes = static_cast<int64_t>(std::filesystem::file_size(part.part_path));
  record.xxh3 = xxh3_of_file(part.part_path);
  write_new_file(part.record_path, nlohmann::json(record).dump(1) + "\n");
  return record;
}

}  // namespace bertha
