#include "harness/comm/hang_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/comm/rank_name.h"
#include "kernels/base/error.h"
#include "kernels/base/plural.h"

namespace bertha {
namespace {

constexpr size_t kMaxNamed = 4;  // a message with a thousand ranks is unreadable

using Ranks = std::vector<const Watched*>;

/// Orders ranks by progress: all make their moves in the same order; the pipeline's threads break
/// ties.
std::pair<int64_t, int64_t> progress(const Watched& rank) {
  return {rank.status.moves, rank.status.background_moves};
}

/// "step 7, phase training, in collective call 12 (all-gather)"; "after" if the call has returned.
std::string place(const RankStatus& status) {
  std::string text = concat("step ", status.step, ", phase ", name(status.phase));
  if (status.call_moves == 0) return text;
  return text + concat(status.call_moves % 2 == 1 ? ", in" : ", after", " collective call ",
                       (status.call_moves + 1) / 2, " (", name(status.call), ")");
}

/// Ranks at the same place in the run.
struct Group {
  std::string place;
  std::vector<int> ranks;
  double still_s = 0;  // the longest
};

/// The first few groups of ranks, in the order of their first ranks.
std::vector<Group> groups_of(const Ranks& ranks) {
  std::vector<Group> groups;
  for (const Watched* rank : ranks) {
    const std::string here = place(rank->status);
    auto group = std::ranges::find(groups, here, &Group::place);
    if (group == groups.end()) group = groups.insert(groups.end(), {.place = here, .ranks = {}});
    group->ranks.push_back(rank->status.rank);
    group->still_s = std::max(group->still_s, rank->still_s);
  }
  if (groups.size() > kMaxNamed) groups.resize(kMaxNamed);
  return groups;
}

std::string names(const Ranks& ranks, int num_ranks) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMaxNamed); ++i) {
    const RankStatus& status = ranks[i]->status;
    text += concat(i == 0 ? "" : ", ", rank_name(status.rank, num_ranks, status.host), " (process ",
                   status.process, ")");
  }
  if (ranks.size() > kMaxNamed) text += concat(" and ", ranks.size() - kMaxNamed, " more");
  return text;
}

/// Where the ranks are and for how long; with their numbers if they are in several places.
std::string places(const Ranks& late) {
  const std::vector<Group> groups = groups_of(late);
  std::string text;
  for (const Group& group : groups) {
    if (!text.empty()) text += "; ";
    if (groups.size() > 1) {
      text += concat(plural(std::ssize(group.ranks), "rank"), " ", rank_list(group.ranks), " in ");
    }
    text += concat(group.place, ", for ", std::llround(group.still_s), " s");
  }
  return text;
}

std::string waiting(const std::vector<Watched>& ranks, const Ranks& late) {
  Ranks others;
  for (const Watched& rank : ranks) {
    if (std::ranges::find(late, &rank) == late.end()) others.push_back(&rank);
  }
  std::string text;
  for (const Group& group : groups_of(others)) {
    const int64_t count = std::ssize(group.ranks);
    text += concat("; ", plural(count, "rank"), " ", rank_list(group.ranks),
                   count == 1 ? " waits" : " wait", " in ", group.place);
  }
  return text;
}

std::vector<RankStatus> statuses_of(const Ranks& ranks) {
  std::vector<RankStatus> statuses;
  for (const Watched* rank : ranks) statuses.push_back(rank->status);
  if (statuses.size() > kMaxNamed) statuses.resize(kMaxNamed);
  return statuses;
}

}  // namespace

HangReport hang_report(const std::vector<Watched>& ranks, int num_ranks, double still_s) {
  const auto slowest = std::ranges::min_element(
      ranks, [](const auto& a, const auto& b) { return progress(a) < progress(b); });
  Ranks silent;
  Ranks behind;
  for (const Watched& rank : ranks) {
    if (rank.silent_s >= still_s / 2) silent.push_back(&rank);
    if (progress(rank) == progress(*slowest)) behind.push_back(&rank);
  }

  if (!silent.empty()) {
    return {
        .message = concat(names(silent, num_ranks), silent.size() == 1 ? " has" : " have",
                          " not answered for ", still_s,
                          " s because it is stopped or its machine is unreachable; last seen in ",
                          places(silent), waiting(ranks, silent)),
        .late = statuses_of(silent),
        .are_silent = true};
  }
  if (behind.size() < ranks.size() || num_ranks == 1) {
    return {
        .message = concat(names(behind, num_ranks), behind.size() == 1 ? " has" : " have",
                          " made no progress for ", still_s, " s in ", places(behind),
                          "; look there for a slow disk or a busy device", waiting(ranks, behind)),
        .late = statuses_of(behind)};
  }
  return {.message = concat("all ", ranks.size(), " reachable ranks have made no progress for ",
                            still_s, " s in ", place(slowest->status),
                            ", and none is behind the others; check the network and the devices")};
}

}  // namespace bertha
