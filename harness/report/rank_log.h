#pragma once

#include <cstdint>
#include <string>

namespace bertha {

/// logs/rank_0007.log in the run folder.
std::string rank_log_path(const std::string& run_dir, int64_t rank);

/// From here on every log line of this process is also in its rank's file, debug lines included,
/// each with date and time; a rank whose lines were not on the console can be read there. Ends
/// with set_log_record({}). A line that cannot be written any more is left out.
///
/// Errors    Error(kData) when the file cannot be opened.
void start_rank_log(const std::string& run_dir, int64_t rank);

}  // namespace bertha
