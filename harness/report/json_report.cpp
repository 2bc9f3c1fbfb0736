#include "harness/report/json_report.h"

#include <iostream>

#include "data/files/new_file.h"

namespace bertha {

void write_json_report(const std::string& json_path, const std::string& command, ExitCode exit_code,
                       const ReportJson& report) {
  if (json_path.empty()) return;
  ReportJson whole{{"command", command}, {"exit_code", static_cast<int>(exit_code)}};
  whole.update(report);
  const std::string text = whole.dump(2, ' ', true, ReportJson::error_handler_t::replace) + "\n";
  if (json_path == "-") {
    std::cout << text;
  } else {
    write_new_file(json_path, text);
  }
}

}  // namespace bertha
