#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "kernels/base/arguments.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"

namespace bertha {

// validate() reads shapes only, never elements: any address does.
alignas(8) inline char some_memory[8];

inline View f32(std::initializer_list<int64_t> extents) {
  return View(some_memory, DType::kF32, extents);
}
inline View u8(std::initializer_list<int64_t> extents) {
  return {some_memory, DType::kU8, extents};
}

inline View i32(std::initializer_list<int64_t> extents) {
  return View(some_memory, DType::kI32, extents);
}
inline View no_data(std::initializer_list<int64_t> extents) {
  return View(nullptr, DType::kF32, extents);
}

template <class Args>
void expect_accepted(const Args& args) {
  EXPECT_NO_THROW(validate(args));
}

/// After `spoil`, validation fails with a sentence that contains every one of `words`.
template <class Args>
void expect_refused(Args args, const std::function<void(Args&)>& spoil,
                    std::initializer_list<const char*> words) {
  spoil(args);
  const std::string found = error_of([&] { validate(args); }, ExitCode::kInternal);
  for (const char* word : words) EXPECT_THAT(found, HasSubstr(word));
}

/// The same with one field changed.
template <class Args, class Field, class Value>
void expect_refused(const Args& args, Field Args::*field, const Value& wrong,
                    std::initializer_list<const char*> words) {
  expect_refused<Args>(
      args, [&](Args& a) { a.*field = wrong; }, words);
}

inline constexpr int64_t kTokens = 5;
inline constexpr int64_t kHidden = 16;

inline Dropout dropout(float probability) {
  return {.random = View(some_memory, DType::kU64, {2}), .probability = probability};
}

}  // namespace bertha
