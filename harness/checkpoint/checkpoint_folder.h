#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bertha {

/// The files of a checkpoint folder and how it comes into being: everything is written under
/// <name>.partial, synced, sealed with DONE, and renamed.
///
/// DONE lists every other file with size and XXH3, one per line: "hash bytes name".

/// Makes an empty <path>.partial, removing what an interrupted run left there. Returns its path.
std::string make_partial_folder(const std::string& path);

/// Makes a folder of this name, or where there is something already, of <path>.2, <path>.3, ...
/// Nothing is removed. Returns its path. Error(kData) when it cannot be made.
std::string make_new_folder(const std::string& path);

/// Writes DONE over all files in the partial folder, syncs the folder and renames it to `path`.
/// A folder that has this name already is <path>.replaced meanwhile, and removed last.
/// `known_lines`: done_line() of files that need not be hashed here.
void seal_folder(const std::string& partial, const std::string& path,
                 const std::vector<std::string>& known_lines = {});

/// What DONE says of a file: its hash, size and name, "" = the last part of its path, and the end
/// of the line.
std::string done_line(const std::string& file, const std::string& name = "");

/// Compares the named files (all when empty) with DONE. Error(kData) names the file and says what
/// differs: missing, another size, another hash.
void verify_folder(const std::string& path, const std::vector<std::string>& names = {});

/// True when DONE is there.
bool is_complete(const std::string& path);

/// Paths of the folders named step_<number> in a folder, lowest step first, complete or not. Where
/// replacing one was interrupted between its two renames, its place has step_<number>.replaced.
std::vector<std::string> list_checkpoints(const std::string& folder);

/// Renames the checkpoints of a higher step to <name>.superseded1, 2, ..., where nothing looks for
/// them, and says so in a log line: they do not belong to a run that continues from `step` (-1:
/// starts from scratch). Nothing that was set aside before is replaced. Error(kData) when one
/// cannot be renamed. Before that, a checkpoint named .replaced without successor gets its name
/// back, and what else interrupted saves left is removed.
void set_aside_later_checkpoints(const std::string& folder, int64_t step);

/// The step in the name of a checkpoint that list_checkpoints() found.
int64_t step_of_checkpoint(const std::string& path);

/// Which complete checkpoints stay when one is saved.
struct KeptCheckpoints {
  std::string saved;        // the newest, whatever its step
  int64_t newest = 1;       // number that stays: `saved`, then the highest steps
  int64_t every_steps = 0;  // also steps at its multiples; 0 = none
  std::string best = {};    // and this one; "" = none
};

/// Removes all other complete checkpoints. Clears up after interrupted saves as above.
void remove_old_checkpoints(const std::string& folder, const KeptCheckpoints& kept);

/// Points the symlink <folder>/best to a checkpoint in it; by rename, so that it always points
/// somewhere. What cannot be done is a warning.
void point_best_to(const std::string& folder, const std::string& checkpoint);

}  // namespace bertha
