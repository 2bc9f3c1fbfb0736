#pragma once

#include "kernels/base/arguments.h"

namespace bertha {

/// y = dropout(LayerNorm(word[id] + position[p] + segment[s]) * gamma + beta), a row per token.
///
/// Letters   T = tokens (padding rows included), H = hidden, V = vocabulary, P = positions,
///           G = segment types.
/// Dtypes    io is one of f32, f16, bf16 for every io view; statistics f32.
/// Random    element index t * H + h.
/// Writes    overwrites mask, sum, y, mean, rstd.
/// Needs     ids inside their tables (checked where data enters, not here); H % 8 == 0.
/// Source    Devlin et al. 2018, section 3; dropout after LayerNorm as in the published code.
struct EmbeddingFwd {
  static constexpr const char* kName = "embedding_fwd";
  View word_ids;        // i32 [T]
  View position_ids;    // i32 [T]
  View segment_ids;     // i32 [T]
  View word_table;      // io  [V, H]
  View position_table;  // io  [P, H]
  View segment_table;   // io  [G, H]
  View gamma;           // io  [H]
  View beta;            // io  [H]
  View sum;             // io  [T, H]  out: word + position + segment, saved for backward
  View y;               // io  [T, H]  out
  View mean;            // f32 [T]     out
  View rstd;            // f32 [T]     out, 1 / standard deviation
  View mask;            // u8  [T, H / 8]  out: kept elements
  Dropout dropout;
  float epsilon = 1e-12f;
};

/// Gradients of EmbeddingFwd. The word table receives a row per token (ids repeat).
///
/// Exact     on CUDA the word table's gradient is summed in f32 in the order of rows_by_word when
///           it is given, else by atomic adds whose order differs from run to run.
/// Writes    table gradients always add (the word table is tied to the decoder, and tables are
///           larger than a batch); gamma and beta gradients as `accumulate` says. Rows of dy at
///           and beyond the live token count must be zero; they then add nothing.
struct EmbeddingBwd {
  static constexpr const char* kName = "embedding_bwd";
  View dy;               // io  [T, H]
  View word_ids;         // i32 [T]
  View position_ids;     // i32 [T]
  View segment_ids;      // i32 [T]
  View rows_by_word;     // i32 [T]     live rows by (word id, row), then -1; or no data
  View sum;              // io  [T, H]  from forward
  View mean;             // f32 [T]
  View rstd;             // f32 [T]
  View mask;             // u8  [T, H / 8]  from forward
  View gamma;            // io  [H]
  View dword_table;      // io  [V, H]  adds
  View dposition_table;  // io  [P, H]  adds
  View dsegment_table;   // io  [G, H]  adds
  View dgamma;           // io  [H]     out
  View dbeta;            // io  [H]     out
  Dropout dropout;
  Accumulate accumulate = Accumulate::kNo;
};

void validate(const EmbeddingFwd& args);
void validate(const EmbeddingBwd& args);

}  // namespace bertha
