#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace bertha {

/// The whole text as a number; nothing if it is not a number or has characters after one.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return number;
}

}  // namespace bertha
