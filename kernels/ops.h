#pragma once

#include "kernels/ops/attention.h"
#include "kernels/ops/batch_norm_relu.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gather_scatter.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/prelu.h"
#include "kernels/ops/reductions.h"
#include "kernels/ops/residual_ln.h"
#include "kernels/ops/softmax.h"

namespace bertha {

/// THE DOOR of the maths: every fused operation of a training step, in model order. Each method
/// checks its arguments once, then enqueues on the stream that the object was made for.
///
/// Threads   one thread at a time per object.
/// Errors    bertha::Error that names the field, the value found and the value wanted.
class Ops {
 public:
  virtual ~Ops() = default;

  void embedding_fwd(const EmbeddingFwd& args) {
    validate(args);
    do_run(args);
  }
  void embedding_bwd(const EmbeddingBwd& args) {
    validate(args);
    do_run(args);
  }
  void linear_fwd(const LinearFwd& args) {
    validate(args);
    do_run(args);
  }
  void linear_bwd_data(const LinearBwdData& args) {
    validate(args);
    do_run(args);
  }
  void linear_bwd_weight(const LinearBwdWeight& args) {
    validate(args);
    do_run(args);
  }
  void activation_bwd(const ActivationBwd& args) {
    validate(args);
    do_run(args);
  }
  void attention_fwd(const AttentionFwd& args) {
    validate(args);
    do_run(args);
  }
  void attention_bwd(const AttentionBwd& args) {
    validate(args);
    do_run(args);
  }
  void residual_ln_fwd(const ResidualLnFwd& args) {
    validate(args);
    do_run(args);
  }
  void residual_ln_bwd(const ResidualLnBwd& args) {
    validate(args);
    do_run(args);
  }
  void layer_norm_fwd(const LayerNormFwd& args) {
    validate(args);
    do_run(args);
  }
  void layer_norm_bwd(const LayerNormBwd& args) {
    validate(args);
    do_run(args);
  }
  void softmax_fwd(const SoftmaxFwd& args) {
    validate(args);
    do_run(args);
  }
  void softmax_bwd(const SoftmaxBwd& args) {
    validate(args);
    do_run(args);
  }
  void gather_rows(const GatherRows& args) {
    validate(args);
    do_run(args);
  }
  void scatter_add_rows(const ScatterAddRows& args) {
    validate(args);
    do_run(args);
  }
  void cross_entropy(const CrossEntropy& args) {
    validate(args);
    do_run(args);
  }
  void sum_of_squares(const SumOfSquares& args) {
    validate(args);
    do_run(args);
  }
  void clip_local(const ClipLocal& args) {
    validate(args);
    do_run(args);
  }
  void lamb_prepare(const LambPrepare& args) {
    validate(args);
    do_run(args);
  }
  void lamb_moments(const LambMoments& args) {
    validate(args);
    do_run(args);
  }
  void lamb_apply(const LambApply& args) {
    validate(args);
    do_run(args);
  }
  void cast(const Cast& args) {
    validate(args);
    do_run(args);
  }
  void fill(const Fill& args) {
    validate(args);
    do_run(args);
  }
  void scale(const Scale& args) {
    validate(args);
    do_run(args);
  }
  void gradient_scale(const GradientScale& args) {
    validate(args);
    do_run(args);
  }
  void prelu_fwd(const PreluFwd& args) {
    validate(args);
    do_run(args);
  }
  void prelu_bwd(const PreluBwd& args) {
    validate(args);
    do_run(args);
  }
  void batch_norm_relu_fwd(const BatchNormReluFwd& args) {
    validate(args);
    do_run(args);
  }
  void batch_norm_relu_bwd(const BatchNormReluBwd& args) {
    validate(args);
    do_run(args);
  }

 private:
  virtual void do_run(const EmbeddingFwd& args) = 0;
  virtual void do_run(const EmbeddingBwd& args) = 0;
  virtual void do_run(const LinearFwd& args) = 0;
  virtual void do_run(const LinearBwdData& args) = 0;
  virtual void do_run(const LinearBwdWeight& args) = 0;
  virtual void do_run(const ActivationBwd& args) = 0;
  virtual void do_run(const AttentionFwd& args) = 0;
  virtual void do_run(const AttentionBwd& args) = 0;
  virtual void do_run(const ResidualLnFwd& args) = 0;
  virtual void do_run(const ResidualLnBwd& args) = 0;
  virtual void do_run(const LayerNormFwd& args) = 0;
  virtual void do_run(const LayerNormBwd& args) = 0;
  virtual void do_run(const SoftmaxFwd& args) = 0;
  virtual void do_run(const SoftmaxBwd& args) = 0;
  virtual void do_run(const GatherRows& args) = 0;
  virtual void do_run(const ScatterAddRows& args) = 0;
  virtual void do_run(const CrossEntropy& args) = 0;
  virtual void do_run(const SumOfSquares& args) = 0;
  virtual void do_run(const ClipLocal& args) = 0;
  virtual void do_run(const LambPrepare& args) = 0;
  virtual void do_run(const LambMoments& args) = 0;
  virtual void do_run(const LambApply& args) = 0;
  virtual void do_run(const Cast& args) = 0;
  virtual void do_run(const Fill& args) = 0;
  virtual void do_run(const Scale& args) = 0;
  virtual void do_run(const GradientScale& args) = 0;
  virtual void do_run(const PreluFwd& args) = 0;
  virtual void do_run(const PreluBwd& args) = 0;
  virtual void do_run(const BatchNormReluFwd& args) = 0;
  virtual void do_run(const BatchNormReluBwd& args) = 0;
};

}  // namespace bertha
