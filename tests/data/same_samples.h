#pragma once

#include <gtest/gtest.h>

#include "data/format/sample.h"

namespace bertha {

/// The same samples, whatever their numbers.
inline void expect_same_contents(const SampleSet& found, const SampleSet& want) {
  EXPECT_EQ(found.token_offsets, want.token_offsets);
  EXPECT_EQ(found.token_ids, want.token_ids);
  EXPECT_EQ(found.segment_ids, want.segment_ids);
  EXPECT_EQ(found.masked_offsets, want.masked_offsets);
  EXPECT_EQ(found.masked_positions, want.masked_positions);
  EXPECT_EQ(found.masked_ids, want.masked_ids);
  EXPECT_EQ(found.next_sentence_labels, want.next_sentence_labels);
}

inline void expect_same_samples(const SampleSet& found, const SampleSet& want) {
  EXPECT_EQ(found.ids, want.ids);
  expect_same_contents(found, want);
}

}  // namespace bertha
