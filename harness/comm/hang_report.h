#pragma once

#include <string>
#include <vector>

#include "harness/comm/rank_board.h"

namespace bertha {

/// A rank as the watchdog sees it.
struct Watched {
  RankStatus status;
  double silent_s = 0;  // since its watchdog's thread was last seen to run
  double still_s = 0;   // since it last made progress
};

/// What is known of a run that stands still.
struct HangReport {
  std::string sentence;
  std::vector<RankStatus> late = {};  // named in `sentence`: the first few that have not arrived
  bool are_silent = false;            // their watchdogs do not run: they cannot show their stacks
};

/// For a run without progress for `still_s`: which ranks have not arrived, where they are and for
/// how long, and where the others wait for them. It blames ranks whose watchdogs have not run for
/// half of that time, or else the ranks with the least progress, unless several ranks all have the
/// same.
///
/// Needs     one rank at least; num_ranks is the size of the world.
HangReport hang_report(const std::vector<Watched>& ranks, int num_ranks, double still_s);

}  // namespace bertha
