#pragma once

#include <string>
#include <string_view>

namespace bertha {

inline constexpr size_t kMaxQuotedBytes = 200;

/// A text of a user or a file as messages quote it: at most 200 bytes, in whole UTF-8 characters.
inline std::string shortened(std::string_view text) {
  if (text.size() <= kMaxQuotedBytes) return std::string(text);
  size_t end = kMaxQuotedBytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace bertha
