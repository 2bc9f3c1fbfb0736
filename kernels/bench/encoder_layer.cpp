#include "kernels/bench/encoder_layer.h"

#include <cmath>

#include "kernels/base/philox.h"
#include "kernels/cpu/cpu_backend.h"

namespace bertha {
namespace {

using Shape = BenchShape;

const View kNoView;
constexpr uint64_t kSeed = 1;
constexpr float kDropProbability = 0.1f;

}  // namespace

View EncoderLayer::zeros(DType dtype, std::initializer_list<int64_t> extents) {
  View view(nullptr, dtype, extents);
  memory_.push_back(device_->allocate(view.bytes()));
  view.data = memory_.back().data();
  return view;
}

View EncoderLayer::uniform(std::initializer_list<int64_t> extents, float largest) {
  const View view = zeros(DType::kF32, extents);
  float* const values = view.as<float>();
  for (int64_t i = 0; i < view.elements(); ++i) {
    const uint32_t word = random_word(kSeed, 0, 0, drawn_++);
    values[i] = largest * (static_cast<float>(word >> 8) / (1 << 23) - 1.0f);
  }
  return view;
}

View EncoderLayer::ids(int64_t count, int32_t limit) {
  const View view = zeros(DType::kI32, {count});
  int32_t* const values = view.as<int32_t>();
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = random_word(kSeed, 0, 0, drawn_++);
    values[i] = static_cast<int32_t>(word % static_cast<uint32_t>(limit));
  }
  return view;
}

Dropout EncoderLayer::dropout(uint32_t site) const {
  return {.random = random_, .probability = kDropProbability, .site = site};
}

EncoderLayer::Product EncoderLayer::product(int64_t inputs, int64_t outputs,
                                            Activation activation) {
  constexpr int64_t kRows = Shape::kTokens;
  return {.x = uniform({kRows, inputs}, 1),
          .weight = uniform({outputs, inputs}, 0.05f),
          .bias = uniform({outputs}, 0.05f),
          .y = zeros(DType::kF32, {kRows, outputs}),
          .pre_activation =
              activation == Activation::kGeluTanh ? zeros(DType::kF32, {kRows, outputs}) : kNoView,
          .dy = uniform({kRows, outputs}, 1e-3f),
          .dx = zeros(DType::kF32, {kRows, inputs}),
          .dweight = zeros(DType::kF32, {outputs, inputs}),
          .dbias = zeros(DType::kF32, {outputs}),
          .activation = activation};
}

EncoderLayer::Norm EncoderLayer::norm() {
  constexpr int64_t kRows = Shape::kTokens;
  constexpr int64_t kWidth = Shape::kHidden;
  return {.sum = zeros(DType::kF32, {kRows, kWidth}),
          .y = zeros(DType::kF32, {kRows, kWidth}),
          .mean = zeros(DType::kF32, {kRows}),
          .rstd = zeros(DType::kF32, {kRows}),
          .mask = zeros(DType::kU8, {kRows, kWidth / 8}),
          .gamma = uniform({kWidth}, 1),
          .beta = uniform({kWidth}, 1),
          .dgamma = zeros(DType::kF32, {kWidth}),
          .dbeta = zeros(DType::kF32, {kWidth})};
}

