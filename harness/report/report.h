#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "kernels/base/error.h"

namespace bertha {

using ReportJson = nlohmann::ordered_json;

/// A value of a report: its name in the JSON, and what the text shows of it. The name may be a path
/// such as "phase_ms/forward" or "operations/0/name"; "" = only in the text.
template <class Shown>
struct Figure {
  std::string name;
  ReportJson value;
  Shown shown;
};

/// A figure that the text formats by the specification of its place, such as {:.3f}.
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
/// A format string for parts of a line.
template <class... Parts>
using LinePattern = fmt::format_string<const typename ShownBy<Parts>::Type&...>;

/// What a command reports: lines for people and an object for programs, from one list of figures.
///
///     report.row("energy", "{:.1f} J per step", figure("joules_per_step", joules));
///
/// A part of a line that is not a Figure is only in the text.
class Report {
 public:
  /// columns: before the values of rows, which includes `indent` blanks and the name.
  explicit Report(size_t columns = 0, size_t indent = 2) : columns_(columns), indent_(indent) {}

  /// "  name       value", with the parts in their places in the pattern. A blank follows a name
  /// that is too long.
  template <class... Parts>
  void row(std::string_view name, LinePattern<Parts...> pattern, const Parts&... parts) {
    text_ += fmt::format("{:{}}{:<{}}", "", indent_, fmt::format("{} ", name), columns_ - indent_);
    line(pattern, parts...);
  }
  /// A whole line.
  template <class... Parts>
  void line(LinePattern<Parts...> pattern, const Parts&... parts) {
    text_ += fmt::format(pattern, ShownBy<Parts>::of(parts)...) + '\n';
    (put(parts), ...);
  }
  /// Whole lines, such as those of a table.
  void text(const std::string& lines) { text_ += lines; }
  /// Adds a value to the JSON alone. Names are as in Figure; "ranks/-" appends to an array.
  void put(const std::string& name, const ReportJson& value) {
    json_[ReportJson::json_pointer("/" + name)] = value;
  }

  const std::string& text() const { return text_; }
  const ReportJson& json() const { return json_; }

 private:
  template <class Shown>
  void put(const Figure<Shown>& figure) {
    if (!figure.name.empty()) put(figure.name, figure.value);
  }
  void put(const auto& /*text*/) {}

  size_t columns_;
  size_t indent_;
  std::string text_;
  ReportJson json_ = ReportJson::object();
};

/// Prints text on standard output, with lines broken to fit if that is a terminal.
void print_text(const std::string& text);

/// Prints the text of a report, and writes its JSON to the file that --json names: "" = none; "-" =
/// standard output, instead of the text. A number that is not finite becomes null, a byte that is
/// not UTF-8 U+FFFD.
///
/// Errors    Error(kData) when the file cannot be written.
void write_report(const Report& report, const std::string& json_path);

/// The same with "command", such as "data stats", and "exit_code" before the figures.
void write_report(const Report& report, const std::string& json_path, const std::string& command,
                  ExitCode exit_code);

/// The same for a report that is printed in both forms.
void write_report(const std::string& text, const std::string& json, const std::string& json_path);

}  // namespace bertha
