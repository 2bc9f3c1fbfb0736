#include "harness/comm/core_plan.h"

#include <algorithm>
#include <set>

#include "kernels/base/error.h"
#include "kernels/base/plural.h"

namespace bertha {
namespace {

bool share_a_core(const std::vector<int>& a, const std::vector<int>& b) {
  const std::set<int> of_a(a.begin(), a.end());
  return std::any_of(b.begin(), b.end(), [&](int core) { return of_a.count(core) > 0; });
}

/// The ranks that compete with one for cores.
struct Sharing {
  std::vector<size_t> ranks;  // in rank order, the rank itself too
  bool all_equal = true;      // they may use the same cores
  bool all_near = true;       // each can have a core near its GPU
};

size_t ranks_near(const std::vector<size_t>& sharing, std::span<const RankCores> ranks,
                  const std::vector<int>& near) {
  return static_cast<size_t>(std::count_if(sharing.begin(), sharing.end(),
                                           [&](size_t r) { return ranks[r].near == near; }));
}

Sharing find_sharing(std::span<const RankCores> ranks, const RankCores& mine) {
  Sharing sharing;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].machine != mine.machine || !share_a_core(ranks[r].cores, mine.cores)) continue;
    sharing.ranks.push_back(r);
    sharing.all_equal = sharing.all_equal && ranks[r].cores == mine.cores;
  }
  for (const size_t r : sharing.ranks) {
    const std::vector<int>& near = ranks[r].near;
    sharing.all_near =
        sharing.all_near && near.size() >= ranks_near(sharing.ranks, ranks, near) && !near.empty();
  }
  return sharing;
}

std::string count_text(size_t count, const char* noun) {
  return concat(count, " ", plural(count, noun));
}

/// An equal part of `cores` for the `place`-th of `parts` ranks.
CorePlan bind_to_part(const std::vector<int>& cores, size_t place, size_t parts,
                      const char* whose) {
  const size_t begin = cores.size() * place / parts;
  const size_t end = cores.size() * (place + 1) / parts;
  CorePlan plan;
  plan.action = CorePlan::Action::kBind;
  plan.cores.assign(cores.begin() + static_cast<std::ptrdiff_t>(begin),
                    cores.begin() + static_cast<std::ptrdiff_t>(end));
  plan.threads = static_cast<int>(end - begin);
  plan.reason = concat("bound to ", count_text(end - begin, "core"), " (", core_list(plan.cores),
                       ")", parts == 1 ? "" : concat(" of the ", cores.size()), whose,
                       parts == 1 ? "" : concat(" shared by ", parts, " ranks"));
  return plan;
}

}  // namespace

std::string core_list(const std::vector<int>& cores) {
  std::vector<int> sorted = cores;
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (size_t i = 0; i < sorted.size();) {
    size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    text += concat(text.empty() ? "" : ",", sorted[i]);
    if (last > i) text += concat("-", sorted[last]);
    i = last + 1;
  }
  return text;
}

CorePlan plan_cores(std::span<const RankCores> ranks, int self) {
  const RankCores& mine = ranks[static_cast<size_t>(self)];
  const Sharing sharing = find_sharing(ranks, mine);
  const auto place_in = [&](const std::vector<size_t>& group) {
    return static_cast<size_t>(std::find(group.begin(), group.end(), static_cast<size_t>(self)) -
                               group.begin());
  };
  if (sharing.all_equal && sharing.all_near && mine.near != mine.cores) {
    std::vector<size_t> group;
    for (const size_t r : sharing.ranks) {
      if (ranks[r].near == mine.near) group.push_back(r);
    }
    return bind_to_part(mine.near, place_in(group), group.size(), " near its GPU");
  }

  const size_t num_cores = mine.cores.size();
  const size_t num_ranks = sharing.ranks.size();
  CorePlan plan{.cores = mine.cores};
  if (num_ranks <= 1) {
    plan.threads = std::max(1, static_cast<int>(num_cores));
    plan.reason =
        concat("keeps its ", count_text(num_cores, "core"), " (", core_list(mine.cores), ")");
    return plan;
  }
  if (!sharing.all_equal || num_ranks > num_cores) {
    plan.threads = std::max(1, static_cast<int>(num_cores / num_ranks));
    plan.reason = concat("not bound: shares ", count_text(num_cores, "core"), " (",
                         core_list(mine.cores), ") with ", count_text(num_ranks - 1, "other rank"));
    return plan;
  }
  return bind_to_part(mine.cores, place_in(sharing.ranks), num_ranks, "");
}

}  // namespace bertha
