#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/files/file_lock.h"

namespace bertha {

// Output folders of commands that write data sets. They never overwrite or remove a user's files.
// Unfinished work is in the subfolder `work`, which a marker file distinguishes from a user's own
// folder of that name.

/// Creates the folder, if it does not exist. Error(kData) if it cannot be created.
void make_folder(const std::string& folder);

/// Creates the folder, if it does not exist, and locks it for this process: two processes that
/// write the same files would remove each other's.
///
/// Errors    as FileLock; Error(kData) if the folder cannot be created.
FileLock lock_output_folder(const std::string& output_dir);

/// Whether an earlier run left its work folder here.
bool has_work_folder(const std::string& output_dir);

/// Creates the output folder and the work folder, if they do not exist, and returns the path of the
/// latter.
///
/// Errors    Error(kData) if one cannot be created, or something without the marker has its name.
std::string make_work_folder(const std::string& output_dir);

/// Removes the work folder, if it has the marker. Files that cannot be removed are kept.
void remove_work_folder(const std::string& output_dir);

/// Error(kData) naming a shard or a checksum list in the output folder that is not the caller's:
/// one with a name that is not in `shard_names`, or any, if neither a manifest nor a work folder
/// shows that there was an earlier run.
void check_nothing_foreign(const std::string& output_dir,
                           const std::vector<std::string>& shard_names);

/// Everything that decides a data set, by name.
using DataFacts = std::map<std::string, std::string>;
/// Error(kData) naming the manifest and the first fact in which the data set in the folder differs.
void check_same_facts(const std::string& manifest_path, const DataFacts& found,
                      const DataFacts& wanted);

}  // namespace bertha
