#include "data/files/json_file.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

using Json = nlohmann::json;

/// Refuses a name that an object has twice, of which nlohmann would keep the last one.
class UniqueNames {
 public:
  bool operator()(int, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) names_.emplace_back();
    if (event == Json::parse_event_t::object_end) names_.pop_back();
    if (event == Json::parse_event_t::key &&
        !names_.back().insert(value.get<std::string>()).second) {
      throw JsonError(concat("\"", shortened(value.get<std::string>()), "\" is given twice"));
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> names_;  // names in each open object
};

/// nlohmann builds a value of any depth; what becomes of it later is recursive.
void check_levels(std::string_view text) {
  bool in_string = false;
  int64_t levels = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (in_string) {
      if (letter == '\\') ++i;
      in_string = letter != '"';
    } else if (letter == '"') {
      in_string = true;
    } else if (letter == '[' || letter == '{') {
      if (++levels <= kMaxJsonLevels) continue;
      const std::string_view before = text.substr(0, i);
      const size_t line_start = before.rfind('\n') + 1;  // 0 without one
      throw JsonError(concat("line ", 1 + std::ranges::count(before, '\n'), ", byte ",
                             1 + i - line_start, ": nested deeper than ", kMaxJsonLevels,
                             " levels"));
    } else if (letter == ']' || letter == '}') {
      --levels;
    }
  }
}

}  // namespace

Json parse_json(std::string_view text) {
  check_levels(text);
  try {
    return Json::parse(
        text, [names = UniqueNames()](auto&&... event) mutable { return names(event...); });
  } catch (const JsonError&) {
    throw;
  } catch (const Json::exception& error) {
    const std::string what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    const size_t start = what.find("] ");
    throw JsonError(start == std::string::npos ? what : what.substr(start + 2));
  }
}

JsonField JsonField::element(size_t index) const {
  return {path_, concat(name_, '[', index, ']'), value_[index]};
}

JsonField JsonField::member(const std::string& key, const Json& value) const {
  return {path_, name_.empty() ? key : concat(name_, '.', key), value};
}

JsonField JsonField::operator[](const char* key) const {
  if (!value_.is_object()) wrong("an object");
  const auto found = value_.find(key);
  if (found == value_.end()) {
    fail(ExitCode::kData, path_, ": field ", member(key, value_).name_, " is missing");
  }
  return member(key, *found);
}

std::string JsonField::text() const {
  if (!value_.is_string()) wrong("a string");
  return value_.get<std::string>();
}

double JsonField::number() const {
  if (!value_.is_number() || !std::isfinite(value_.get<double>())) wrong("a number");
  return value_.get<double>();
}

int64_t JsonField::integer(int64_t least, int64_t most) const {
  const bool fits = value_.is_number_unsigned() ? value_.get<uint64_t>() <= INT64_MAX
                                                : value_.is_number_integer();
  if (!fits || value_.get<int64_t>() < least || value_.get<int64_t>() > most) {
    if (least == 0 && most == INT64_MAX) wrong("a count");
    wrong(concat("a whole number from ", least, " to ", most));
  }
  return value_.get<int64_t>();
}

uint64_t JsonField::word() const {
  if (!value_.is_number_unsigned()) wrong("an unsigned integer");
  return value_.get<uint64_t>();
}

std::string JsonField::hex(size_t digits) const {
  std::string found = text();
  if (found.size() != digits || found.find_first_not_of("0123456789abcdef") != std::string::npos) {
    wrong(concat(digits, " hex digits"));
  }
  return found;
}

void JsonField::wrong(const std::string& want) const {
  std::string found = value_.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (found.size() > 60) found = found.substr(0, 57) + "...";
  fail(ExitCode::kData, path_, ": field ", name_.empty() ? "(the whole file)" : shortened(name_),
       " is ", found, ", want ", want);
}

}  // namespace bertha
