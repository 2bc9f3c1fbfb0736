#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/sequence_group.h"

namespace bertha {

/// Where batches live: pinned memory when a GPU copies from it. The deleter frees it.
using HostAllocator = std::function<std::shared_ptr<void>(int64_t bytes)>;

/// One un-padded micro-batch of one rank. All arrays are parts of one block, which one owner
/// keeps until the copies to the device are done.
///
/// Letters   B = sequences, T = tokens (live, not rounded), M = masked positions.
struct HostBatch {
  int64_t num_seqs = 0;
  int64_t num_tokens = 0;
  int64_t num_masked = 0;

  std::span<int32_t> word_ids;      // [T]
  std::span<int32_t> segment_ids;   // [T]
  std::span<int32_t> position_ids;  // [T]  0.. in each sequence
  // [T]  rows in ascending order of (word id, row): lets a GPU sum the word table's gradient in a
  // fixed order. Empty: any order.
  std::span<int32_t> rows_by_word = {};
  std::span<int32_t> cu_seqlens;            // [B + 1]  first token of each sequence, then T
  std::span<int32_t> masked_positions;      // [M]  rows in [0, T)
  std::span<int32_t> masked_labels;         // [M]  original token ids
  std::span<int32_t> next_sentence_labels;  // [B]

  std::vector<SequenceGroup> groups;  // by length bucket, covering all sequences in order
  std::vector<int64_t> sample_ids;    // [B]  global ids, for tests and post-mortems

  std::shared_ptr<void> block;  // owns the memory of the spans
};

/// One step over all ranks; its counts make loss means independent of who was given which samples.
struct StepCounts {
  int64_t step = 0;  // 0-based, counts batches consumed
  int64_t epoch = 0;
  int64_t num_seqs_global = 0;
  int64_t num_tokens_global = 0;
  int64_t num_masked_global = 0;
  int64_t most_tokens_per_rank = 0;  // maximum over ranks; with the mean, shows the imbalance
};

/// The batches of one rank in one step.
struct StepBatch : StepCounts {
  std::vector<HostBatch> micro_batches;
};

}  // namespace bertha
