// Replaces nccl_collectives.cpp in a build without NCCL.

#include "harness/comm/nccl_collectives.h"

namespace bertha {

std::unique_ptr<Collectives> make_nccl_collectives(World& world, Device&, const NcclOptions&) {
  fail(ExitCode::kEnvironment, world.size(),
       " ranks on GPUs need NCCL, but this program was built without it; install libnccl and its "
       "headers and build again, train with one rank, or set train.backend to cpu");
}

}  // namespace bertha
