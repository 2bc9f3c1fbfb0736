#pragma once

#include <cstdint>

namespace bertha {

/// Whether Unicode 11.0.0 assigns a character to this code point; surrogates and private use count.
bool is_in_unicode_11(int32_t c);

}  // namespace bertha
