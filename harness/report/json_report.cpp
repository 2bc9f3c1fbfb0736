#include "harness/report/json_report.h"

#include <iostream>

#include "data/files/new_file.h"

namespace bertha {

void write_json_text(const std::string& json_path, const std::string& text) {
  if (json_path.empty()) return;
  if (json_path == "-") {
    std::cout << text;
  } else {
    write_new_file(json_path, text);
  }
}

void write_json_report(const std::string& json_path, const std::string& command, ExitCode exit_code,
                       const ReportJson& report) {
  if (json_path.empty()) return;
  ReportJson whole{{"command", command}, {"exit_code", static_cast<int>(exit_code)}};
  whole.update(report);
  write_json_text(json_path, whole.dump(2, ' ', true, ReportJson::error_handler_t::replace) + "\n");
}

}  // namespace bertha
