#include "harness/report/run_folder.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "data/files/new_file.h"
#include "harness/report/files.h"
#include "harness/report/system_facts.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kAdvice = "choose a writable folder with log.run_dir";

constexpr std::array kLevelNames = {"debug", "info", "warning", "error"};  // of LogLevel

Json object_of(const RunInfo::Pairs& pairs) {
  Json object = Json::object();
  for (const auto& [name, value] : pairs) object[name] = value;
  return object;
}

std::string environment_json(int64_t world_size, const RunInfo& info) {
  const Json facts = {{"started", local_time_text(now_ms())},
                      {"command_line", info.command_line},
                      {"git_hash", info.git_hash},
                      {"world_size", world_size},
                      {"host", host_json(read_host_facts())},
                      {"versions", object_of(info.versions)},
                      {"environment", object_of(info.environment)}};
  return facts.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// env.json, env.resume1.json, ...: the file of the start with this number, from 0.
std::string start_file(const std::string& run_dir, const char* stem, int64_t start,
                       const char* extension) {
  const std::string resume = start == 0 ? "" : fmt::format(".resume{}", start);
  return fmt::format("{}/{}{}{}", run_dir, stem, resume, extension);
}

/// Number of starts that this folder records.
int64_t count_starts(const std::string& run_dir) {
  int64_t starts = 0;
  while (fs::exists(start_file(run_dir, "env", starts, ".json"))) ++starts;
  return starts;
}

/// The path of a folder relative to another that contains it; else "".
fs::path path_below(const std::string& parent, const std::string& folder) {
  std::error_code ignored;  // if so, the path is not inside
  const fs::path inside = fs::weakly_canonical(folder, ignored)
                              .lexically_relative(fs::weakly_canonical(parent, ignored));
  return inside.empty() || *inside.begin() == ".." || inside == "." ? fs::path() : inside;
}

}  // namespace

std::string checkpoint_dir(const std::string& run_dir) { return run_dir + "/ckpt"; }

RunFolder open_run_folder(const RunPlace& place) {
  RunFolder folder{.path = place.run_dir};
  if (folder.path.empty()) {
    folder.path = fmt::format("{}/{}{}{}", place.parent_dir, place.run_name,
                              place.job.empty() ? "" : "-", place.job);
  }
  make_folder(folder.path, kAdvice);
  folder.lock = FileLock({.folder = folder.path,
                          .name = "run.lock",
                          .doing = "is training in this folder",
                          .advice = "choose another folder with log.run_dir",
                          .patience_seconds = 3});
  folder.earlier_config = newest_config(folder.path);
  return folder;
}

std::string newest_config(const std::string& run_dir) {
  const int64_t starts = count_starts(run_dir);
  return starts == 0 ? "" : start_file(run_dir, "resolved", starts - 1, ".yaml");
}

void set_aside_mlperf_logs(const RunFolder& folder) {
  const std::string logs = folder.path + "/mllog";
  std::error_code error;
  if (!fs::exists(logs, error) || fs::is_empty(logs, error)) return;
  int64_t number = 1;
  const auto aside_as = [&] { return fmt::format("{}.superseded{}", logs, number); };
  while (fs::exists(aside_as(), error)) ++number;
  const std::string aside = aside_as();
  if (!error) fs::rename(logs, aside, error);
  if (error) {
    fail(ExitCode::kData, logs, ": cannot be renamed to ", aside, ": ", error.message(),
         "; check permissions, or choose another folder with log.run_dir");
  }
}

void make_parts(const RunFolder& folder) {
  for (const char* part : {"mllog", "tb", "logs", "ckpt"}) {
    const std::string path = folder.path + "/" + part;
    // A run must remove only its own files, such as old checkpoints.
    if (fs::is_symlink(path)) {
      fail(ExitCode::kData, path,
           ": is a link, but a run writes and removes files only in its own folder; remove the "
           "link, or choose another folder with log.run_dir");
    }
    make_folder(path, kAdvice);
  }
}

std::string record_start(const RunFolder& folder, const std::string& resolved_yaml,
                         int64_t world_size, const RunInfo& info) {
  const int64_t start = count_starts(folder.path);
  std::string resolved = start_file(folder.path, "resolved", start, ".yaml");
  write_new_file(resolved, resolved_yaml);
  write_new_file(start_file(folder.path, "env", start, ".json"),
                 environment_json(world_size, info));
  return resolved;
}

void point_latest_to(const std::string& run_dir, const std::string& parent_dir) {
  const fs::path inside = path_below(parent_dir, run_dir);
  if (inside.empty()) return;
  const fs::path link = fs::path(parent_dir) / "latest";
  std::error_code error;
  if (fs::exists(fs::symlink_status(link, error)) && !fs::is_symlink(link)) {
    log_line(LogLevel::kWarning, link.string() + " is not a symlink and was not changed");
    return;
  }
  replace_link(link.string(), inside.string());
}

void start_node_log(const std::string& run_dir, const std::string& host, int64_t rank) {
  const auto file = std::make_shared<AppendFile>(fmt::format("{}/logs/{}.log", run_dir, host));
  set_log_record([file, rank](LogLevel level, const std::string& text) {
    try {
      file->append_line(fmt::format("{} [rank {}] {}: {}", local_time_text(now_ms()), rank,
                                    kLevelNames[static_cast<size_t>(level)], text));
    } catch (const Error&) {
      // The line is on the console; other writes to the full disk report it.
    }
  });
}

}  // namespace bertha
