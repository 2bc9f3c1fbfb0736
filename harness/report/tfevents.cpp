#include "harness/report/tfevents.h"

#include <data/files/tensorflow.pb.h>
#include <fmt/format.h>

#include <filesystem>

#include "data/files/hashing.h"
#include "harness/report/system_facts.h"

namespace bertha {
namespace {

tf::Event event_now() {
  tf::Event event;
  event.set_wall_time(static_cast<double>(now_ms()) / 1000.0);
  return event;
}

/// The bytes of a number, little-endian like this machine.
template <class Word>
std::string bytes_of(Word word) {
  return {reinterpret_cast<const char*>(&word), sizeof(word)};
}

std::string free_event_path(const std::string& folder) {
  const std::string stem =
      fmt::format("{}/events.out.tfevents.{}.{}", folder, now_ms() / 1000, host_name());
  std::string path = stem;
  for (int64_t start = 1; std::filesystem::exists(path); ++start)
    path = fmt::format("{}.{}", stem, start);
  return path;
}

}  // namespace

TensorBoardFile::TensorBoardFile(const std::string& folder)
    : file_(free_event_path(folder), AppendFile::Content::kBytes) {
  tf::Event event = event_now();
  event.set_file_version("brain.Event:2");
  append_record(event.SerializeAsString());
}

void TensorBoardFile::append_record(const std::string& event) {
  const std::string length = bytes_of(uint64_t{event.size()});
  file_.append(length + bytes_of(masked_crc32c(crc32c(length))) + event +
               bytes_of(masked_crc32c(crc32c(event))));
}

void TensorBoardFile::session_start(int64_t first_step) {
  constexpr int32_t kStart = 1;
  tf::Event event = event_now();
  event.set_step(first_step);
  event.mutable_session_log()->set_status(kStart);
  append_record(event.SerializeAsString());
}

void TensorBoardFile::scalars(int64_t step, const Scalars& scalars) {
  tf::Event event = event_now();
  event.set_step(step);
  for (const auto& [tag, value] : scalars) {
    if (!value) continue;
    tf::Summary::Value& scalar = *event.mutable_summary()->add_value();
    scalar.set_tag(tag);
    scalar.set_simple_value(static_cast<float>(*value));
  }
  append_record(event.SerializeAsString());
}

}  // namespace bertha
