#pragma once

namespace bertha {

/// The folder of the sources that the tests were built from. Known to one object file alone, so
/// that a compiler cache serves all checkouts.
extern const char* const kSourceDir;

}  // namespace bertha
