#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/files/file_lock.h"

namespace bertha {

/// Where a run writes. The caller reads config and environment.
struct RunPlace {
  std::string run_dir = {};   // log.run_dir; "" = <parent_dir>/<run_name>[-<job>]
  std::string run_name = {};  // log.run_name
  std::string job = {};       // the id of the batch job; "" = none
  std::string parent_dir = "runs";
};

/// A run folder that this process alone writes, as long as this object lives.
struct RunFolder {
  std::string path = {};
  FileLock lock = {};
  std::string earlier_config = {};  // resolved*.yaml of the start before this one; "" = none
};

/// What the folder of a run records about the program, in addition to the config. The caller reads
/// the environment and asks the libraries.
struct RunInfo {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  std::vector<std::string> command_line = {};
  std::string git_hash = {};  // of the sources of this program
  Pairs versions = {};        // {"bertha", "1.0.0"}, {"Open MPI", "4.1.4"}, ...
  Pairs environment = {};     // the variables worth recording, name and value
};

/// Makes the folder of a run, or opens the one that a run continues, and locks it. Without run_dir
/// the name alone chooses it, so that the same command finds its folder again; a batch job has one
/// of its own, which it finds again when it is put back into the queue. Called on rank 0 only.
///
/// Errors    Error(kData) with the path and the system's reason when the place cannot be written;
///           Error(kEnvironment) when another process trains in it.
RunFolder open_run_folder(const RunPlace& place);

/// Renames mllog/, if it contains anything, to mllog.superseded1/, 2, ...: a run that starts from
/// scratch in this folder does not include the benchmark's records of the run before. Errors as
/// above.
void set_aside_mlperf_logs(const RunFolder& folder);

/// Makes mllog/ tb/ logs/ ckpt/, where they are not there. Errors as above.
void make_parts(const RunFolder& folder);

/// Records the settings of a start that trains, `resolved_yaml` being the whole config with every
/// default, in
///   run.lock resolved.yaml env.json system.json metrics.jsonl mllog/result_0.txt tb/
///   logs/HOST.log ckpt/
/// A later start leaves resolved.yaml and env.json as they are and adds resolved.resume1.yaml and
/// env.resume1.json. Returns the path of the resolved*.yaml of this start. Errors as above.
std::string record_start(const RunFolder& folder, const std::string& resolved_yaml,
                         int64_t world_size, const RunInfo& info);

/// The resolved*.yaml of the newest start in a run folder; "" = there was none.
std::string newest_config(const std::string& run_dir);

/// Points the symlink <parent_dir>/latest to the run folder, where that lies below parent_dir; by
/// rename, so that it always points somewhere. What cannot be done is a warning.
void point_latest_to(const std::string& run_dir, const std::string& parent_dir = "runs");

/// ckpt in the run folder.
std::string checkpoint_dir(const std::string& run_dir);

/// From here on every log line of this process is also in logs/HOST.log of the run folder, debug
/// lines included, each with date, time and rank; a rank whose lines were not on the console can be
/// read there. The ranks of a node append whole lines, so that nothing is lost with one that dies.
/// Ends with set_log_record({}). A line that cannot be written any more is left out.
///
/// Errors    Error(kData) when the file cannot be opened.
void start_node_log(const std::string& run_dir, const std::string& host, int64_t rank);

}  // namespace bertha