EncoderLayer::EncoderLayer(int threads)
    : device_(make_cpu_device(threads)),
      stream_(device_->make_stream()),
      ops_(make_cpu_ops(*device_, *stream_)) {
  constexpr int64_t kT = Shape::kTokens;
  constexpr int64_t kH = Shape::kHidden;
  random_ = zeros(DType::kU64, {2});
  hidden_ = uniform({kT, kH}, 1);
  branch_ = uniform({kT, kH}, 1);
  d_hidden_ = zeros(DType::kF32, {kT, kH});
  d_branch_ = zeros(DType::kF32, {kT, kH});

  products_ = {product(kH, 3 * kH, Activation::kNone), product(kH, kH, Activation::kNone),
               product(kH, Shape::kFeedForward, Activation::kGeluTanh),
               product(Shape::kFeedForward, kH, Activation::kNone)};
  norms_ = {norm(), norm()};
  branch_bias_ = uniform({kH}, 0.05f);
  d_branch_bias_ = zeros(DType::kF32, {kH});

  qkv_ = uniform({kT, 3, Shape::kHeads, Shape::kHeadSize}, 1);
  context_ = zeros(DType::kF32, {kT, Shape::kHeads, Shape::kHeadSize});
  lse_ = zeros(DType::kF32, {Shape::kHeads, kT});
  attention_mask_ = zeros(DType::kU8, {kT, Shape::kHeads, Shape::kSeqTokens / 8});
  d_context_ = uniform({kT, Shape::kHeads, Shape::kHeadSize}, 1e-3f);
  d_qkv_ = zeros(DType::kF32, {kT, 3, Shape::kHeads, Shape::kHeadSize});
  cu_seqlens_ = zeros(DType::kI32, {Shape::kSeqs + 1});
  for (int64_t b = 0; b <= Shape::kSeqs; ++b) {
    cu_seqlens_.as<int32_t>()[b] = static_cast<int32_t>(b * Shape::kSeqTokens);
  }
  groups_ = {{.num_seqs = Shape::kSeqs,
              .num_tokens = kT,
              .longest_seq_tokens = Shape::kSeqTokens,
              .bucket_tokens = 128}};

  word_ids_ = ids(kT, Shape::kVocab);
  position_ids_ = zeros(DType::kI32, {kT});
  for (int64_t t = 0; t < kT; ++t) {
    position_ids_.as<int32_t>()[t] = static_cast<int32_t>(t % Shape::kSeqTokens);
  }
  segment_ids_ = ids(kT, 2);
  word_table_ = uniform({Shape::kVocab, kH}, 0.05f);
  position_table_ = uniform({Shape::kSeqTokens, kH}, 0.05f);
  segment_table_ = uniform({2, kH}, 0.05f);
  d_word_table_ = zeros(DType::kF32, {Shape::kVocab, kH});
  d_position_table_ = zeros(DType::kF32, {Shape::kSeqTokens, kH});
  d_segment_table_ = zeros(DType::kF32, {2, kH});
  embedding_norm_ = norm();

  logits_ = zeros(DType::kF32, {Shape::kMasked, Shape::kVocab});
  fresh_logits_ = uniform({Shape::kMasked, Shape::kVocab}, 3);
  labels_ = ids(Shape::kMasked, Shape::kVocab);
  gradient_scale_ = uniform({1}, 1e-3f);
  loss_sum_ = zeros(DType::kF64, {1});
  correct_ = zeros(DType::kI64, {1});
  rows_counted_ = zeros(DType::kI64, {1});

  gradient_ = uniform({Shape::kParameters}, 1e-3f);
  weight_ = uniform({Shape::kParameters}, 0.05f);
  m_ = zeros(DType::kF32, {Shape::kParameters});
  v_ = zeros(DType::kF32, {Shape::kParameters});
  update_ = zeros(DType::kF32, {Shape::kParameters});
  model_weight_ = zeros(DType::kF32, {Shape::kParameters});
  norm_table_ = zeros(DType::kF64, {1, 2});
  state_ = zeros(DType::kU8, {static_cast<int64_t>(sizeof(LambState))});
  *static_cast<LambState*>(state_.data) = LambState{};
  sum_of_squares_ = zeros(DType::kF64, {1});
  segments_ = {{.end = Shape::kParameters}};

  // Backward reads what forward has saved.
  linear_forward();
  attention_forward();
  residual_ln_forward();
  embedding_forward();
}

void EncoderLayer::linear_forward() {
  for (const Product& p : products_) {
    ops_->run(LinearFwd{.x = p.x,
                        .weight = p.weight,
                        .bias = p.bias,
                        .y = p.y,
                        .pre_activation = p.pre_activation,
                        .activation = p.activation});
  }
}

void EncoderLayer::linear_backward() {
  for (const Product& p : products_) {
    ops_->run(LinearBwdWeight{.dy = p.dy, .x = p.x, .dweight = p.dweight, .dbias = p.dbias});
    // The product after the GELU takes the GELU's gradient along, as in the model.
    const bool after_gelu = p.x.extent(1) == Shape::kFeedForward;
    ops_->run(LinearBwdData{.dy = p.dy,
                            .weight = p.weight,
                            .saved = after_gelu ? products_[2].pre_activation : kNoView,
                            .dx = p.dx,
                            .activation = after_gelu ? Activation::kGeluTanh : Activation::kNone});
  }
}

void EncoderLayer::attention_forward() {
  ops_->run(AttentionFwd{.qkv = qkv_,
                         .cu_seqlens = cu_seqlens_,
                         .out = context_,
                         .lse = lse_,
                         .mask = attention_mask_,
                         .groups = groups_,
                         .dropout = dropout(1),
                         .max_seq_tokens = Shape::kSeqTokens,
                         .scale = 1.0f / std::sqrt(static_cast<float>(Shape::kHeadSize))});
}

