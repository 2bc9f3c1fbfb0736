#pragma once

#include <string>

namespace bertha {

/// Refuses a file that begins as JSON, JSON lines, HTML, XML, or a table of values separated by
/// commas, semicolons or tabs: a model would learn the markup. A file that may be plain text
/// passes. So does a missing file, which its reader reports.
///
/// Errors    Error(kData) naming the file, the form found, and what to do.
void check_plain_text(const std::string& path);

}  // namespace bertha
