#pragma once

#include <string>
#include <vector>

#include "harness/comm/rank_board.h"

namespace bertha {

/// A rank as the watchdog sees it.
struct Watched {
  RankStatus status;
  double silent_s = 0;  // since its watchdog's thread was last seen to run
};

/// The sentence for a run without progress for `still_s`: which ranks have not arrived, and where
/// the others wait for them. A rank whose watchdog has not run for half of that time is to blame,
/// else the one that is behind the others.
///
/// Needs     one rank at least; num_ranks is the size of the world.
std::string hang_report(const std::vector<Watched>& ranks, int num_ranks, double still_s);
}  // namespace bertha
