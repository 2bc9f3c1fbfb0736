#include "harness/comm/gpu_plan.h"

#include <map>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {
namespace {

size_t ordinal_of(const RankGpus& rank) {
  return rank.bus_ids.size() == 1 ? 0 : static_cast<size_t>(rank.node_rank);
}

std::string name_of(size_t number, const RankGpus& rank) {
  return concat("rank ", number, rank.host.empty() ? "" : " on " + rank.host);
}

}  // namespace

int plan_gpu(std::span<const RankGpus> ranks, int self) {
  constexpr const char* kAdvice =
      "; start at most one rank per GPU and check CUDA_VISIBLE_DEVICES, or set train.backend to "
      "cpu";
  std::map<std::pair<std::string, std::string>, size_t> rank_of_gpu;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankGpus& rank = ranks[r];
    if (rank.bus_ids.empty()) {
      fail(ExitCode::kEnvironment, "the backend is cuda, but no GPU is available to ",
           name_of(r, rank),
           "; see `nvidia-smi` and CUDA_VISIBLE_DEVICES there, or set train.backend (--backend) to "
           "cpu");
    }
    if (ordinal_of(rank) >= rank.bus_ids.size()) {
      fail(ExitCode::kEnvironment, name_of(r, rank), " is rank ", rank.node_rank + 1,
           " of its node but sees only ", rank.bus_ids.size(), " GPUs", kAdvice);
    }
    const std::string& bus_id = rank.bus_ids[ordinal_of(rank)];
    const auto [place, is_new] = rank_of_gpu.insert({{rank.machine, bus_id}, r});
    if (!is_new) {
      fail(ExitCode::kEnvironment, "ranks ", place->second, " and ", r, " would share GPU ", bus_id,
           " of one node", kAdvice);
    }
  }
  return static_cast<int>(ordinal_of(ranks[static_cast<size_t>(self)]));
}

}  // namespace bertha
