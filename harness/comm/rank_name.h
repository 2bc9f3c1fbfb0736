#pragma once

#include <string>
#include <vector>

#include "harness/comm/world.h"
#include "kernels/base/error.h"

namespace bertha {

/// The host name of this machine.
std::string own_host();
/// An identity of the machine, equal for all processes under one kernel, also in different
/// containers, whose host names may differ.
std::string machine_name();

/// "rank 1 of 4 on node7", or only the host if there is one rank.
std::string rank_name(int rank, int num_ranks, const std::string& host);
std::string rank_name(const World& world);
/// "0-3,8" for {0, 1, 2, 3, 8}, in any order.
std::string rank_list(std::vector<int> ranks);

/// The message, followed by the name of this rank if there are several.
std::string with_rank_name(const World& world, const std::string& message);

/// An Error whose message already contains the failing rank; all ranks throw it.
struct RankError : Error {
  using Error::Error;
};

/// An Error of this rank in a call in which other ranks may still wait.
struct CommunicationError : Error {
  using Error::Error;
};

}  // namespace bertha
