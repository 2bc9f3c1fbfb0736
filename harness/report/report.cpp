#include "harness/report/report.h"

#include <iostream>

#include "data/files/new_file.h"
#include "harness/config/terminal.h"
#include "harness/report/text_format.h"

namespace bertha {
namespace {

std::string json_text(const ReportJson& json) {
  return json.dump(2, ' ', true, ReportJson::error_handler_t::replace) + "\n";
}

}  // namespace

void print_text(const std::string& text) {
  const std::optional<int64_t> columns = output_columns();
  std::cout << (columns ? wrapped_text(text, *columns) : text);
}

void write_report(const Report& report, const std::string& json_path) {
  write_report(report.text(), json_text(report.json()), json_path);
}

void write_report(const Report& report, const std::string& json_path, const std::string& command,
                  ExitCode exit_code) {
  ReportJson json{{"command", command}, {"exit_code", static_cast<int>(exit_code)}};
  json.update(report.json());
  write_report(report.text(), json_text(json), json_path);
}

void write_report(const std::string& text, const std::string& json, const std::string& json_path) {
  if (json_path == "-") {
    std::cout << json;
    return;
  }
  print_text(text);
  if (!json_path.empty()) write_new_file(json_path, json);
}

}  // namespace bertha
