#include "harness/cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/base/joined.h"
#include "kernels/base/parse_number.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

template <class Number, class Accepts>
CLI::Validator check(Accepts accepts, const std::string& want) {
  const auto complaint = [accepts, want](const std::string& text) -> std::string {
    const std::optional<Number> number = parse_number<Number>(text);
    if (number && accepts(*number)) return "";
    return fmt::format("found \"{}\", want {}", shortened(text), want);
  };
  return CLI::Validator(complaint, "");
}

template <class Text>
Option add_texts(CLI::App& command, const std::string& names, Text& value, const std::string& type,
                 const std::string& doc) {
  return Option(command.add_option(names, value, doc)->type_name(type));
}

}  // namespace

Option Option::required() const { return Option(option_->required()); }
Option Option::excludes(const std::string& other) const { return Option(option_->excludes(other)); }
Option Option::needs(const std::string& other) const { return Option(option_->needs(other)); }
Option Option::separated_by_commas() const { return Option(option_->delimiter(',')); }
Option Option::type(const std::string& shown) const { return Option(option_->type_name(shown)); }

bool is_given(const CLI::App& command, const std::string& name) { return command.count(name) > 0; }

Option add_flag(CLI::App& command, const std::string& names, bool& value, const std::string& doc) {
  return Option(command.add_flag(names, value, doc));
}

Option add_flag(CLI::App& command, const std::string& names,
                const std::function<void()>& when_given, const std::string& doc) {
  return Option(command.add_flag_callback(names, when_given, doc));
}

Option add_text(CLI::App& command, const std::string& names, std::string& value,
                const std::string& type, const std::string& doc) {
  return add_texts(command, names, value, type, doc);
}

Option add_text(CLI::App& command, const std::string& names, std::vector<std::string>& value,
                const std::string& type, const std::string& doc) {
  return add_texts(command, names, value, type, doc);
}

std::string doc_with(std::string doc, const std::string& value) {
  const size_t at = doc.find("{}");
  return at == std::string::npos ? doc : doc.replace(at, 2, value);
}

Option add_count(CLI::App& command, const std::string& names,
                 const std::function<void(int64_t)>& take, const std::string& doc, int64_t low,
                 int64_t high) {
  const auto is_within = [low, high](int64_t number) { return number >= low && number <= high; };
  const bool is_open = high >= kMost<int>;
  const std::string want =
      fmt::format("a whole number, {} {}", low, is_open ? "or more" : fmt::format("to {}", high));
  return Option(command.add_option_function<int64_t>(names, take, doc)
                    ->check(check<int64_t>(is_within, want))
                    ->type_name("N"));
}

Option add_number(CLI::App& command, const std::string& names, double& value,
                  const std::string& doc, Numbers range) {
  const auto accepts = [range](double number) {
    return (number > 0 || (range.with_zero && number == 0)) && number <= range.most;
  };
  const std::string most = std::isinf(range.most) ? "" : fmt::format("{:.9g}", range.most);
  const std::string want = range.with_zero
                               ? "a number from 0 to " + most
                               : "a number above 0" + (most.empty() ? "" : ", up to " + most);
  return Option(command.add_option(names, value, doc_with(doc, fmt::format("{:g}", value)))
                    ->check(check<double>(accepts, want))
                    ->type_name("X"));
}

void add_json(CLI::App& command, std::string& path) {
  add_text(command, "--json", path, "FILE",
           "File for the report as JSON; - prints it instead of the text");
}

void add_choice(CLI::App& command, const std::string& name, const std::vector<std::string>& words,
                const std::function<void(size_t)>& take, const std::string& doc) {
  const std::string shown = joined(words, "|");
  const auto take_word = [name, words, shown, take](const std::string& given) {
    const auto found = std::find(words.begin(), words.end(), given);
    if (found == words.end()) {
      throw CLI::ValidationError(name,
                                 fmt::format("found \"{}\", want {}", shortened(given), shown));
    }
    take(static_cast<size_t>(found - words.begin()));
  };
  command.add_option_function<std::string>(name, take_word, doc)->type_name(shown);
}

}  // namespace bertha
