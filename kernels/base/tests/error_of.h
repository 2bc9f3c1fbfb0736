#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernels/base/error.h"

namespace bertha {

/// What the Error says that `work` ends with, which has to have this code; "no error" without one.
template <class Work>
std::string error_of(const Work& work, ExitCode code = ExitCode::kData) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code), static_cast<int>(code)) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace bertha
