#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "harness/config/keys.h"
#include "harness/config/nearest_word.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

std::string number_text(double value) {
  std::array<char, 40> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string bound_text(double value) {
  return std::abs(value) < 1e7 && std::floor(value) == value
             ? std::to_string(static_cast<int64_t>(value))
             : number_text(value);
}

// Double quotes always: a name such as "no" or "1" must stay a text when read back.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string_view last_part(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

}  // namespace

std::string nearest_key(std::string_view path) {
  std::vector<std::string> paths;
  std::vector<std::string> names;
  for (const Key& key : config_keys()) {
    paths.emplace_back(key.path);
    names.emplace_back(last_part(key.path));
  }
  // The right name in the wrong section first, then a misspelled section, path and name.
  const std::string name(last_part(path));
  const auto exact = std::ranges::find(names, name);
  if (exact != names.end()) return paths[static_cast<size_t>(exact - names.begin())];
  if (path.find('.') == std::string_view::npos) {
    std::vector<std::string> sections;
    for (const std::string& known : paths) sections.push_back(known.substr(0, known.find('.')));
    if (std::string near = nearest_word(path, sections); !near.empty()) return near;
  }
  if (std::string near = nearest_word(path, paths); !near.empty()) return near;
  const std::string near = nearest_word(name, names);
  if (near.empty()) return "";
  return paths[static_cast<size_t>(std::ranges::find(names, near) - names.begin())];
}

std::string type_name(const Key& key) {
  Config config;
  return std::visit(
      [](auto* field) -> std::string {
        using Field = std::remove_pointer_t<decltype(field)>;
        if constexpr (std::is_same_v<Field, int64_t>) return "integer";
        if constexpr (std::is_same_v<Field, double>) return "number";
        if constexpr (std::is_same_v<Field, bool>) return "true or false";
        return "text";
      },
      key.field(config));
}

std::string unit_name(Unit unit) {
  // In the order of Unit.
  constexpr std::array kNames = {"", "tokens", "sequences", "steps", "minutes"};
  return kNames[static_cast<size_t>(unit)];
}

std::string allowed_values(const Key& key) {
  if (!key.words.empty()) return joined(key.words, " | ");
  const Range& range = key.range;
  if (range.low == range.high) return "";
  const std::string low = range.low_open ? "above " + bound_text(range.low) : bound_text(range.low);
  const bool no_top = range.high >= 1e15;
  if (no_top && range.low <= -1e15) return "";
  if (no_top) return low + (range.low_open ? "" : " or more");
  if (range.high_open && !range.low_open) {
    return concat(low, " or more, below ", bound_text(range.high));
  }
  return concat(low, range.low_open ? ", up to " : " to ", bound_text(range.high));
}

std::string value_text(const Key& key, const Config& config) {
  Config copy = config;
  return std::visit(
      [](auto* field) -> std::string {
        using Field = std::remove_pointer_t<decltype(field)>;
        if constexpr (std::is_same_v<Field, int64_t>) return std::to_string(*field);
        if constexpr (std::is_same_v<Field, double>) return number_text(*field);
        if constexpr (std::is_same_v<Field, bool>) return *field ? "true" : "false";
        if constexpr (std::is_same_v<Field, std::string>) return quoted(*field);
      },
      key.field(copy));
}

}  // namespace bertha
