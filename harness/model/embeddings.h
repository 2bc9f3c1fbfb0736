#pragma once

#include "harness/model/activations.h"
#include "harness/model/device_batch.h"
#include "kernels/base/arguments.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// Weights of the embedding, or their gradients.
struct EmbeddingParams {
  View word_table;      // io [V, H]
  View position_table;  // io [P, H]
  View segment_table;   // io [G, H]
  View ln_gamma;        // io [H]
  View ln_beta;         // io [H]
};

struct EmbeddingCall {
  const EmbeddingParams* weights = nullptr;
  const EmbeddingParams* gradients = nullptr;  // backward only
  const EmbeddingActivations* saved = nullptr;
  const DeviceBatch* batch = nullptr;
  Dropout dropout;
  float layer_norm_epsilon = 1e-12f;
};

void embeddings_forward(Ops& ops, const EmbeddingCall& call);
/// dy: io [T, H]. Adds to gradients: the word table already has the decoder's gradient.
void embeddings_backward(Ops& ops, const EmbeddingCall& call, const View& dy);

}  // namespace bertha
