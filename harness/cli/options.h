#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/joined.h"

namespace bertha {

// Kinds of options, as help shows them. What a number has to be is not part of the help; the
// complaint about another value is `found "2", want a number from 0 to 1`.

inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

/// A whole number of [low, high].
CLI::Validator whole_number(int64_t low, int64_t high = kNoLimit);
/// A number of [0, 1].
CLI::Validator fraction();
/// A number above 0, up to `most`.
CLI::Validator above_zero(double most = std::numeric_limits<double>::infinity());

/// `doc` with the default in place of {}: "Steps to time (default 50)".
template <class Number>
std::string doc_with(std::string doc, const Number& value) {
  const size_t at = doc.find("{}");
  return at == std::string::npos ? doc : doc.replace(at, 2, concat(value));
}

/// "--steps N": a whole number of [low, high]. {} in `doc` is what `value` holds now.
template <class Whole>
CLI::Option* add_count(CLI::App& command, const std::string& names, Whole& value,
                       const std::string& doc, int64_t low = 0, int64_t high = kNoLimit) {
  return command.add_option(names, value, doc_with(doc, value))
      ->check(whole_number(low, high))
      ->type_name("N");
}

/// "--masked-fraction X". {} in `doc` as above.
inline CLI::Option* add_number(CLI::App& command, const std::string& names, double& value,
                               const std::string& doc, const CLI::Validator& check) {
  return command.add_option(names, value, doc_with(doc, value))->check(check)->type_name("X");
}

/// "--json FILE": one text or several.
template <class Text>
CLI::Option* add_text(CLI::App& command, const std::string& names, Text& value,
                      const std::string& type, const std::string& doc) {
  return command.add_option(names, value, doc)->type_name(type);
}

/// "--json FILE", see write_json_report().
void add_json(CLI::App& command, std::string& path);

template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;  // word, what it stands for

/// One of some words, which help lists: "--layout variable|fixed".
///
/// Errors    of parsing: "--layout: found "fxed", want variable|fixed".
template <class Value>
void add_choice(CLI::App& command, const std::string& name, Value& value,
                const Choices<Value>& choices, const std::string& doc) {
  const std::string words = joined(choices, "|", &std::pair<std::string, Value>::first);
  const auto take = [name, words, choices, &value](const std::string& given) {
    for (const auto& [word, meaning] : choices) {
      if (given != word) continue;
      value = meaning;
      return;
    }
    throw CLI::ValidationError(name, concat("found \"", given, "\", want ", words));
  };
  command.add_option_function<std::string>(name, take, doc)->type_name(words);
}

/// The same where the word itself is the value.
void add_word(CLI::App& command, const std::string& name, std::string& value,
              const std::vector<std::string>& words, const std::string& doc);

}  // namespace bertha
