#include "harness/cli/options.h"

#include <cmath>
#include <string>

#include "kernels/base/error.h"
#include "kernels/base/parse_number.h"

namespace bertha {
namespace {

template <class Number, class Accepts>
CLI::Validator check(Accepts accepts, const std::string& want) {
  const auto complaint = [accepts, want](const std::string& text) -> std::string {
    const std::optional<Number> number = parse_number<Number>(text);
    if (number && accepts(*number)) return "";
    return concat("found \"", text, "\", want ", want);
  };
  return CLI::Validator(complaint, "");
}

}  // namespace

CLI::Validator whole_number(int64_t low, int64_t high) {
  const bool open = high == kNoLimit;
  return check<int64_t>([low, high](int64_t number) { return number >= low && number <= high; },
                        concat("a whole number, ", low, open ? " or more" : concat(" to ", high)));
}

CLI::Validator fraction() {
  return check<double>([](double number) { return number >= 0 && number <= 1; },
                       "a number from 0 to 1");
}

CLI::Validator above_zero(double most) {
  const std::string limit =
      std::isfinite(most) ? concat(", up to ", static_cast<int64_t>(most)) : "";
  return check<double>([most](double number) { return number > 0 && number <= most; },
                       "a number above 0" + limit);
}

void add_json(CLI::App& command, std::string& path) {
  add_text(command, "--json", path, "FILE",
           "File for the report as JSON; - prints it instead of the text");
}

void add_word(CLI::App& command, const std::string& name, std::string& value,
              const std::vector<std::string>& words, const std::string& doc) {
  Choices<std::string> choices;
  for (const std::string& word : words) choices.emplace_back(word, word);
  add_choice(command, name, value, choices, doc);
}

}  // namespace bertha
