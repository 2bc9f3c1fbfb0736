#include "harness/mlperf/log_parser.h"

#include <optional>
#include <sstream>
#include <string_view>

#include "data/files/json_file.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr std::string_view kToken = ":::MLLOG ";

std::string utf8_of_latin1(std::string_view bytes) {
  std::string text;
  for (const char letter : bytes) {
    const unsigned char byte = static_cast<unsigned char>(letter);
    if (byte < 0x80) {
      text += letter;
    } else {
      text += static_cast<char>(0xc0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return text;
}

/// The official checker takes what Python's float() takes: numbers, and texts of numbers.
std::optional<double> time_of(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  std::istringstream text(value.get<std::string>());
  double time_ms = 0;
  text >> time_ms;
  return text && text.eof() ? std::optional<double>(time_ms) : std::nullopt;
}

void parse_record(std::string_view text, int64_t line, MlperfRecords& all) {
  const auto complain = [&](const std::string& what) {
    all.findings.push_back({FindingLevel::kError, line, what});
  };
  nlohmann::json object;
  std::string reason;
  try {
    object = parse_json(utf8_of_latin1(text));
  } catch (const JsonError& error) {
    reason = concat(" (", error.what(), ")");
  }
  if (!object.is_object()) {
    complain(concat("the text after \":::MLLOG \" is not one JSON object", reason,
                    "; was a record cut or mixed up?"));
    return;
  }
  for (const char* field : {"time_ms", "key", "value", "metadata"}) {
    if (!object.contains(field)) {
      complain(concat("the record has no \"", field, "\""));
      return;
    }
  }
  const std::optional<double> time_ms = time_of(object["time_ms"]);
  if (!time_ms || !object["key"].is_string()) {
    complain("time_ms must be a number and key a text");
    return;
  }
  all.records.push_back({.line = line,
                         .time_ms = *time_ms,
                         .key = object["key"].get<std::string>(),
                         .value = object["value"],
                         .metadata = object["metadata"]});
}

}  // namespace

MlperfRecords parse_mlperf_text(const std::string& text) {
  MlperfRecords all;
  std::istringstream lines(text);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t last = line.rfind(kToken);
    if (last == std::string::npos) continue;
    if (line.find(kToken) != last) {
      all.findings.push_back({FindingLevel::kWarning, number,
                              "more than one record on this line; only the last is read"});
    }
    parse_record(std::string_view(line).substr(last + kToken.size()), number, all);
  }
  return all;
}

}  // namespace bertha
