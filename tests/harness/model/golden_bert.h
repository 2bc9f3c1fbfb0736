#pragma once

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/harness/model/tiny_model.h"
#include "tests/support/source_dir.h"

namespace bertha::testing {

using Json = nlohmann::json;

inline Json read_golden(const std::string& name) {
  std::ifstream file(std::string(kSourceDir) + "/tests/golden/" + name);
  return Json::parse(file);
}

/// A small BertForPreTraining with weights, a batch and its results.
inline Json read_golden_bert() { return read_golden("bert_tiny.json"); }

/// Its shape, without dropout.
inline ModelConfig golden_config(const Json& golden) {
  const Json& shape = golden["shape"];
  return {.layers = shape["num_hidden_layers"],
          .hidden = shape["hidden_size"],
          .heads = shape["num_attention_heads"],
          .feed_forward = shape["intermediate_size"],
          .vocab_size = shape["vocab_size"],
          .max_positions = shape["max_position_embeddings"],
          .hidden_dropout = 0,
          .attention_dropout = 0};
}

/// Its sequences, un-padded.
inline HostBatch golden_batch(const Json& golden) {
  std::vector<TinySequence> sequences;
  for (const Json& s : golden["sequences"]) {
    sequences.push_back({.word_ids = s["word_ids"],
                         .segment_ids = s["segment_ids"],
                         .masked_positions = s["masked_positions"],
                         .masked_labels = s["masked_labels"],
                         .next_sentence_label = s["next_sentence_label"]});
  }
  return make_batch(sequences);
}

}  // namespace bertha::testing