void EncoderLayer::attention_backward() {
  ops_->run(AttentionBwd{.dout = d_context_,
                         .qkv = qkv_,
                         .out = context_,
                         .lse = lse_,
                         .mask = attention_mask_,
                         .cu_seqlens = cu_seqlens_,
                         .dqkv = d_qkv_,
                         .dbias = kNoView,
                         .groups = groups_,
                         .dropout = dropout(1),
                         .max_seq_tokens = Shape::kSeqTokens,
                         .scale = 1.0f / std::sqrt(static_cast<float>(Shape::kHeadSize))});
}

void EncoderLayer::residual_ln_forward() {
  for (const Norm& norm : norms_) {
    ops_->run(ResidualLnFwd{.x = branch_,
                            .bias = branch_bias_,
                            .residual = hidden_,
                            .gamma = norm.gamma,
                            .beta = norm.beta,
                            .sum = norm.sum,
                            .y = norm.y,
                            .mean = norm.mean,
                            .rstd = norm.rstd,
                            .mask = norm.mask,
                            .dropout = dropout(2)});
  }
}

void EncoderLayer::residual_ln_backward() {
  for (const Norm& norm : norms_) {
    ops_->run(ResidualLnBwd{.dy = hidden_,
                            .sum = norm.sum,
                            .mean = norm.mean,
                            .rstd = norm.rstd,
                            .mask = norm.mask,
                            .gamma = norm.gamma,
                            .dresidual = d_hidden_,
                            .dx = d_branch_,
                            .dgamma = norm.dgamma,
                            .dbeta = norm.dbeta,
                            .dbias = d_branch_bias_,
                            .dropout = dropout(2)});
  }
}

void EncoderLayer::embedding_forward() {
  ops_->run(EmbeddingFwd{.word_ids = word_ids_,
                         .position_ids = position_ids_,
                         .segment_ids = segment_ids_,
                         .word_table = word_table_,
                         .position_table = position_table_,
                         .segment_table = segment_table_,
                         .gamma = embedding_norm_.gamma,
                         .beta = embedding_norm_.beta,
                         .sum = embedding_norm_.sum,
                         .y = embedding_norm_.y,
                         .mean = embedding_norm_.mean,
                         .rstd = embedding_norm_.rstd,
                         .mask = embedding_norm_.mask,
                         .dropout = dropout(3)});
}

void EncoderLayer::embedding_backward() {
  ops_->run(EmbeddingBwd{.dy = hidden_,
                         .word_ids = word_ids_,
                         .position_ids = position_ids_,
                         .segment_ids = segment_ids_,
                         .rows_by_word = kNoView,
                         .sum = embedding_norm_.sum,
                         .mean = embedding_norm_.mean,
                         .rstd = embedding_norm_.rstd,
                         .mask = embedding_norm_.mask,
                         .gamma = embedding_norm_.gamma,
                         .dword_table = d_word_table_,
                         .dposition_table = d_position_table_,
                         .dsegment_table = d_segment_table_,
                         .dgamma = embedding_norm_.dgamma,
                         .dbeta = embedding_norm_.dbeta,
                         .dropout = dropout(3)});
}

void EncoderLayer::restore_logits() {
  device_->copy(*stream_, logits_.data, fresh_logits_.data, logits_.bytes());
}

void EncoderLayer::cross_entropy() {
  ops_->run(CrossEntropy{.logits = logits_,
                         .labels = labels_,
                         .gradient_scale = gradient_scale_,
                         .loss_sum = loss_sum_,
                         .correct = correct_,
                         .rows_counted = rows_counted_,
                         .classes = Shape::kVocab});
}

void EncoderLayer::lamb() {
  ops_->run(SumOfSquares{.values = gradient_, .result = sum_of_squares_});
  ops_->run(LambPrepare{.state = state_,
                        .gradient_sum_of_squares = sum_of_squares_,
                        .schedule = {.base = 1e-3, .total_steps = int64_t{1} << 40}});
  ops_->run(LambMoments{.gradient = gradient_,
                        .weight = weight_,
                        .m = m_,
                        .v = v_,
                        .update = update_,
                        .norms = norm_table_,
                        .state = state_,
                        .segments = segments_});
  ops_->run(LambApply{.weight = weight_,
                      .model_weight = model_weight_,
                      .update = update_,
                      .norms = norm_table_,
                      .state = state_,
                      .segments = segments_});
}

}  // namespace bertha
