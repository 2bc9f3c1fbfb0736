#pragma once

#include <string>
#include <string_view>

namespace bertha {

/// "error" for one, "errors" for any other count; "batches" of "batch".
template <class Count>
std::string plural(Count count, std::string_view noun) {
  return std::string(noun) + (count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

}  // namespace bertha
