#pragma once

#include <string>

namespace bertha {

/// Refuses a file whose beginning is that of JSON, JSON lines, HTML, XML, or a table of values
/// separated by commas, semicolons or tabs: tokenized as text, its markup would be learned.
/// What is not surely one of them passes. A missing file passes too: reading it says so.
///
/// Errors    Error(kData) naming the file, the form found, and what to do.
void check_plain_text(const std::string& path);

}  // namespace bertha
