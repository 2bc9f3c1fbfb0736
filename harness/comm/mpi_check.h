#pragma once

#include <mpi.h>

#include <string>

namespace bertha {

/// MPI's text for a status.
std::string mpi_words(int status);

[[noreturn]] void throw_mpi_error(const char* call, int status);

}  // namespace bertha

/// Throws CommunicationError(kEnvironment) with the function and MPI's text unless the status is
/// MPI_SUCCESS.
#define BERTHA_MPI_CHECK(call)                                                                 \
  do {                                                                                         \
    const int bertha_mpi_status = (call);                                                      \
    if (bertha_mpi_status != MPI_SUCCESS) ::bertha::throw_mpi_error(#call, bertha_mpi_status); \
  } while (false)
