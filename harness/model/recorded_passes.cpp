#include "harness/model/recorded_passes.h"

#include <algorithm>

namespace bertha {
namespace {

// A run has a few dozen batch sizes, each with a graph per pass and piece. Frequent sizes are
// recorded first; beyond the limit, passes are enqueued operation by operation.
constexpr size_t kMaxGraphs = 512;

}  // namespace

void RecordedPasses::run(const PassKey& key, const std::function<void()>& enqueue) {
  if (!records_) return enqueue();
  const auto [found, is_new] = kept_.try_emplace(key);
  std::unique_ptr<Graph>& graph = found->second;
  if (graph == nullptr && !is_new && graphs_ < kMaxGraphs) {
    graph = device_.record(stream_, enqueue);
    if (graph != nullptr) ++graphs_;
  }
  if (graph == nullptr) return enqueue();  // new, beyond the limit, or a device without graphs
  device_.launch(stream_, *graph);
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
