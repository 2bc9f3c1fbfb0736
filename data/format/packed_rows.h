#pragma once

#include <cstdint>
#include <vector>

#include "data/format/global_heap.h"
#include "data/format/sample.h"
#include "data/format/sample_check.h"

namespace bertha {

/// The datasets of packed rows as they lie in the file.
struct PackedRows {
  RaggedRows<int16_t> tokens;
  RaggedRows<int8_t> segments;
  RaggedRows<int16_t> seq_tokens;
  RaggedRows<int16_t> positions;  // in the pack
  RaggedRows<int16_t> labels;
  RaggedRows<int16_t> seq_masked;
  RaggedRows<int8_t> next;
};

/// Takes the packs apart: adds their sequences to `samples`, with positions that count from their
/// own first token, and gives the first sequence of each row, and the end. `report` hears of a pack
/// whose lengths do not add up or exceed max_seq_tokens, which is left out when it returns.
std::vector<int64_t> unpack_rows(PackedRows rows, int64_t max_seq_tokens,
                                 const ViolationReport& report, SampleSet& samples);

}  // namespace bertha
