#include "harness/comm/hang_report.h"

#include <algorithm>
#include <utility>

#include "harness/comm/rank_name.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr size_t kMostNamed = 4;  // a sentence with a thousand ranks is unreadable

using Ranks = std::vector<const Watched*>;

/// Ranks make moves in the same order; among equals the pipeline's threads decide.
std::pair<int64_t, int64_t> progress(const Watched& rank) {
  return {rank.status.moves, rank.status.background_moves};
}

std::string place(const RankStatus& status) {
  return concat("step ", status.step, ", phase ", name(status.phase));
}

std::string names(const Ranks& ranks, int num_ranks) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
    const RankStatus& status = ranks[i]->status;
    text += concat(i == 0 ? "" : ", ", rank_name(status.rank, num_ranks, status.host), " (process ",
                   status.process, ")");
  }
  if (ranks.size() > kMostNamed) text += concat(" and ", ranks.size() - kMostNamed, " more");
  return text;
}

/// The place of the rank that is furthest, of those that are not to blame.
std::string others(const std::vector<Watched>& ranks, const Ranks& late) {
  const Watched* furthest = nullptr;
  for (const Watched& rank : ranks) {
    if (std::ranges::find(late, &rank) != late.end()) continue;
    if (furthest == nullptr || progress(*furthest) < progress(rank)) furthest = &rank;
  }
  if (furthest == nullptr) return "";
  return concat("; the others wait in ", place(furthest->status));
}

}  // namespace

std::string hang_report(const std::vector<Watched>& ranks, int num_ranks, double still_s) {
  const auto slowest = std::ranges::min_element(
      ranks, [](const auto& a, const auto& b) { return progress(a) < progress(b); });
  Ranks silent;
  Ranks behind;
  for (const Watched& rank : ranks) {
    if (rank.silent_s >= still_s / 2) silent.push_back(&rank);
    if (progress(rank) == progress(*slowest)) behind.push_back(&rank);
  }

  if (!silent.empty()) {
    return concat(names(silent, num_ranks), silent.size() == 1 ? " has" : " have",
                  " not answered for ", still_s,
                  " s: stopped, or the machine cannot be reached;"
                  " last seen in ",
                  place(silent.front()->status), others(ranks, silent));
  }
  if (behind.size() < ranks.size() || num_ranks == 1) {
    return concat(names(behind, num_ranks), behind.size() == 1 ? " has" : " have",
                  " stood still for ", still_s, " s in ", place(slowest->status),
                  "; look there for a slow disk or a busy device", others(ranks, behind));
  }
  return concat("all ", ranks.size(), " ranks that can be seen have stood still for ", still_s,
                " s in ", place(slowest->status),
                ", and none is behind the others; look at the network and the devices");
}
}  // namespace bertha
