#include "harness/cli/option_checks.h"

#include <charconv>
#include <string>

#include "kernels/base/error.h"

namespace bertha {
namespace {

template <class Number>
bool parse(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

template <class Number, class Accepts>
CLI::Validator check(Accepts accepts, const std::string& want) {
  const auto complaint = [accepts, want](const std::string& text) -> std::string {
    Number number = 0;
    if (parse(text, number) && accepts(number)) return "";
    return concat("found \"", text, "\", want ", want);
  };
  return CLI::Validator(complaint, "");
}

}  // namespace

CLI::Validator whole_number(int64_t low, int64_t high) {
  const bool open = high == std::numeric_limits<int64_t>::max();
  return check<int64_t>([low, high](int64_t number) { return number >= low && number <= high; },
                        concat("a whole number, ", low, open ? " or more" : concat(" to ", high)));
}

CLI::Validator fraction() {
  return check<double>([](double number) { return number >= 0 && number <= 1; },
                       "a number from 0 to 1");
}

CLI::Validator above_zero() {
  return check<double>([](double number) { return number > 0; }, "a number above 0");
}

}  // namespace bertha
