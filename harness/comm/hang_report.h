#pragma once

#include <string>
#include <vector>

#include "harness/comm/rank_board.h"

namespace bertha {

/// The watchdog's observation of a rank.
struct Watched {
  RankStatus status;
  double silent_s = 0;  // since its watchdog's thread was last seen running
  double still_s = 0;   // since it last made progress
};

/// Why a run makes no progress.
struct HangReport {
  std::string message;
  std::vector<RankStatus> late = {};  // the first few ranks that have not arrived
  bool are_silent = false;  // their watchdogs do not run, so they cannot show their stacks
};

/// Describes a run without progress for `still_s`: which ranks have not arrived, where they are and
/// for how long, and where the others wait for them. Names ranks whose watchdogs have not run for
/// half of that time, or else the ranks with the least progress, unless several ranks all have the
/// same.
///
/// Needs     one rank at least; num_ranks is the size of the world.
HangReport hang_report(const std::vector<Watched>& ranks, int num_ranks, double still_s);

}  // namespace bertha
