#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bertha {

/// What a run folder is made from. The caller reads the environment and asks the libraries.
struct RunFolderRequest {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  std::string run_dir = {};   // log.run_dir; "" = <parent_dir>/<run_name>-<date>
  std::string run_name = {};  // log.run_name
  std::string parent_dir = "runs";
  int64_t start_ms = 0;            // epoch milliseconds, for the date; 0 = now
  std::string resolved_yaml = {};  // the whole config with every default
  std::vector<std::string> command_line = {};
  std::string git_hash = {};  // of the sources of this program
  int64_t world_size = 1;
  Pairs versions = {};     // {"bertha", "0.1.0"}, {"Open MPI", "4.1.4"}, ...
  Pairs environment = {};  // the variables worth recording, name and value
};

enum class FolderOrigin { kMade, kExisted };

struct RunFolder {
  std::string path = {};
  FolderOrigin origin = FolderOrigin::kMade;
};

/// Makes the folder of a run, or completes the one that a run continues:
///   resolved.yaml env.json system.json metrics.jsonl mllog/result_0.txt tb/ plots/
///   logs/rank_0000.log ckpt/
/// In a folder that existed, resolved.yaml and env.json stay as they are and this start adds
/// resolved.resume1.yaml and env.resume1.json. <parent_dir>/latest then points to the newest folder
/// with a date. Called on rank 0 only; the other ranks are told the path.
///
/// Errors    Error(kData) with the path and the system's reason when the place cannot be written.
RunFolder make_run_folder(const RunFolderRequest& request);

/// ckpt in the run folder.
std::string checkpoint_dir(const std::string& run_dir);

}  // namespace bertha
