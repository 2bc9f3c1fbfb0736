#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "data/pipeline/batch.h"
#include "harness/model/activations.h"
#include "harness/model/batch_rows.h"
#include "harness/model/dims.h"
#include "harness/model/model_parts.h"
#include "harness/model/params.h"
#include "kernels/ops/linear.h"

namespace bertha {

/// How the loss mean of a micro-batch is formed.
struct LossMean {
  // Denominators for this micro-batch: the step's global counts, or this micro-batch's own.
  int64_t masked = 1;
  int64_t seqs = 1;
  double numerator = 1.0;   // 1, or 1 / (ranks * micro-batches) for the mean of local means
  double nsp_weight = 1.0;  // weight of the next-sentence loss in the sum of both
};

/// Sums over micro-batches since reset_stats(), in one block of device memory, read by one copy.
struct LossStats {
  double mlm_loss_sum = 0;  // natural log, over masked tokens
  double nsp_loss_sum = 0;  // over sequences
  int64_t mlm_correct = 0;
  int64_t mlm_count = 0;
  int64_t nsp_correct = 0;
  int64_t nsp_count = 0;
  int64_t fp8_saturated = 0;  // saturated elements of fp8 GEMM matrices in training
};

/// Called before work is enqueued that reads weights [0, end_element) of the flat buffer.
using WeightsNeeded = std::function<void(int64_t end_element)>;
/// Called after all work that adds to gradients from `from_element` to the end of the flat buffer
/// has been enqueued.
using GradientsFinal = std::function<void(int64_t from_element)>;

/// BERT for pre-training on un-padded batches: post-LN encoder, pooler, masked-token decoder tied
/// to the word table, next-sentence head. Weights and gradients belong to the caller.
///
/// Calls per step: begin_step, then for each micro-batch upload, forward, backward.
/// Random    dropout is a pure function of (seed, micro-step counter, site, element).
/// Threads   one.
class Bert {
 public:
  Bert(const ModelConfig& config, const ParamTable& table, const BatchRows& capacity,
       ModelParts parts);
  ~Bert();

  /// weights, gradients: io [table.elements or more], flat, in device memory. Every forward calls
  /// `weights_needed` part by part, in the order of the flat buffer. The gradients are
  /// not touched before the first begin_step. With graphs, parts in which no bucket begins are
  /// merged with the previous part. bucket_begins: first elements of the buckets that ranks sum and
  /// gather.
  void bind(const View& weights, const View& gradients, WeightsNeeded weights_needed = {},
            const std::vector<int64_t>& bucket_begins = {});

  /// Sets the dropout stream of the next micro-batches: the rank's seed, the step's counter.
  void set_random(uint64_t seed, uint64_t micro_step);
  /// Sets which rows the last layer computes, from the next upload on.
  void set_last_layer(LastLayer last_layer);
  /// Begins a new sum of gradients: the next backward overwrites it, later ones add to it. A step
  /// without a backward keeps the old gradients.
  void begin_step();
  /// Zeroes the loss statistics, to which every forward adds.
  void reset_stats();
  /// Enqueues the copies of a batch to the device. Error(kInternal) if it exceeds the capacity.
  void upload(const HostBatch& batch);

  /// Forward in training mode (dropout on), losses, and logits' gradients in place.
  /// `optimizer_state`: u8 [sizeof(LambState)] for the loss scale; no data = 1.
  void forward_train(const LossMean& mean, const View& optimizer_state);
  /// Adds the gradients of the last forward_train to the gradients of the step. Calls
  /// `gradients_final` part by part from the heads to the embeddings, with 0 at the end; see bind()
  /// for the parts.
  void backward(const GradientsFinal& gradients_final = {});
  /// Forward without dropout or gradients; adds to the statistics.
  void forward_eval();

  /// Logits of the last forward_eval(), on the device: io [M, V], valid until the next upload. Rows
  /// beyond the masked tokens are padding; V is padded.
  View mlm_logits() const;

  /// named_activations() of the last forward_train(), until the next upload.
  std::vector<NamedView> activations() const;

  /// Device view of LossStats, u8 [sizeof(LossStats)].
  View stats() const;
  /// Number of pieces of passes that are launched as graphs so far.
  size_t recorded_graphs() const;

  // Scales of fp8 GEMMs, see Fp8State. Without fp8 there are none, and nothing happens.

  /// Whether GEMMs multiply io until update_scales() because there are no scales.
  bool needs_scales() const;
  /// The maxima of the step, i32 [X]; reduce them over all ranks before update_scales().
  View fp8_maxima() const;
  /// Computes the scales of the next step. `sum_of_squares`: f64 [1] of the step's gradient,
  /// optional; becomes NaN if a maximum is not finite.
  void update_scales(const View& sum_of_squares);
  /// Exponent e of each scale 2^e; empty while there are none. Blocks: the host.
  std::vector<int> scale_exponents() const;
  /// Sets the scales of a checkpoint, or none. Error(kData) if their number is wrong. Checkpoints
  /// of older versions have none for the decoder, which then multiplies io until update_scales().
  void set_scale_exponents(std::vector<int> exponents);
  /// Call after a change of weights: the next forward recomputes their fp8 copies.
  void weights_changed();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The activation for model.gelu.
Activation gelu_of(const ModelConfig& config);

/// Device memory in bytes that a model of this capacity allocates, for `bertha plan`.
int64_t activation_bytes_for(const ModelConfig& config, const BatchRows& capacity, DType io,
                             bool fp8 = false);

}  // namespace bertha
