#include "harness/train/replica_check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/files/hashing.h"
#include "harness/comm/rank_name.h"
#include "harness/train/host_pieces.h"

namespace bertha {
namespace {

/// CRC-32C of device memory: detects every error burst of up to 32 bits, and all other errors
/// except one in four billion.
class Checksums {
 public:
  explicit Checksums(const CheckpointParts& parts) : pieces_(*parts.device, *parts.stream) {}

  uint32_t after(uint32_t before, const View& values) {
    pieces_.each(values, [&](const View& piece) {
      before = crc32c({static_cast<const char*>(piece.data), static_cast<size_t>(piece.bytes())},
                      before);
    });
    return before;
  }

 private:
  HostPieces pieces_;
};

/// The checksum of a tensor that is equal on all ranks or, with `by_shard`, on all ranks of a
/// shard.
struct Held {
  std::string name;
  bool by_shard = false;
  int64_t checksum = 0;
};

uint32_t checksum_in_shard(const Optimizer& optimizer, Checksums& checksums, const View& values,
                           const ParamInfo& param) {
  uint32_t checksum = 0;
  for (const ShardRange& range : optimizer.shard_ranges()) {
    const int64_t from = std::max(param.offset, range.flat_begin);
    const int64_t to = std::min(param.offset + param.elements, range.flat_begin + range.elements);
    if (from >= to) continue;
    checksum = checksums.after(checksum,
                               values.rows(from - range.flat_begin + range.shard_begin, to - from));
  }
  return checksum;
}

std::vector<Held> held_by_this_rank(const CheckpointParts& parts, int num_ranks) {
  const Optimizer& optimizer = *parts.optimizer;
  Checksums checksums(parts);
  std::vector<Held> all;
  const View weights = optimizer.weights();
  for (const ParamInfo& param : parts.table->params) {
    all.push_back({.name = "the weights of " + param.name,
                   .checksum = checksums.after(0, weights.rows(param.offset, param.elements))});
  }
  all.push_back(
      {.name = "the counters of the optimizer", .checksum = checksums.after(0, optimizer.state())});
  if (optimizer.shard_count() == num_ranks) return all;  // no shard has a copy
  const std::pair<const char*, View> shards[] = {{"the master weights of ", optimizer.master()},
                                                 {"the first moments of ", optimizer.m()},
                                                 {"the second moments of ", optimizer.v()}};
  for (const auto& [what, values] : shards) {
    for (const ParamInfo& param : parts.table->params) {
      all.push_back({.name = what + param.name,
                     .by_shard = true,
                     .checksum = checksum_in_shard(optimizer, checksums, values, param)});
    }
  }
  return all;
}

/// The checksums of one tensor on several ranks.
struct Copies {
  std::vector<int> ranks;
  std::vector<int64_t> checksums;
};

/// The checksums of tensor `i`, by shard if it has shards. `all`: for each rank its shard, then its
/// checksums.
std::map<int64_t, Copies> copies_of(const std::vector<Held>& own, size_t i,
                                    const std::vector<int64_t>& all) {
  std::map<int64_t, Copies> by_shard;
  const size_t numbers = own.size() + 1;
  for (size_t rank = 0; rank * numbers < all.size(); ++rank) {
    Copies& copies = by_shard[own[i].by_shard ? all[rank * numbers] : 0];
    copies.ranks.push_back(static_cast<int>(rank));
    copies.checksums.push_back(all[rank * numbers + 1 + i]);
  }
  return by_shard;
}

/// The first tensor whose copies differ, and their checksums. All ranks call it.
std::optional<std::pair<std::string, Copies>> first_difference(const std::vector<Held>& own,
                                                               int64_t shard,
                                                               Transport& transport) {
  std::vector<int64_t> mine{shard};
  for (const Held& held : own) mine.push_back(held.checksum);
  const std::vector<int64_t> all = transport.all_gather(mine);
  for (size_t i = 0; i < own.size(); ++i) {
    for (const auto& [_, copies] : copies_of(own, i, all)) {
      const bool is_same = std::ranges::count(copies.checksums, copies.checksums.front()) ==
                           std::ssize(copies.checksums);
      if (!is_same) return std::pair(own[i].name, copies);
    }
  }
  return std::nullopt;
}

/// The ranks whose checksum differs from that of the majority; all ranks without a majority.
std::vector<int> odd_ones(const Copies& copies) {
  std::vector<int> odd;
  for (const int64_t checksum : copies.checksums) {
    if (2 * std::ranges::count(copies.checksums, checksum) <= std::ssize(copies.ranks)) continue;
    for (size_t i = 0; i < copies.ranks.size(); ++i) {
      if (copies.checksums[i] != checksum) odd.push_back(copies.ranks[i]);
    }
    return odd;
  }
  return copies.ranks;
}

[[noreturn]] void fail_of(const std::string& tensor, const Copies& copies,
                          const std::vector<std::vector<std::byte>>& hosts) {
  const std::vector<int> odd = odd_ones(copies);
  std::string names;
  for (const int rank : odd) {
    const std::vector<std::byte>& host = hosts[static_cast<size_t>(rank)];
    names += (names.empty() ? "" : ", ") +
             rank_name(rank, static_cast<int>(hosts.size()),
                       std::string(reinterpret_cast<const char*>(host.data()), host.size()));
  }
  const bool is_known = odd.size() < copies.ranks.size();
  fail(ExitCode::kNumeric, tensor,
       is_known ? concat(" on ", names, " have other bits than on the other ranks")
                : concat(" differ between ", names, ", and no majority shows which are right"),
       ": memory or a link corrupted them silently. Resume from the last checkpoint without that "
       "machine, and check it with bertha doctor.");
}

}  // namespace

void check_replicas(const CheckpointParts& parts, Transport& transport) {
  const std::vector<Held> own = held_by_this_rank(parts, transport.size());
  const int64_t shard = parts.optimizer->shard();
  // One number of each kind from every rank; details are sent only if these differ.
  int64_t common = 0, of_shard = 0;
  for (const Held& held : own) {
    int64_t& sum = held.by_shard ? of_shard : common;
    const std::string_view bytes(reinterpret_cast<const char*>(&held.checksum), sizeof(int64_t));
    sum = crc32c(bytes, static_cast<uint32_t>(sum));
  }
  const std::vector<Held> sums{{.name = "", .checksum = common},
                               {.name = "", .by_shard = true, .checksum = of_shard}};
  if (!first_difference(sums, shard, transport)) return;
  const auto found = first_difference(own, shard, transport);
  const std::string host = own_host();
  const auto hosts = transport.all_gather_bytes(std::as_bytes(std::span(host)));
  fail_of(found->first, found->second, hosts);
}

}  // namespace bertha
