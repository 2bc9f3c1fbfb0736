#include "harness/config/nearest_word.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace bertha {
namespace {

int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<int64_t> before_previous(b.size() + 1);
  std::vector<int64_t> previous(b.size() + 1);
  std::vector<int64_t> current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t replaced = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({replaced, previous[j] + 1, current[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], before_previous[j - 2] + 1);
    }
    std::swap(before_previous, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
  const auto limit = std::max<int64_t>(2, static_cast<int64_t>(word.size()) / 3);
  int64_t best = limit + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    // A cut-off word ("learning_rate" of "base_learning_rate") counts as one edit.
    const bool part = word.size() >= 4 && candidate.find(word) != std::string::npos;
    const int64_t longer_by = std::ssize(candidate) - std::ssize(word);
    if (!part && std::abs(longer_by) >= best) continue;  // each extra letter is an edit
    const int64_t distance = part ? std::min<int64_t>(1, edit_distance(word, candidate))
                                  : edit_distance(word, candidate);
    if (distance < best && distance < static_cast<int64_t>(std::max(word.size(), size_t{2}))) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace bertha
