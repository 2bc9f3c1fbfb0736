#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace bertha {

/// What the benchmarks work on: the shapes of a small BERT on 64 full sequences.
struct BenchShape {
  static constexpr int64_t kSeqs = 64;                    // B
  static constexpr int64_t kSeqTokens = 64;               // S
  static constexpr int64_t kTokens = kSeqs * kSeqTokens;  // T
  static constexpr int64_t kHidden = 192;                 // H
  static constexpr int64_t kHeads = 3;                    // A
  static constexpr int64_t kHeadSize = kHidden / kHeads;  // D
  static constexpr int64_t kFeedForward = 768;            // F
  static constexpr int64_t kVocab = 4096;                 // V
  static constexpr int64_t kMasked = kSeqs * 10;          // M
  static constexpr int64_t kParameters =                  // P: those of one layer
      4 * kHidden * kHidden + 2 * kHidden * kFeedForward + 9 * kHidden + kFeedForward;
};

/// Products, attention and element-wise work of one encoder layer, embedding, loss and optimizer,
/// each family forward and backward, through the door `Ops` on memory filled with random numbers.
///
/// Random    The same numbers in every process; dropout 0.1 as in training.
/// Errors    Error(kMemory).
class EncoderLayer {
 public:
  explicit EncoderLayer(int threads);

  void linear_forward();
  void linear_backward();
  void attention_forward();
  void attention_backward();
  void residual_ln_forward();
  void residual_ln_backward();
  void embedding_forward();
  void embedding_backward();
  /// Loss and gradient in one pass, over the logits that restore_logits() has put back.
  void cross_entropy();
  void restore_logits();
  /// Norm of the gradient, step scalars, moments, update.
  void lamb();

 private:
  View zeros(DType dtype, std::initializer_list<int64_t> extents);
  View uniform(std::initializer_list<int64_t> extents, float largest);
  View ids(int64_t count, int32_t limit);
  Dropout dropout(uint32_t site) const;

  struct Product {  // y = x * w^T, and its gradients
    View x, weight, bias, y, pre_activation;
    View dy, dx, dweight, dbias;
    Activation activation = Activation::kNone;
  };
  Product product(int64_t inputs, int64_t outputs, Activation activation);

  struct Norm {  // what a LayerNorm saves and gets
    View sum, y, mean, rstd, mask, gamma, beta, dgamma, dbeta;
  };
  Norm norm();

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  std::vector<Buffer> memory_;
  uint64_t drawn_ = 0;  // random numbers so far

  View random_;  // u64 [2]  of dropout
  View hidden_;  // f32 [T, H]  what enters, and stands in for gradients that come back
  View branch_;  // f32 [T, H]
  View d_hidden_, d_branch_;

  std::vector<Product> products_;  // query-key-value, projection, feed-forward in and out
  std::vector<Norm> norms_;        // after attention, after feed-forward
  View branch_bias_, d_branch_bias_;

  View qkv_, context_, lse_, attention_mask_, d_context_, d_qkv_, cu_seqlens_;
  std::vector<SequenceGroup> groups_;

  View word_ids_, position_ids_, segment_ids_;
  View word_table_, position_table_, segment_table_;
  View d_word_table_, d_position_table_, d_segment_table_;
  Norm embedding_norm_;

  View logits_, fresh_logits_, labels_, gradient_scale_, loss_sum_, correct_, rows_counted_;

  View gradient_, weight_, m_, v_, update_, model_weight_, norm_table_, state_, sum_of_squares_;
  std::vector<LambSegment> segments_;
};

}  // namespace bertha
