#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "data/pipeline/batch.h"
#include "harness/model/arena.h"
#include "harness/model/batch_rows.h"
#include "harness/model/model_parts.h"

namespace bertha {

/// The micro-batch in device memory. Token arrays have the device's padded rows; rows beyond the
/// live tokens contain ids of earlier batches, which affect no loss and no gradient.
struct DeviceBatch {
  View word_ids;       // i32 [T]
  View segment_ids;    // i32 [T]
  View position_ids;   // i32 [T]
  View rows_by_word;   // i32 [T]      -1 beyond the live count; no data if the batch lacks it
  View cu_seqlens;     // i32 [B + 1]
  View needed_rows;    // i32 [K]      masked tokens [M], then first tokens [B]; padding -1
  View masked_labels;  // i32 [M]      -1 beyond the live count
  View next_sentence_labels;  // i32 [B]
  std::span<const SequenceGroup> groups;
  View live_tokens;  // i32 [1]      rows beyond are padding
};

/// Copies batches to the device on a separate stream: a micro-batch arrives in one set of buffers
/// while the previous one is computed from another, whose addresses graphs can record.
class BatchUploader {
 public:
  BatchUploader(Arena& arena, const BatchRows& capacity);

  /// Enqueues one copy per field and keeps the host memory until the copies are done. Work enqueued
  /// on parts.stream afterwards reads the batch, until the next upload. Equal sizes give equal
  /// views. `rows`: padded rows of the batch. Error(kInternal) if they exceed the capacity.
  DeviceBatch upload(const HostBatch& batch, const BatchRows& rows, const ModelParts& parts);

 private:
  struct InFlight {
    std::shared_ptr<void> block;
    std::unique_ptr<Event> copied;
  };

  View arriving_;  // i32 [elements of all buffers], laid out as in_use_
  View in_use_;
  DeviceBatch buffers_;  // views of in_use_ with the capacity's rows
  std::vector<SequenceGroup> groups_;
  std::unique_ptr<Stream> copies_;
  std::unique_ptr<Event> moved_;  // copy out of arriving_ done; null before the first
  std::deque<InFlight> in_flight_;
};

}  // namespace bertha
