#pragma once

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "data/pipeline/batch.h"
#include "harness/model/arena.h"
#include "harness/model/batch_rows.h"
#include "harness/model/model_parts.h"

namespace bertha {

/// The micro-batch in device memory. Token arrays are rounded up to the device's multiple; the rows
/// beyond the live tokens hold ids of earlier batches, whose results no loss and no gradient sees.
struct DeviceBatch {
  View word_ids;          // i32 [T]
  View segment_ids;       // i32 [T]
  View position_ids;      // i32 [T]
  View rows_by_word;      // i32 [T]      -1 beyond the live count; no data if the batch has none
  View cu_seqlens;        // i32 [B + 1]
  View first_tokens;      // i32 [B]      row of each sequence's first token
  View masked_positions;  // i32 [M]      -1 beyond the live count
  View masked_labels;     // i32 [M]      -1 beyond the live count
  View next_sentence_labels;  // i32 [B]
  std::span<const SequenceGroup> groups;
  int64_t live_tokens = 0;  // rows beyond are padding
};

/// Copies batches to the device on a stream of its own, into two sets of buffers in turn: the copy
/// of a micro-batch runs while the one before it is computed.
class BatchUploader {
 public:
  BatchUploader(Arena& arena, const BatchRows& capacity);

  /// Enqueues one copy per field and keeps the host memory until the copies are done. Work enqueued
  /// on parts.stream afterwards sees the batch; the views stay valid until the second upload from
  /// now. Error(kInternal) when the batch exceeds the capacity.
  DeviceBatch upload(const HostBatch& batch, const ModelParts& parts);

 private:
  static constexpr size_t kSlots = 2;

  struct Slot {
    DeviceBatch buffers;
    std::vector<SequenceGroup> groups;
    std::unique_ptr<Event> consumed;  // the last work that reads the buffers; null before the first
  };
  struct InFlight {
    std::shared_ptr<void> block;
    std::unique_ptr<Event> copied;
  };

  std::array<Slot, kSlots> slots_;
  size_t next_slot_ = 0;
  std::unique_ptr<Stream> copies_;
  std::deque<InFlight> in_flight_;
};

int64_t round_up(int64_t value, int64_t multiple);

}  // namespace bertha
