#include "data/convert/tf_example.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {
namespace {

enum Feature : size_t { kIds, kMask, kSegments, kPositions, kLabels, kWeights, kNext };
constexpr std::array<std::string_view, 7> kNames{
    "input_ids",     "input_mask",        "segment_ids",         "masked_lm_positions",
    "masked_lm_ids", "masked_lm_weights", "next_sentence_labels"};

using Wrong = ExampleDecoder::Wrong;

template <class List>
auto numbers_of(const List& list) {
  return std::span(list.value().data(), static_cast<size_t>(list.value_size()));
}

template <class T>
void copy_checked(std::string_view name, std::span<const int64_t> from, const Wrong& wrong,
                  std::vector<T>& to) {
  to.clear();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] < 0 || from[i] > std::numeric_limits<T>::max()) {
      wrong(concat("feature ", name, ", element ", i, " is ", from[i], ", want 0 to ",
                   static_cast<int64_t>(std::numeric_limits<T>::max())));
    }
    to.push_back(static_cast<T>(from[i]));
  }
}

}  // namespace

ExampleDecoder::ExampleDecoder(const SampleLimits& limits, Wrong wrong)
    : limits_(limits), wrong_(std::move(wrong)) {}

SampleView ExampleDecoder::decode(std::span<const std::byte> record) {
  if (!example_.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
    wrong_("not a tf.train.Example: a field is truncated or of an unknown type");
  }
  std::array<const tf::Feature*, kNames.size()> features{};
  for (const tf::FeatureEntry& entry : example_.features().feature()) {
    const auto known = std::ranges::find(kNames, entry.key());
    if (known != kNames.end())
      features[static_cast<size_t>(known - kNames.begin())] = &entry.value();
  }
  const auto tokens = static_cast<size_t>(limits_.max_seq_tokens);
  const auto masked = static_cast<size_t>(limits_.max_masked_per_seq);
  const std::array<size_t, kNames.size()> wanted{tokens, tokens, tokens, masked, masked, masked, 1};
  std::array<std::span<const int64_t>, kNames.size()> integers;
  std::span<const float> weights;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (features[i] == nullptr) wrong_(concat("no feature ", kNames[i]));
    integers[i] = numbers_of(features[i]->int64_list());
    if (i == kWeights) weights = numbers_of(features[i]->float_list());
    const size_t found = i == kWeights ? weights.size() : integers[i].size();
    if (found != wanted[i]) {
      wrong_(concat("feature ", kNames[i], " has ", found, " ",
                    i == kWeights ? "floats" : "integers", ", want ", wanted[i],
                    i == kNext ? "" : "; give the lengths with which the data was prepared"));
    }
  }
  const auto live_prefix_of = [&](Feature feature) {
    return live_prefix(integers[feature], [&](const std::string& what) {
      wrong_(concat("feature ", kNames[feature], ", ", what));
    });
  };
  const size_t num_tokens = live_prefix_of(kMask);
  const size_t num_masked = live_prefix_of(kPositions);
  for (size_t i = 0; i < num_tokens; ++i) {
    if (integers[kMask][i] == 1) continue;
    wrong_(concat("feature ", kNames[kMask], ", element ", i, " is ", integers[kMask][i],
                  ", want 0 or 1"));
  }
  for (size_t i = 0; i < masked; ++i) {
    const float want = i < num_masked ? 1.0f : 0.0f;
    if (weights[i] == want) continue;
    wrong_(concat("feature ", kNames[kWeights], ", element ", i, " is ", weights[i], ", want ",
                  want, " because there are ", num_masked, " masked positions"));
  }
  const auto copy = [&](size_t index, size_t count, auto& to) {
    copy_checked(kNames[index], integers[index].first(count), wrong_, to);
  };
  copy(kIds, num_tokens, sample_.token_ids);
  copy(kSegments, num_tokens, sample_.segment_ids);
  copy(kPositions, num_masked, sample_.masked_positions);
  copy(kLabels, num_masked, sample_.masked_ids);
  copy(kNext, 1, sample_.next_sentence_labels);
  return {.token_ids = sample_.token_ids,
          .segment_ids = sample_.segment_ids,
          .masked_positions = sample_.masked_positions,
          .masked_ids = sample_.masked_ids,
          .next_sentence_label = sample_.next_sentence_labels[0]};
}

}  // namespace bertha
