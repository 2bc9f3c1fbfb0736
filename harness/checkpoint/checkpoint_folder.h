#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bertha {

/// The files of a checkpoint folder and how it is written: everything goes into <name>.partial,
/// which is synced, sealed with DONE, and renamed.
///
/// DONE lists every other file with size and XXH3, one per line: "hash bytes name".

/// Creates an empty <path>.partial, removing what an interrupted run left there. Returns its path.
std::string make_partial_folder(const std::string& path);

/// Creates a folder of this name or, if that exists, <path>.2, <path>.3, ... Removes nothing.
/// Returns its path. Error(kData) if it cannot be created.
std::string make_new_folder(const std::string& path);

/// Writes DONE over all files in the partial folder, syncs the folder and renames it to `path`.
/// An existing folder of this name is renamed to <path>.replaced meanwhile and removed last.
/// `known_lines`: done_line() of files that need not be hashed here.
void seal_folder(const std::string& partial, const std::string& path,
                 const std::vector<std::string>& known_lines = {});

/// The line of a file in DONE, with its end: hash, size and name ("" = the last part of its path).
std::string done_line(const std::string& file, const std::string& name = "");

/// Compares the named files (all if empty) with DONE. Error(kData) names the file and the
/// difference: missing, another size, another hash.
void verify_folder(const std::string& path, const std::vector<std::string>& names = {});

/// Whether DONE exists.
bool is_complete(const std::string& path);

/// Paths of the folders named step_<number> in a folder, lowest step first, complete or not. If
/// replacing one was interrupted between its two renames, its path is step_<number>.replaced.
std::vector<std::string> list_checkpoints(const std::string& folder);

/// Renames the checkpoints of a higher step to <name>.superseded1, 2, ..., names that nothing
/// reads, and logs that: they do not belong to a run that continues from `step` (-1 = from
/// scratch). Checkpoints set aside before are not replaced. Error(kData) if one cannot be renamed.
/// First renames a checkpoint named .replaced without a successor back, and removes other remains
/// of interrupted saves.
void set_aside_later_checkpoints(const std::string& folder, int64_t step);

/// The step in the name of a checkpoint that list_checkpoints() found.
int64_t step_of_checkpoint(const std::string& path);

/// Which complete checkpoints are kept when one is saved.
struct KeptCheckpoints {
  std::string saved;        // the newest, whatever its step
  int64_t newest = 1;       // how many are kept: `saved`, then the highest steps
  int64_t every_steps = 0;  // multiples of this step are kept too; 0 = none
  std::string best = {};    // kept too; "" = none
};

/// Removes all other complete checkpoints. Removes remains of interrupted saves as above.
void remove_old_checkpoints(const std::string& folder, const KeptCheckpoints& kept);

/// Points the symlink <folder>/best to a checkpoint in it; by rename, so that the link always
/// exists. A failure is a warning.
void point_best_to(const std::string& folder, const std::string& checkpoint);

}  // namespace bertha
