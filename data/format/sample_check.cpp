#include "data/format/sample_check.h"

#include <algorithm>

#include "data/format/dataset_formats.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

struct Row {
  int64_t index;
  const SampleLimits& limits;
  const ViolationReport& report;

  template <class... Parts>
  void wrong(const char* dataset, const Parts&... parts) const {
    report(Violation{.row = index, .dataset = dataset, .what = concat(parts...)});
  }
};

void check_ids(const Row& row, const char* dataset, std::span<const int16_t> ids) {
  const auto outside = [&](int16_t id) { return id < 0 || id >= row.limits.vocab_size; };
  const auto found = std::ranges::find_if(ids, outside);
  if (found == ids.end()) return;
  row.wrong(dataset, "element ", found - ids.begin(), " is id ", *found, ", want 0 to ",
            row.limits.vocab_size - 1, " (is this the vocabulary the data was made with?)");
}

void check_lengths(const Row& row, const SampleView& sample) {
  const int64_t num_tokens = std::ssize(sample.token_ids);
  const int64_t num_masked = std::ssize(sample.masked_positions);
  if (num_tokens < 1 || num_tokens > row.limits.max_seq_tokens) {
    row.wrong(dataset_names::kInputIds, num_tokens, " tokens, want 1 to ",
              row.limits.max_seq_tokens, " (was the data made for longer sequences?)");
  }
  if (num_masked > row.limits.max_masked_per_seq) {
    row.wrong(dataset_names::kMaskedPositions, num_masked, " masked positions, want at most ",
              row.limits.max_masked_per_seq);
  }
}

void check_segments(const Row& row, std::span<const int8_t> segments) {
  int8_t previous = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i] < previous || segments[i] > 1) {
      row.wrong(dataset_names::kSegmentIds, "element ", i, " is ", static_cast<int>(segments[i]),
                " after ", static_cast<int>(previous), ", want zeros, then ones");
      return;
    }
    previous = segments[i];
  }
}

void check_positions(const Row& row, std::span<const int16_t> positions, int64_t num_tokens) {
  int16_t previous = 0;  // [CLS] is never masked
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] <= previous || positions[i] >= num_tokens) {
      row.wrong(dataset_names::kMaskedPositions, "element ", i, " is ", positions[i], " after ",
                previous, ", want ascending positions from 1 to ", num_tokens - 1);
      return;
    }
    previous = positions[i];
  }
}

}  // namespace

void check_sample(const SampleView& sample, int64_t row_index, const SampleLimits& limits,
                  const ViolationReport& report) {
  const Row row{row_index, limits, report};
  check_lengths(row, sample);
  check_ids(row, dataset_names::kInputIds, sample.token_ids);
  check_segments(row, sample.segment_ids);
  check_positions(row, sample.masked_positions, std::ssize(sample.token_ids));
  check_ids(row, dataset_names::kMaskedIds, sample.masked_ids);
  if (sample.next_sentence_label != 0 && sample.next_sentence_label != 1) {
    row.wrong(dataset_names::kNextSentenceLabels, "label ",
              static_cast<int>(sample.next_sentence_label), ", want 0 or 1");
  }
}

void refuse_wrong_sample(const SampleView& sample, int64_t row, const SampleLimits& limits,
                         const std::string& path) {
  check_sample(sample, row, limits, [&](const Violation& found) {
    fail(ExitCode::kData, path, ": refusing to write row ", found.row, ", dataset ", found.dataset,
         ": ", found.what);
  });
}

}  // namespace bertha
