#pragma once

#include <cstdint>
#include <string>

namespace bertha {

inline constexpr int64_t kMaxTextBytes = int64_t{256} << 20;  // far above every file of ours

/// The whole file, whose bytes are the caller's to check.
///
/// Errors    Error(kData) with the path and the system's reason: a missing file, a folder, a disk
///           that fails; or when it has more than `most_bytes`, as a device has that never ends.
std::string read_text_file(const std::string& path, int64_t most_bytes = kMaxTextBytes);

/// Lines of the text; the last one may lack its '\n'.
int64_t count_lines(const std::string& text);

}  // namespace bertha
