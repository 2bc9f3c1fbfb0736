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

/// The exit code and message of an exception. Error contains its own; the codes of standard
/// exceptions are defined only here:
///
///   filesystem_error   kData, with the path
///   ios_base::failure  kData
///   system_error       kEnvironment: threads that cannot be started, above all
///   bad_alloc, length_error   kMemory
///   all others         kInternal
Failure failure_of(const std::exception_ptr& exception);

}  // namespace bertha
