#include "harness/report/run_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "harness/report/files.h"
#include "harness/report/host_facts.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

[[noreturn]] void fail_to_make(const std::string& path, const std::error_code& error) {
  fail(ExitCode::kData, path, ": cannot make this folder: ", error.message(),
       "; choose a place that can be written with log.run_dir");
}

/// True when this call made it. A file in the way, no permission, no space: an error.
bool make_folder(const std::string& path) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  if (!error && !fs::is_directory(path)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) fail_to_make(path, error);
  return made;
}

std::string make_dated_folder(const RunFolderRequest& request, int64_t start_ms) {
  const std::string stem = concat(request.parent_dir, "/", request.run_name, "-",
                                  local_time_text(start_ms, "%Y%m%d-%H%M%S"));
  std::string path = stem;
  for (int64_t same_second = 2; !make_folder(path); ++same_second) {
    path = concat(stem, "-", same_second);
  }
  return path;
}

Json object_of(const RunFolderRequest::Pairs& pairs) {
  Json object = Json::object();
  for (const auto& [name, value] : pairs) object[name] = value;
  return object;
}

std::string environment_json(const RunFolderRequest& request, int64_t start_ms) {
  const HostFacts host = read_host_facts();
  const Json facts = {{"started", local_time_text(start_ms, "%Y-%m-%dT%H:%M:%S%z")},
                      {"command_line", request.command_line},
                      {"git_hash", request.git_hash},
                      {"world_size", request.world_size},
                      {"host",
                       {{"name", host.host},
                        {"operating_system", host.operating_system},
                        {"kernel", host.kernel},
                        {"cpu_model", host.cpu_model},
                        {"logical_cpus", host.logical_cpus},
                        {"memory_bytes", host.memory_bytes}}},
                      {"versions", object_of(request.versions)},
                      {"environment", object_of(request.environment)}};
  return facts.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// "" for the first start in this folder, ".resume1" for the second, ...
std::string start_suffix(const std::string& run_dir) {
  std::string suffix;
  for (int64_t resume = 1; fs::exists(concat(run_dir, "/env", suffix, ".json")); ++resume) {
    suffix = concat(".resume", resume);
  }
  return suffix;
}

/// Moves the symlink by rename, so that it always points somewhere. Whatever else has the name
/// `latest` is left alone.
void point_latest_to(const fs::path& run_dir) {
  const fs::path link = run_dir.parent_path() / "latest";
  const fs::path fresh = run_dir.parent_path() / concat(".latest-", run_dir.filename().string());
  std::error_code error;
  if (fs::exists(fs::symlink_status(link, error)) && !fs::is_symlink(link)) {
    log_line(LogLevel::kWarning, concat(link.string(), " is no symlink; left as it is"));
    return;
  }
  fs::create_directory_symlink(run_dir.filename(), fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (error) {
    log_line(LogLevel::kWarning, concat(link.string(), " not updated: ", error.message()));
  }
}

}  // namespace

std::string checkpoint_dir(const std::string& run_dir) { return run_dir + "/ckpt"; }

RunFolder make_run_folder(const RunFolderRequest& request) {
  const int64_t start_ms = request.start_ms > 0 ? request.start_ms : now_ms();
  RunFolder folder;
  if (request.run_dir.empty()) {
    folder.path = make_dated_folder(request, start_ms);
  } else {
    folder.path = request.run_dir;
    folder.origin = make_folder(folder.path) ? FolderOrigin::kMade : FolderOrigin::kExisted;
  }
  for (const char* part : {"mllog", "tb", "plots", "logs", "ckpt"}) {
    make_folder(folder.path + "/" + part);
  }
  const std::string suffix = start_suffix(folder.path);
  write_text_file(concat(folder.path, "/resolved", suffix, ".yaml"), request.resolved_yaml);
  write_text_file(concat(folder.path, "/env", suffix, ".json"),
                  environment_json(request, start_ms));
  if (request.run_dir.empty()) point_latest_to(folder.path);
  return folder;
}

}  // namespace bertha
