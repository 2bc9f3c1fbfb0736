#pragma once

#include <string>

#include "harness/config/keys.h"

namespace bertha {

/// Sets the field of `key` from text, as written in a file or on the command line.
///
/// Returns nothing on success, else the mistake without the name or place of the key:
/// `found "abc", want an integer (64k and 1.5M are fine too)`. The field is unchanged then.
std::string assign(const Key& key, const std::string& text, Config& config);

}  // namespace bertha
