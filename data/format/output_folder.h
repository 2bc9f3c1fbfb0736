#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/files/file_lock.h"

namespace bertha {

// What the makers of data sets do with their output folder, so that nothing of a user's is written
// over or removed. Unfinished work lies in its folder `work`, which a marker file tells from a
// user's own folder of that name.

/// Makes the folder, if it does not exist. Error(kData) when it cannot be made.
void make_folder(const std::string& folder);

/// Makes the folder, if it does not exist, and locks it for this process: two that wrote the same
/// files would remove each other's.
///
/// Errors    as FileLock; Error(kData) when the folder cannot be made.
FileLock lock_output_folder(const std::string& output_dir);

/// Whether an earlier run left its work folder here.
bool has_work_folder(const std::string& output_dir);

/// Makes the output folder and the work folder, where they are missing, and gives the path of the
/// latter.
///
/// Errors    Error(kData) when one cannot be made, or something without the marker has its name.
std::string make_work_folder(const std::string& output_dir);

/// Removes the work folder, if it has the marker. What cannot be removed stays.
void remove_work_folder(const std::string& output_dir);

/// Error(kData) naming a shard or a checksum list in the output folder that is not the caller's:
/// one with another name than `shard_names`, or any at all where neither a manifest nor a work
/// folder tells of an earlier run.
void check_nothing_foreign(const std::string& output_dir,
                           const std::vector<std::string>& shard_names);

/// Everything that decides a data set, by name.
using DataFacts = std::map<std::string, std::string>;
/// Error(kData) naming the manifest and the first fact in which the data set in the folder differs.
void check_same_facts(const std::string& manifest_path, const DataFacts& found,
                      const DataFacts& wanted);

}  // namespace bertha
