#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace bertha {

/// The number that the whole text is; nothing where it is none or has more behind it.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return number;
}

}  // namespace bertha
