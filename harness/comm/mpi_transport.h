#pragma once

#include <memory>

#include "data/pipeline/transport.h"
#include "harness/comm/mpi_communicator.h"

namespace bertha {

/// Transport over a duplicate of `parent`. Its waits sleep between polls, so that a pipeline
/// thread leaves its core to the training thread.
///
/// Needs     less than 2 GiB per rank and call; Error(kEnvironment) above.
/// Threads   one thread at a time; any other communicator may be in use meanwhile.
std::unique_ptr<Transport> make_mpi_transport(const Communicator& parent);

}  // namespace bertha
