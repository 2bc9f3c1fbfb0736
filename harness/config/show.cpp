#include <algorithm>

#include "harness/config/keys.h"
#include "harness/config/load.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

// `comment` returns what follows "  # " on each line; if empty, no comments are written.
template <class Comment>
std::string write_yaml(const Config& config, Comment comment) {
  std::string out;
  std::string_view section;
  for (const Key& key : config_keys()) {
    const size_t dot = key.path.find('.');
    if (key.path.substr(0, dot) != section) {
      section = key.path.substr(0, dot);
      out += concat(out.empty() ? "" : "\n", section, ":\n");
    }
    std::string line = concat("  ", key.path.substr(dot + 1), ": ", value_text(key, config));
    if (const std::string text = comment(key); !text.empty()) {
      line.resize(std::max<size_t>(line.size(), 44), ' ');
      line += "  # " + text;
    }
    out += line + "\n";
  }
  return out;
}

// A bar would end the table cell, and <word> would be a tag.
std::string cell(std::string text) {
  for (size_t at = text.find_first_of("|<"); at != std::string::npos;
       at = text.find_first_of("|<", at + 2)) {
    text.insert(at, 1, '\\');
  }
  return text;
}

}  // namespace

std::string to_yaml(const Config& config) {
  return write_yaml(config, [](const Key&) { return std::string(); });
}

std::string to_yaml_with_origins(const LoadedConfig& loaded) {
  return write_yaml(loaded.config, [&](const Key& key) {
    const std::string unit = unit_name(key.unit);
    return concat(unit, unit.empty() ? "" : "; ", loaded.origins.at(std::string(key.path)));
  });
}

std::string key_table_markdown() {
  std::string out =
      "| Key | Type | Unit | Allowed | Default | Meaning |\n"
      "|---|---|---|---|---|---|\n";
  for (const Key& key : config_keys()) {
    out += concat("| `", key.path, "` | ", type_name(key), " | ", unit_name(key.unit), " | ",
                  cell(allowed_values(key)), " | `", value_text(key, Config{}), "` | ",
                  cell(std::string(key.doc)), " |\n");
  }
  return out;
}

}  // namespace bertha
