#include "harness/comm/mpi_check.h"

#include <string_view>

#include "harness/comm/rank_name.h"

namespace bertha {

std::string mpi_words(int status) {
  int is_started = 0;
  MPI_Initialized(&is_started);
  if (is_started == 0) return concat("error ", status, " before MPI has started");
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

void throw_mpi_error(const char* call, int status) {
  const std::string_view function =
      std::string_view(call).substr(0, std::string_view(call).find('('));
  throw CommunicationError(ExitCode::kEnvironment,
                           concat(function, " failed: ", mpi_words(status),
                                  "; check whether another rank ended, and run again"));
}

}  // namespace bertha
