#include "harness/comm/mpi_check.h"

#include "kernels/base/error.h"

namespace bertha {

std::string mpi_words(int status) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

void throw_mpi_error(const char* call, int status) {
  fail(ExitCode::kEnvironment, call, " failed: ", mpi_words(status),
       "; see whether another rank ended, and run again");
}

}  // namespace bertha
