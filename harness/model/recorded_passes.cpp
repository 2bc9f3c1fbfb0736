#include "harness/model/recorded_passes.h"

#include <algorithm>

namespace bertha {
namespace {

// Each takes some megabytes of device memory. A run has a few dozen sizes of batches, and the
// frequent ones come first.
constexpr size_t kMostKeys = 256;

}  // namespace

void RecordedPasses::run(const PassKey& key, const std::function<void()>& enqueue) {
  if (!records_) return enqueue();
  const auto found = kept_.find(key);
  if (found == kept_.end()) {
    if (kept_.size() < kMostKeys) kept_.emplace(key, nullptr);
    return enqueue();
  }
  if (found->second == nullptr) found->second = device_.record(stream_, enqueue);
  if (found->second == nullptr) return enqueue();  // a device without graphs
  device_.launch(stream_, *found->second);
}

size_t RecordedPasses::graphs() const {
  return static_cast<size_t>(
      std::ranges::count_if(kept_, [](const auto& entry) { return entry.second != nullptr; }));
}

std::vector<Piece> cut_pieces(const std::vector<int64_t>& part_begins,
                              const std::vector<int64_t>& bucket_begins) {
  std::vector<Piece> pieces;
  for (size_t part = 0; part < part_begins.size(); ++part) {
    const auto next = std::ranges::lower_bound(bucket_begins, part_begins[part]);
    const bool begins_here = next != bucket_begins.end() &&
                             (part + 1 == part_begins.size() || *next < part_begins[part + 1]);
    if (part == 0 || begins_here) {
      pieces.push_back({.first = part, .last = part});
    } else {
      pieces.back().last = part;
    }
  }
  return pieces;
}

}  // namespace bertha
