#pragma once

#include <string>
#include <vector>

#include "harness/comm/world.h"
#include "kernels/base/error.h"

namespace bertha {

/// The host name of this machine.
std::string own_host();
/// Equal for processes under one kernel, also in different containers; host names need not be.
std::string machine_name();

/// "rank 1 of 4 on node7", or only the host when there is one rank.
std::string rank_name(int rank, int num_ranks, const std::string& host);
std::string rank_name(const World& world);
/// "0-3,8" for {0, 1, 2, 3, 8}, in any order.
std::string rank_list(std::vector<int> ranks);

/// The sentence, followed by the name of this rank if there are several.
std::string signed_sentence(const World& world, const std::string& sentence);

/// An Error whose message already contains the failing rank: the others throw it too.
struct RankError : Error {
  using Error::Error;
};

/// An Error of this rank in a call that other ranks may still wait in.
struct CommunicationError : Error {
  using Error::Error;
};

}  // namespace bertha
