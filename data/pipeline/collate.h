#pragma once

#include <cstdint>
#include <vector>

#include "data/format/sample.h"
#include "data/pipeline/batch.h"

namespace bertha {

/// Un-pads samples into one micro-batch: flat tokens, offsets, positions, masked rows and labels.
/// The sequences are put in order of falling length first (stable), so that the group table has
/// one entry per length bucket (multiples of `bucket_tokens`). One allocation; every array starts
/// on a 64-byte border of it. No samples give an empty batch whose cu_seqlens is {0}.
///
/// Writes    word_ids[T] token, segment_ids[T], position_ids[T] 0.. in each sequence,
///           cu_seqlens[B + 1], masked_positions[M] = cu_seqlens[sequence] + position in it,
///           masked_labels[M], next_sentence_labels[B],
///           rows_by_word[T] rows in ascending order of (word id, row).
HostBatch collate(std::vector<SampleView> samples, int64_t bucket_tokens,
                  const HostAllocator& allocate);

}  // namespace bertha
