#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

namespace bertha::fuzz {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 10;

// Where sizes, counts and places go wrong.
constexpr std::array<int64_t, 20> kNumbers{
    0,     1,     -1,    2,         16,      64,        127,       255,       256,       4096,
    32767, 32768, 65535, 1'000'000, 1 << 30, 1LL << 31, 1LL << 32, 1LL << 53, INT64_MAX, INT64_MIN};

/// One call of below() in each statement: compilers order the arguments of a call as they like.
class Mutation {
 public:
  Mutation(const std::vector<std::string>& seeds, std::mt19937_64& random)
      : seeds_(seeds), random_(random), bytes_(pick(seeds)) {}

  void apply() {
    switch (below(9)) {
      case 0:
        if (!bytes_.empty()) byte() ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        if (!bytes_.empty()) byte() = static_cast<char>(below(256));
        break;
      case 2: {
        uint64_t number = static_cast<uint64_t>(kNumbers[below(kNumbers.size())]);
        number -= below(2);
        const size_t width = size_t{1} << below(4);
        if (bytes_.size() < width) break;
        std::memcpy(&bytes_[below(bytes_.size() - width + 1)], &number, width);
        break;
      }
      case 3:
        replace_digits();
        break;
      case 4: {
        const size_t begin = below(bytes_.size() + 1);
        bytes_.erase(begin, length());
        break;
      }
      case 5:
        insert(range_of(bytes_));
        break;
      case 6:
        insert(range_of(pick(seeds_)));
        break;
      case 7: {
        const std::string from = range_of(pick(seeds_));
        const size_t at = below(bytes_.size() + 1);
        bytes_.replace(at, from.size(), from);
        break;
      }
      default:
        if (below(4) == 0) {
          bytes_.resize(below(bytes_.size() + 1));
        } else {
          const size_t count = 1 + below(200);
          insert(std::string(count, "[{(\"\n \0\xff"[below(8)]));
        }
    }
    if (bytes_.size() > kMaxBytes) bytes_.resize(kMaxBytes);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  size_t below(size_t bound) { return random_() % bound; }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }
  char& byte() { return bytes_[below(bytes_.size())]; }
  /// Mostly short.
  size_t length() { return 1 + below(size_t{1} << (1 + below(10))); }
  std::string range_of(const std::string& from) {
    const size_t begin = below(from.size() + 1);
    return from.substr(begin, length());
  }
  void insert(const std::string& range) { bytes_.insert(below(bytes_.size() + 1), range); }

  /// A number that is written out becomes another one.
  void replace_digits() {
    constexpr const char* kDigits = "0123456789.-";
    const size_t begin = bytes_.find_first_of(kDigits, below(bytes_.size() + 1));
    if (begin == std::string::npos) return;
    const size_t end = bytes_.find_first_not_of(kDigits, begin);
    const std::array<std::string, 4> texts{std::to_string(kNumbers[below(kNumbers.size())]),
                                           "1e300", "99999999999999999999", "0.5"};
    bytes_.replace(begin, std::min(end, bytes_.size()) - begin,
                   texts[below(4) == 0 ? 1 + below(3) : 0]);
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64& random_;
  std::string bytes_;
};

}  // namespace

std::string mutated(const FuzzTarget& target, const std::vector<std::string>& seeds,
                    uint64_t random_seed, int64_t execution) {
  std::mt19937_64 random(random_seed * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(execution));
  Mutation mutation(seeds, random);
  for (uint64_t left = 1 + random() % 8; left > 0; --left) mutation.apply();
  const bool repairs = target.repair != nullptr && random() % 8 != 0;
  return repairs ? target.repair(mutation.bytes()) : mutation.bytes();
}

}  // namespace bertha::fuzz
