#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>

namespace bertha {

// What an option's value has to be. They add nothing to the help, and their complaint is
// `found "2", want 0 to 1`.

/// A whole number of [low, high].
CLI::Validator whole_number(int64_t low, int64_t high = std::numeric_limits<int64_t>::max());
/// A number of [0, 1].
CLI::Validator fraction();
/// A number above 0.
CLI::Validator above_zero();

}  // namespace bertha
