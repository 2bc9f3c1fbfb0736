#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "harness/config/keys.h"
#include "harness/config/nearest_word.h"
#include "kernels/base/error.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

std::optional<double> multiplier(std::string_view suffix, Unit unit) {
  if (suffix.empty()) return 1.0;
  if (unit == Unit::kMinutes) {
    if (suffix == "s") return 1.0 / 60;
    if (suffix == "m" || suffix == "min") return 1.0;
    if (suffix == "h") return 60.0;
    return std::nullopt;
  }
  if (unit == Unit::kNone) return std::nullopt;
  if (suffix == "k" || suffix == "K") return 1e3;
  if (suffix == "M") return 1e6;
  if (suffix == "G") return 1e9;
  if (suffix == "Ki") return 1024.0;
  if (suffix == "Mi") return 1024.0 * 1024;
  return std::nullopt;
}

/// "1.5M" times what its suffix means; nothing if the text is not such a number.
std::optional<double> read_number(std::string_view text, Unit unit) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
  const auto factor = multiplier({rest, static_cast<size_t>(end - rest)}, unit);
  return factor ? std::optional(value * *factor) : std::nullopt;
}

struct Assign {
  const Key& key;
  const std::string& text;

  std::string wanted() const {
    std::string hint;
    if (key.unit == Unit::kMinutes) hint = " of minutes (90m and 2h are fine too)";
    if (key.unit != Unit::kMinutes && key.unit != Unit::kNone) {
      hint = " (64k and 1.5M are fine too)";
    }
    const std::string type = type_name(key);
    return concat("found \"", shortened(text), "\", want ", type == "integer" ? "an " : "a ", type,
                  hint);
  }
  std::string beyond(double value) const {
    const bool above = key.range.high >= 1e15 && value > key.range.high;
    return concat("found ", shortened(text), ", want ",
                  above ? "at most 1e15" : allowed_values(key));
  }

  std::string operator()(int64_t* field) const {
    const std::optional<double> number = read_number(text, key.unit);
    if (!number) return wanted();
    const double rounded = std::nearbyint(*number);
    // After two roundings, 1.005k may differ slightly from a whole number.
    if (std::abs(*number - rounded) > 4e-16 * std::abs(*number)) return wanted();
    if (!key.range.holds(*number)) return beyond(*number);
    *field = static_cast<int64_t>(rounded);  // exact: every range ends below 2^53
    return "";
  }

  std::string operator()(double* field) const {
    const std::optional<double> number = read_number(text, key.unit);
    if (!number) return wanted();
    if (!key.range.holds(*number)) return beyond(*number);
    *field = *number;
    return "";
  }

  std::string operator()(bool* field) const {
    const auto is = [this](auto... words) { return ((text == words) || ...); };
    if (is("true", "True", "yes", "on")) {
      *field = true;
    } else if (is("false", "False", "no", "off")) {
      *field = false;
    } else {
      return concat("found \"", shortened(text), "\", want true or false");
    }
    return "";
  }

  std::string operator()(std::string* field) const {
    *field = text;
    return "";
  }

  std::string operator()(const ChoiceRef& choice) const {
    const auto found = std::ranges::find(choice.words, text);
    if (found == choice.words.end()) {
      const std::vector<std::string> candidates(choice.words.begin(), choice.words.end());
      // Synonyms: by spelling alone, the suggestion for gpu would be cpu.
      static const std::map<std::string, std::string> kAliases{
          {"gpu", "cuda"}, {"float32", "fp32"}, {"float16", "fp16"}, {"bfloat16", "bf16"}};
      const auto alias = kAliases.find(text);
      const std::string near =
          nearest_word(alias == kAliases.end() ? text : alias->second, candidates);
      return concat("found \"", shortened(text), "\", want ", allowed_values(key),
                    near.empty() ? "" : "; did you mean " + near + "?");
    }
    choice.set(choice.field, static_cast<size_t>(found - choice.words.begin()));
    return "";
  }
};

}  // namespace

std::string assign(const Key& key, const std::string& text, Config& config) {
  return std::visit(Assign{.key = key, .text = text}, key.field(config));
}

}  // namespace bertha
