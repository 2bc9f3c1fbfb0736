#include "harness/doctor/neighbors.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace bertha {
namespace {

constexpr size_t kBytes = size_t{64} << 20;
constexpr int64_t kMaxSteps = 2;

std::vector<int64_t> first_ranks(Transport& transport, bool is_first_of_node) {
  const int64_t mine = is_first_of_node ? 1 : 0;
  const std::vector<int64_t> flags = transport.all_gather({&mine, 1});
  std::vector<int64_t> firsts;
  for (size_t rank = 0; rank < flags.size(); ++rank) {
    if (flags[rank] == 1) firsts.push_back(static_cast<int64_t>(rank));
  }
  return firsts;
}

}  // namespace

double neighbor_rate(Transport& transport, bool is_first_of_node) {
  const std::vector<int64_t> firsts = first_ranks(transport, is_first_of_node);
  const auto nodes = std::ssize(firsts);
  double best = -1;
  for (int64_t step = 1; step <= std::min(kMaxSteps, nodes - 1); ++step) {
    std::vector<std::vector<std::byte>> outgoing(static_cast<size_t>(transport.size()));
    std::vector<int64_t> incoming_bytes(outgoing.size());
    if (is_first_of_node) {
      const auto place = std::ranges::find(firsts, transport.rank()) - firsts.begin();
      const int64_t to = firsts[static_cast<size_t>((place + step) % nodes)];
      const int64_t from = firsts[static_cast<size_t>((place + nodes - step) % nodes)];
      outgoing[static_cast<size_t>(to)].resize(kBytes);
      incoming_bytes[static_cast<size_t>(from)] = static_cast<int64_t>(kBytes);
    }
    transport.sum(std::vector<int64_t>{0});  // all start together
    const auto begin = std::chrono::steady_clock::now();
    transport.all_to_all_bytes(outgoing, incoming_bytes);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    if (is_first_of_node) best = std::max(best, static_cast<double>(kBytes) / elapsed.count());
  }
  return best;
}

}  // namespace bertha
