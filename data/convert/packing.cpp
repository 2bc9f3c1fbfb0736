#include "data/convert/packing.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "data/random/draws.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr uint64_t kPackKey = 0x5041434B53303031;    // "PACKS001"
constexpr uint64_t kMemberKey = 0x4D454D4245523031;  // "MEMBER01"

/// How many sequences of each length are left.
class Stock {
 public:
  Stock(std::span<const int64_t> seqs_of_length, int64_t max_tokens)
      : left_(seqs_of_length.begin(), seqs_of_length.end()) {
    left_.resize(static_cast<size_t>(max_tokens) + 1);
  }

  int64_t& operator[](int64_t length) { return left_[static_cast<size_t>(length)]; }

  /// Two lengths that add up to `room`, the first as short as possible.
  bool find_two(int64_t room, std::vector<int64_t>& pack) {
    for (int64_t shorter = 1; 2 * shorter <= room; ++shorter) {
      const int64_t other = room - shorter;
      if ((*this)[shorter] == 0 || (*this)[other] == 0) continue;
      if (shorter == other && (*this)[shorter] < 2) continue;
      pack.push_back(other);
      pack.push_back(shorter);
      return true;
    }
    return false;
  }

  /// Adds to the pack of the longest sequence; all of it counts as still in stock.
  void fill(const PackLimits& limits, std::vector<int64_t>& pack) {
    const int64_t room = limits.max_tokens - pack[0];
    for (int64_t used = room; used > 0; --used) {
      if (limits.max_seqs >= 3 && find_two(used, pack)) break;
      if (limits.max_seqs >= 2 && (*this)[used] > 0) {
        pack.push_back(used);
        break;
      }
    }
  }

 private:
  std::vector<int64_t> left_;
};

/// How often this pack can be formed: 0 if it needs a length more often than it occurs.
int64_t times(Stock& stock, const std::vector<int64_t>& pack) {
  int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t length : pack) {
    most = std::min(most, stock[length] / std::ranges::count(pack, length));
  }
  return most;
}

}  // namespace

std::vector<PackKind> plan_packs(std::span<const int64_t> seqs_of_length,
                                 const PackLimits& limits) {
  BERTHA_CHECK(limits.max_tokens >= 1 && limits.max_seqs >= 1 && limits.max_seqs < 256, "packs of ",
               limits.max_seqs, " sequences, ", limits.max_tokens, " tokens");
  for (size_t length = 0; length < seqs_of_length.size(); ++length) {
    const bool fits = length >= 1 && static_cast<int64_t>(length) <= limits.max_tokens;
    BERTHA_CHECK(fits || seqs_of_length[length] == 0, "sequences of ", length, " tokens");
  }
  Stock stock(seqs_of_length, limits.max_tokens);
  std::vector<PackKind> plan;
  for (int64_t longest = limits.max_tokens; longest > 0; --longest) {
    while (stock[longest] > 0) {
      PackKind kind{.lengths = {longest}};
      --stock[longest];
      stock.fill(limits, kind.lengths);
      // Places beyond three are filled with sequences that the search for two has left over.
      int64_t room =
          limits.max_tokens - std::accumulate(kind.lengths.begin(), kind.lengths.end(), int64_t{0});
      ++stock[longest];
      for (int64_t next = room; next > 0; --next) {
        while (next <= room && std::ssize(kind.lengths) < limits.max_seqs &&
               stock[next] > std::ranges::count(kind.lengths, next)) {
          kind.lengths.push_back(next);
          room -= next;
        }
      }
      kind.count = times(stock, kind.lengths);
      for (const int64_t length : kind.lengths) stock[length] -= kind.count;
      std::ranges::sort(kind.lengths, std::greater<>());
      plan.push_back(std::move(kind));
    }
  }
  return plan;
}

PackFigures figures_of(std::span<const PackKind> plan, const PackLimits& limits) {
  PackFigures figures;
  for (const PackKind& kind : plan) {
    figures.num_packs += kind.count;
    figures.num_seqs += kind.count * std::ssize(kind.lengths);
    figures.num_tokens +=
        kind.count * std::accumulate(kind.lengths.begin(), kind.lengths.end(), int64_t{0});
  }
  if (figures.num_packs == 0) return figures;
  const auto packs = static_cast<double>(figures.num_packs);
  figures.seqs_per_pack = static_cast<double>(figures.num_seqs) / packs;
  figures.efficiency =
      static_cast<double>(figures.num_tokens) / (packs * static_cast<double>(limits.max_tokens));
  return figures;
}

PackPlaces place_in_packs(std::span<const PackKind> plan, std::span<const uint16_t> tokens,
                          uint64_t seed) {
  if (tokens.size() > std::numeric_limits<uint32_t>::max()) {
    fail(ExitCode::kUsage, tokens.size(), " sequences, want fewer than 2^32; pack them in parts");
  }
  std::vector<uint32_t> kind_of_pack;
  for (size_t kind = 0; kind < plan.size(); ++kind) {
    kind_of_pack.insert(kind_of_pack.end(), static_cast<size_t>(plan[kind].count),
                        static_cast<uint32_t>(kind));
  }
  philox_shuffle(kind_of_pack, seed ^ kPackKey, 0, 0);

  // The places of each length, in the order of packs; then in random order.
  constexpr size_t kLengths = size_t{std::numeric_limits<uint16_t>::max()} + 1;
  std::vector<size_t> seqs_of_length(kLengths);
  for (const uint16_t length : tokens) ++seqs_of_length[length];
  std::vector<std::vector<uint32_t>> places_of_length(kLengths);
  for (size_t i = 0; i < kLengths; ++i) places_of_length[i].reserve(seqs_of_length[i]);
  PackPlaces places{.place_of = std::vector<uint32_t>(tokens.size()), .pack_seqs = {}};
  places.pack_seqs.reserve(kind_of_pack.size());
  uint32_t place = 0;
  for (const uint32_t kind : kind_of_pack) {
    const std::vector<int64_t>& lengths = plan[kind].lengths;
    places.pack_seqs.push_back(static_cast<uint8_t>(lengths.size()));
    for (const int64_t length : lengths) {
      places_of_length[static_cast<size_t>(length)].push_back(place++);
    }
  }
  BERTHA_CHECK(place == tokens.size(), place, " places for ", tokens.size(), " sequences");
  for (size_t length = 0; length < places_of_length.size(); ++length) {
    philox_shuffle(places_of_length[length], seed ^ kMemberKey, 0, static_cast<uint32_t>(length));
  }
  for (size_t seq = 0; seq < tokens.size(); ++seq) {
    std::vector<uint32_t>& of_length = places_of_length[tokens[seq]];
    BERTHA_CHECK(!of_length.empty(), "no place for a sequence of ", tokens[seq], " tokens");
    places.place_of[seq] = of_length.back();
    of_length.pop_back();
  }
  return places;
}

}  // namespace bertha
