#!/usr/bin/env python3.7
"""Writes unicode_11.cpp: which code points Unicode 11.0.0 leaves unassigned.

Usage: make_unicode_11.py > data/prepare/unicode_11.cpp

Runs on CPython 3.7 alone, whose unicodedata is of that version.
"""
import sys
import unicodedata

HEAD = """\
#include "data/prepare/unicode_text.h"

#include <algorithm>
#include <array>

namespace bertha {
namespace {

struct Range {
  int32_t first;
  int32_t last;
};

// Written by make_unicode_11.py. Sorted; what lies between two ranges is assigned.
constexpr std::array<Range, %d> kUnassigned{{
    // clang-format off
"""
TAIL = """\
    // clang-format on
}};

}  // namespace

bool is_in_unicode_11(int32_t c) {
  const auto* const range = std::lower_bound(
      kUnassigned.begin(), kUnassigned.end(), c,
      [](const Range& candidate, int32_t value) { return candidate.last < value; });
  return range == kUnassigned.end() || c < range->first;
}

}  // namespace bertha
"""


def unassigned_ranges():
    ranges = []
    for code in range(0x110000):
        if unicodedata.category(chr(code)) != "Cn":
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


def main():
    if unicodedata.unidata_version != "11.0.0":
        sys.exit("found Unicode %s, want 11.0.0: run CPython 3.7" % unicodedata.unidata_version)
    ranges = unassigned_ranges()
    print(HEAD % len(ranges), end="")
    line = "   "
    for first, last in ranges:
        item = " {0x%x, 0x%x}," % (first, last)
        if len(line + item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print(TAIL, end="")


if __name__ == "__main__":
    main()
