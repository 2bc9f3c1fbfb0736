#include "harness/report/report.h"

#include <iostream>

#include "data/files/new_file.h"
#include "harness/config/terminal.h"
#include "harness/report/text_format.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

void write(const Report& report, const std::string& json_path, const ReportJson& json) {
  if (json_path != "-") report.print();
  write_json(json_path, json.dump(2, ' ', true, ReportJson::error_handler_t::replace) + "\n");
}

}  // namespace

std::string Report::text() const { return joined(blocks_, "", &Block::text); }

void Report::print() const {
  for (const Block& block : blocks_) {
    if (block.is_broken_to_fit) {
      print_text(block.text);
    } else {
      std::cout << block.text;
    }
  }
}

void print_text(const std::string& text) {
  const std::optional<int64_t> columns = output_columns();
  std::cout << (columns ? wrapped_text(text, *columns) : text);
}

void write_json(const std::string& json_path, const std::string& json) {
  if (json_path == "-") {
    std::cout << json;
  } else if (!json_path.empty()) {
    write_new_file(json_path, json);
  }
}

void write_report(const Report& report, const std::string& json_path) {
  write(report, json_path, report.json());
}

void write_report(const Report& report, const std::string& json_path, const std::string& command,
                  ExitCode exit_code) {
  ReportJson json{{"command", command}, {"exit_code", static_cast<int>(exit_code)}};
  json.update(report.json());
  write(report, json_path, json);
}

}  // namespace bertha
