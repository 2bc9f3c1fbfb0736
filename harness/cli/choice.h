#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"

namespace bertha {

template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;  // word, what it stands for

/// An option that takes one of some words. Help lists them as its type: "--layout variable|fixed".
///
/// Errors    of parsing: "--layout: found "fxed", want variable|fixed".
template <class Value>
CLI::Option& add_choice(CLI::App& command, const std::string& name, Value& value,
                        const Choices<Value>& choices, const std::string& doc) {
  std::string words;
  for (const auto& choice : choices) words += (words.empty() ? "" : "|") + choice.first;
  const auto take = [name, words, choices, &value](const std::string& given) {
    for (const auto& [word, meaning] : choices) {
      if (given != word) continue;
      value = meaning;
      return;
    }
    throw CLI::ValidationError(name, concat("found \"", given, "\", want ", words));
  };
  return *command.add_option_function<std::string>(name, take, doc)->type_name(words);
}

}  // namespace bertha
