#include "harness/comm/rank_name.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace bertha {

std::string own_host() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return host.data();
}

std::string machine_name() {
  std::string name;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
  return name.empty() ? own_host() : name;
}

std::string rank_name(int rank, int num_ranks, const std::string& host) {
  if (num_ranks == 1) return host;
  return concat("rank ", rank, " of ", num_ranks, " on ", host);
}

std::string rank_name(const World& world) {
  return rank_name(world.rank(), world.size(), own_host());
}

std::string rank_list(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += concat(text.empty() ? "" : ",", ranks[i]);
    if (last > i) text += concat("-", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string with_rank_name(const World& world, const std::string& message) {
  return world.size() == 1 ? message : concat(message, " (", rank_name(world), ")");
}

}  // namespace bertha
