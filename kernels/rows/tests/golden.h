#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/base/error.h"

namespace bertha {

/// One case of the golden file `path`: text or numbers by the name of a field.
/// Errors    Error(kInternal) that names the file and the field.
struct GoldenCase {
  std::string path;
  std::map<std::string, std::string> fields;

  bool has(const std::string& field) const { return fields.contains(field); }
  const std::string& text(const std::string& field) const {
    BERTHA_CHECK(has(field), path, ": a case has no field ", field);
    return fields.at(field);
  }
  std::vector<double> numbers(const std::string& field) const {
    std::vector<double> values;
    std::istringstream words(text(field));
    for (std::string word; words >> word;) {
      char* end = nullptr;
      values.push_back(std::strtod(word.c_str(), &end));  // also reads nan and inf
      BERTHA_CHECK(*end == '\0', path, ": ", field, " contains ", word, ", expected a number");
    }
    BERTHA_CHECK(!values.empty(), path, ": ", field, " is empty, expected numbers");
    return values;
  }
  double number(const std::string& field) const { return numbers(field).front(); }
};

/// Cases of `operation` in the golden file `name`: each has a line "case <operation>", followed by
/// one line "<field> <value> ..." for each field.
inline std::vector<GoldenCase> read_golden(const std::string& name, const std::string& operation) {
  const std::string path = std::string(BERTHA_ROWS_GOLDEN) + "/" + name;
  std::ifstream file(path);
  BERTHA_CHECK(file.good(), path, " cannot be read");
  std::vector<GoldenCase> cases;
  bool is_asked_for = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word, rest;
    std::getline(words >> word >> std::ws, rest);
    if (word == "case") is_asked_for = rest == operation;
    if (word == "case" && is_asked_for) cases.push_back({path, {}});
    if (word != "case" && is_asked_for) cases.back().fields[word] = rest;
  }
  BERTHA_CHECK(!cases.empty(), path, " has no case of ", operation);
  return cases;
}

}  // namespace bertha
