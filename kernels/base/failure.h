#pragma once

#include <exception>
#include <string>

#include "kernels/base/error.h"

namespace bertha {

/// Why work ended, for the user and for the exit code.
struct Failure {
  ExitCode code = ExitCode::kInternal;
  std::string what;
};

/// What an exception means. Error says so itself; the standard library's have their codes here, and
/// nowhere else:
///
///   filesystem_error   kData, with the path
///   ios_base::failure  kData
///   system_error       kEnvironment: threads that cannot be started, above all
///   bad_alloc, length_error   kMemory
///   all others         kInternal
Failure failure_of(const std::exception_ptr& exception);

}  // namespace bertha
