#pragma once

#include <string>
#include <vector>

#include "harness/checkpoint/checkpoint.h"

namespace bertha {

/// optimizer-%05d-of-%05d.safetensors: a shard of the flat buffer as three tensors "master",
/// "m", "v" [N], with table_elements and ranges in the metadata: "0-384 1152-1536" are the elements
/// of the flat buffer that the tensors contain one after another, ends excluded. Ranges, not shards
/// and buckets, identify the content, so that any number of shards with buckets of any size can be
/// loaded from them. Files with first_element instead contain one range that begins there.
///
/// Errors    Error(kNumeric) naming the parameter that is not finite; Error(kData) (full disk).
/// Returns   the file's path.
std::string write_optimizer_file(const std::string& folder, const CheckpointParts& parts);

/// Names of the optimizer files in the folder, in the order of their shards.
std::vector<std::string> optimizer_file_names(const std::string& folder);

/// Error(kData) naming the file if numbers of "master", "m" or "v" are not finite, or means of
/// squares ("v") are negative.
void check_moments(const std::string& path, const std::string& tensor,
                   const std::vector<float>& values);

/// Loads master, m and v of this rank from the files that contain its ranges. Stops opening files
/// once all are read: after its own file if as many shards were saved with buckets of the same
/// size.
///
/// Needs     files that have been compared with DONE; hashes are not checked here.
/// Errors    Error(kData): files that are missing, not Bertha's or of a parameter table of another
///           size; or as check_moments().
void read_optimizer_files(const std::string& folder, const CheckpointParts& parts);

}  // namespace bertha
