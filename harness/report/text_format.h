#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/figures.h"

namespace bertha {

// Numbers in readable form; the exact values are in metrics.jsonl.

/// Three digits and a scale: 512 -> "512", 46080 -> "46.1k", 3200000 -> "3.20M", 0.25 -> "0.25".
std::string scaled_text(double value);

/// 336232258 -> "336,232,258".
std::string grouped_text(int64_t value);

/// "1 shard", "4,320 shards".
std::string counted_text(int64_t count, const std::string& noun);
/// counted_text() of a noun, for Figure.
inline auto counted(const std::string& noun) {
  return [noun](int64_t count) { return counted_text(count, noun); };
}

/// "4.2e-4": a learning rate in few columns.
std::string exponent_text(double value);

/// "45s", "3m31s", "2h05m", "3d04h"; "?" if negative or not finite.
std::string duration_text(double seconds);

/// Milliseconds in few columns: "0.3", "18", "613".
std::string ms_text(double ms);

/// "1.5 KiB", "80.0 GiB"; whole bytes below a KiB.
std::string bytes_text(int64_t bytes);

/// Breaks words into lines of at most the given number of columns. The first line continues one in
/// which `used` columns are occupied; the others begin after `margin` blanks. A word that is longer
/// than a line, such as a path, is not broken.
std::string wrapped_words(const std::string& text, int64_t columns, int64_t used, int64_t margin);

/// Breaks longer lines. Continuation lines are indented to the second column of the line, which
/// begins after two blanks or more in its first half, or else by two more blanks.
std::string wrapped_text(const std::string& text, int64_t columns);

/// Rows of cells; the first row contains the names of the columns.
using TextTable = std::vector<std::vector<std::string>>;
enum class CellAlignment { kLeft, kRight };
/// One line per row, with aligned columns two blanks apart: the first column is left-aligned, the
/// others as given.
std::string aligned_text(const TextTable& table, CellAlignment alignment = CellAlignment::kLeft);

/// A date and local time: "2026-11-21T19:30:00+0000".
std::string local_time_text(int64_t time_ms);

}  // namespace bertha
