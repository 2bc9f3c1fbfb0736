#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "kernels/base/error.h"

namespace bertha {

/// "a, b, c": the items, or what `text_of` says of each, with the separator between them.
template <class Items, class TextOf = std::identity>
std::string joined(const Items& items, std::string_view separator, TextOf text_of = {}) {
  std::string text;
  bool is_first = true;
  for (const auto& item : items) {
    text += concat(is_first ? "" : separator, std::invoke(text_of, item));
    is_first = false;
  }
  return text;
}

}  // namespace bertha
