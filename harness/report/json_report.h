#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kernels/base/error.h"

namespace bertha {

using ReportJson = nlohmann::ordered_json;

/// Where a command with --json puts its report: "" = nowhere, the text is printed; "-" = standard
/// output, in place of the text; else a file beside the text.
inline bool prints_text(const std::string& json_path) { return json_path != "-"; }

/// Writes it to the file, or prints it where the path is "-"; not for "".
///
/// Errors    Error(kData) when the file cannot be written.
void write_json_text(const std::string& json_path, const std::string& text);

/// The same of what a command reports for programs to read: one object with "command", such as
/// "data stats", "exit_code" and the fields of `report`. A number that is not finite is null, a
/// byte that is no UTF-8 becomes U+FFFD.
void write_json_report(const std::string& json_path, const std::string& command, ExitCode exit_code,
                       const ReportJson& report);

}  // namespace bertha
