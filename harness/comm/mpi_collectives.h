#pragma once

#include <memory>

#include "harness/comm/mpi_communicator.h"
#include "kernels/base/device.h"
#include "kernels/collectives.h"

namespace bertha {

/// Collectives on host memory over a duplicate of `parent`. Each call returns when it is done.
///
/// Dtypes    sums of f64, f32, i64; gathers of every dtype.
/// Exact     element = value of rank 0 + rank 1 + ..., in that order and in the view's dtype, so
///           every rank has the same bits, in every run. With a NaN on any rank, a maximum is NaN.
/// Threads   one thread at a time; any other communicator may be in use meanwhile.
std::unique_ptr<Collectives> make_mpi_collectives(const Communicator& parent, Device& device);

}  // namespace bertha
