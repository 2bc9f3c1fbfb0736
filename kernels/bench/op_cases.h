#pragma once

#include <string>
#include <vector>

#include "kernels/base/bench/op_case.h"
#include "kernels/base/sequence_group.h"
#include "kernels/ops_fwd.h"

namespace bertha {

using OpCall = BenchCall<Ops>;
using OpCase = BenchCase<Ops>;

/// Sizes of a BERT, in elements.
struct BenchModel {
  int64_t hidden = 0;         // H
  int64_t heads = 0;          // A
  int64_t feed_forward = 0;   // F
  int64_t classes = 0;        // C
  int64_t vocab_rows = 0;     // V
  int64_t positions = 0;      // P
  int64_t segment_types = 0;  // G
  int64_t mask_width = 0;     // S: of attention masks
  int64_t parameters = 0;
  float hidden_dropout = 0;
  float attention_dropout = 0;
};

/// One micro-batch on the host. Arrays are padded to the device's row count with padding ids.
struct BenchBatch {
  std::string name;                                                        // "all 512"
  int64_t tokens = 0;                                                      // live
  int64_t masked = 0;                                                      // live
  std::vector<int32_t> word_ids, segment_ids, position_ids, rows_by_word;  // [T]
  std::vector<int32_t> cu_seqlens;                                         // [B + 1]
  std::vector<int32_t> masked_positions, masked_labels;                    // [M]
  std::vector<SequenceGroup> groups;

  int64_t rows() const { return std::ssize(word_ids); }                 // T
  int64_t masked_rows() const { return std::ssize(masked_positions); }  // M
  int64_t seqs() const { return std::ssize(cu_seqlens) - 1; }           // B
};

/// Every operation of a training step at the shapes of the first batch, and attention at the shapes
/// of all batches. The reference computes the first sequences, about a thousand tokens.
std::vector<OpCase> make_op_cases(const BenchModel& model, const std::vector<BenchBatch>& batches);

/// attention_fwd and attention_bwd of one batch.
std::vector<OpCase> attention_cases(const BenchModel& model, const BenchBatch& batch,
                                    float dropout);
/// The dropout site of attention in these cases.
inline constexpr uint32_t kBenchDropoutSite = 3;

}  // namespace bertha
