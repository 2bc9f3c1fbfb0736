#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/base/error.h"

namespace bertha {

using ReportJson = nlohmann::ordered_json;

/// A value of a report: its name in the JSON, and its form in the text. The name may be a path such
/// as "phase_ms/forward" or "operations/0/name"; "" = only in the text.
template <class Shown>
struct Figure {
  std::string name;
  ReportJson value;
  Shown shown;
};

/// A figure that the text formats by its placeholder, such as {:.3f}.
template <class Value>
Figure<Value> figure(const std::string& name, const Value& value) {
  if constexpr (std::is_floating_point_v<Value>) {
    // fmt shows the sign bit of NaN.
    return {name, value, std::isnan(value) ? std::numeric_limits<Value>::quiet_NaN() : value};
  } else {
    return {name, value, value};
  }
}

/// A figure that the text shows as text_of(value), for instance by bytes_text.
template <class Value, class TextOf>
Figure<std::string> figure(const std::string& name, const Value& value, const TextOf& text_of) {
  return {name, value, text_of(value)};
}

template <class Part>
struct ShownBy {
  using Type = Part;
  static const Part& of(const Part& part) { return part; }
};
template <class Shown>
struct ShownBy<Figure<Shown>> {
  using Type = Shown;
  static const Shown& of(const Figure<Shown>& figure) { return figure.shown; }
};
/// A format string for the parts of a line.
template <class... Parts>
using LinePattern = fmt::format_string<const typename ShownBy<Parts>::Type&...>;

/// A command's report: lines for people and a JSON object for programs, from one list of figures.
///
///     report.row("energy", "{:.1f} J per step", figure("joules_per_step", joules));
///
/// A part of a line that is not a Figure appears only in the text.
class Report {
 public:
  /// columns: width before the values of rows, including `indent` blanks and the name.
  explicit Report(size_t columns = 2, size_t indent = 2) : columns_(columns), indent_(indent) {}

  /// "  name       value", with the parts in the placeholders of the pattern. A name that is too
  /// long is followed by one blank.
  template <class... Parts>
  void row(std::string_view name, LinePattern<Parts...> pattern, const Parts&... parts) {
    const std::string value = line_of<Parts...>(pattern, parts...);
    add(fmt::format("{:{}}{:<{}}{}", "", indent_, fmt::format("{} ", name), columns_ - indent_,
                    value),
        true);
  }
  /// A separate line.
  template <class... Parts>
  void line(LinePattern<Parts...> pattern, const Parts&... parts) {
    add(line_of<Parts...>(pattern, parts...), true);
  }
  /// A line of a table, which is not broken to fit the terminal.
  template <class... Parts>
  void table_line(LinePattern<Parts...> pattern, const Parts&... parts) {
    add(line_of<Parts...>(pattern, parts...), false);
  }
  /// Several such lines.
  void table(const std::string& lines) { add(lines, false); }
  /// Adds a value only to the JSON. Names are as in Figure; "ranks/-" appends to an array.
  void put(const std::string& name, const ReportJson& value) {
    json_[ReportJson::json_pointer("/" + name)] = value;
  }

  std::string text() const;
  /// Prints to standard output, with lines broken to fit if that is a terminal, except in tables.
  void print() const;
  const ReportJson& json() const { return json_; }

 private:
  template <class Shown>
  void put(const Figure<Shown>& figure) {
    if (!figure.name.empty()) put(figure.name, figure.value);
  }
  void put(const auto& /*text*/) {}

  struct Block {
    std::string text;
    bool is_broken_to_fit;
  };
  void add(const std::string& text, bool is_broken_to_fit) {
    blocks_.push_back({text, is_broken_to_fit});
  }
  template <class... Parts>
  std::string line_of(LinePattern<Parts...> pattern, const Parts&... parts) {
    (put(parts), ...);
    return fmt::format(pattern, ShownBy<Parts>::of(parts)...) + '\n';
  }

  size_t columns_;
  size_t indent_;
  std::vector<Block> blocks_;
  ReportJson json_ = ReportJson::object();
};

/// Prints to standard output, with lines broken to fit if that is a terminal.
void print_text(const std::string& text);

/// Writes to the file that --json names: "" = none; "-" = standard output, instead of the text.
///
/// Errors    Error(kData) if the file cannot be written.
void write_json(const std::string& json_path, const std::string& json);

/// Prints a report, and writes its JSON as write_json() does. A number that is not finite becomes
/// null, a byte that is not UTF-8 U+FFFD.
void write_report(const Report& report, const std::string& json_path);

/// The same, with "command", such as "data stats", and "exit_code" before the figures.
void write_report(const Report& report, const std::string& json_path, const std::string& command,
                  ExitCode exit_code);

}  // namespace bertha
