#pragma once

#include <span>
#include <string>
#include <string_view>

namespace bertha {

/// The word of `candidates` that a mistyped `word` most likely means; empty if none is near.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace bertha
