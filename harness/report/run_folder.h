#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/files/file_lock.h"

namespace bertha {

/// What determines the folder of a run. The caller reads config and environment.
struct RunPlace {
  std::string run_dir = {};   // log.run_dir; "" = <parent_dir>/<run_name>[-<job>]
  std::string run_name = {};  // log.run_name
  std::string job = {};       // the id of the batch job; "" = none
  std::string parent_dir = "runs";
};

/// A run folder that only this process writes during the lifetime of this object.
struct RunFolder {
  std::string path = {};
  FileLock lock = {};
  std::string earlier_config = {};  // resolved*.yaml of the previous start; "" = none
};

/// Facts about the program that a run folder records, in addition to the config. The caller reads
/// the environment and queries the libraries.
struct RunInfo {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  std::vector<std::string> command_line = {};
  std::string git_hash = {};  // of this program's sources
  Pairs versions = {};        // {"bertha", "1.0.0"}, {"Open MPI", "4.1.4"}, ...
  Pairs environment = {};     // the variables to record, name and value
};

/// Creates the folder of a run, or opens the one that a run continues, and locks it. Without
/// run_dir the name alone determines it, so that the same command finds its folder again; a batch
/// job has a separate folder, which it finds again after a requeue. Called only on rank 0.
///
/// Errors    Error(kData) with the path and the system's reason if the folder cannot be written;
///           Error(kEnvironment) if another process trains in it.
RunFolder open_run_folder(const RunPlace& place);

/// Renames mllog/, if it is not empty, to mllog.superseded1/, 2, ...: a run that starts from
/// scratch in this folder does not include the benchmark records of the previous run. Errors as
/// above.
void set_aside_mlperf_logs(const RunFolder& folder);

/// Creates mllog/ tb/ logs/ ckpt/ if they do not exist. Errors as above.
void make_parts(const RunFolder& folder);

/// Records the settings of a start that trains (`resolved_yaml` is the complete config with every
/// default) in
///   run.lock resolved.yaml env.json system.json metrics.jsonl mllog/result_0.txt tb/
///   logs/HOST.log ckpt/
/// A later start does not change resolved.yaml and env.json but adds resolved.resume1.yaml and
/// env.resume1.json. Returns the path of this start's resolved*.yaml. Errors as above.
std::string record_start(const RunFolder& folder, const std::string& resolved_yaml,
                         int64_t world_size, const RunInfo& info);

/// The resolved*.yaml of the newest start in a run folder; "" = none.
std::string newest_config(const std::string& run_dir);

/// Points the symlink <parent_dir>/latest to the run folder if that is below parent_dir; by rename,
/// so that the link always exists. A failure is a warning.
void point_latest_to(const std::string& run_dir, const std::string& parent_dir = "runs");

/// ckpt in the run folder.
std::string checkpoint_dir(const std::string& run_dir);

/// From here on every log line of this process, including debug lines, is also written to
/// logs/HOST.log of the run folder, with date, time and rank: it contains lines of ranks that are
/// not on the console. The ranks of a node append whole lines, so that nothing is lost with one
/// that dies. Ends with set_log_record({}). Lines that can no longer be written are dropped.
///
/// Errors    Error(kData) if the file cannot be opened.
void start_node_log(const std::string& run_dir, const std::string& host, int64_t rank);

}  // namespace bertha
