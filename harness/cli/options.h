#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "harness/config/choices.h"

// Forward declarations, because including CLI11 adds seconds to the compilation of each file.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace bertha {

/// Handle of an added option, for further settings.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required() const;
  /// `name` has its dashes and was added before; a command line with both options is refused.
  Option excludes(const std::string& other) const;
  Option needs(const std::string& other) const;
  Option separated_by_commas() const;
  Option type(const std::string& shown) const;

 private:
  CLI::Option* option_;
};

/// Whether the command line has the option.
bool is_given(const CLI::App& command, const std::string& name);

/// "--tensors", or "--resume,!--no-resume".
Option add_flag(CLI::App& command, const std::string& names, bool& value, const std::string& doc);
Option add_flag(CLI::App& command, const std::string& names,
                const std::function<void()>& when_given, const std::string& doc);

/// "--json FILE": one text or several.
Option add_text(CLI::App& command, const std::string& names, std::string& value,
                const std::string& type, const std::string& doc);
Option add_text(CLI::App& command, const std::string& names, std::vector<std::string>& value,
                const std::string& type, const std::string& doc);

// Numbers. Help does not show the allowed range; the error for another value is
// `found "2", want a number from 0 to 1`. {} in `doc` stands for the present `value`.

/// The default upper limit.
template <std::integral Number>
inline constexpr int64_t kMost = std::numeric_limits<
    std::conditional_t<sizeof(Number) < sizeof(int64_t), Number, int64_t>>::max();

/// `doc` with the default in place of {}: "Steps to time (default 50)".
std::string doc_with(std::string doc, const std::string& value);

/// "--steps N": a whole number in [low, high], passed to `take`.
Option add_count(CLI::App& command, const std::string& names,
                 const std::function<void(int64_t)>& take, const std::string& doc, int64_t low,
                 int64_t high);
template <std::integral Number>
Option add_count(CLI::App& command, const std::string& names, Number& value, const std::string& doc,
                 int64_t low = 0, int64_t high = kMost<Number>) {
  return add_count(
      command, names, [&value](int64_t number) { value = static_cast<Number>(number); },
      doc_with(doc, std::to_string(value)), low, high);
}

/// "--masked-fraction X": a number from 0 (or above 0) up to `most`.
struct Numbers {
  bool with_zero = false;
  double most = std::numeric_limits<double>::infinity();
};
inline constexpr Numbers kAboveZero{};
inline constexpr Numbers kFraction{.with_zero = true, .most = 1};
Option add_number(CLI::App& command, const std::string& names, double& value,
                  const std::string& doc, Numbers range);

/// "--json FILE", see write_report().
void add_json(CLI::App& command, std::string& path);

/// One of the given words, which help lists: "--layout variable|fixed". `take` gets its index.
///
/// Errors    of parsing: "--layout: found "fxed", want variable|fixed".
void add_choice(CLI::App& command, const std::string& name, const std::vector<std::string>& words,
                const std::function<void(size_t)>& take, const std::string& doc);
/// The same with some values of a configuration enumeration, by their words.
template <Choice Enum, class Value>
void add_choice(CLI::App& command, const std::string& name, Value& value,
                const std::vector<Enum>& choices, const std::string& doc) {
  const auto take = [&value, choices](size_t place) { value = choices[place]; };
  std::vector<std::string> words;
  for (const Enum choice : choices) words.emplace_back(word_of(choice));
  add_choice(command, name, words, take, doc);
}

/// The same with all values of the enumeration.
template <Choice Enum, class Value>
void add_choice(CLI::App& command, const std::string& name, Value& value, const std::string& doc) {
  std::vector<Enum> all;
  while (all.size() < kChoiceWords<Enum>.size()) all.push_back(static_cast<Enum>(all.size()));
  add_choice(command, name, value, all, doc);
}

}  // namespace bertha
