#pragma once

#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace bertha {

/// What the calls of one operation took together. The products of linear layers count apart by
/// shape: "linear_fwd 24576x3072x1024" is [T x N x K].
struct OperationTime {
  std::string name;
  int64_t calls = 0;
  double ms = 0;     // between events before and after each call, on the stream
  double flops = 0;  // of products, 2 per multiply-add; 0 where the shapes do not tell
  double bytes = 0;  // tensors read and written, each once per reading and writing; 0 for products
};

/// The operations of another Ops, each between two events on its stream. The stream's order and
/// its results stay as they are; the events keep small operations a little apart.
class TimedOps final : public Ops {
 public:
  /// `inner` is bound to `stream` of `device`, which both outlive this.
  TimedOps(std::unique_ptr<Ops> inner, Device& device, Stream& stream)
      : inner_(std::move(inner)), device_(device), stream_(stream) {}

  /// Sums since the last call over the operations that have finished, by falling time; those in
  /// flight count next time.
  std::vector<OperationTime> take_totals();

 private:
  struct Work {
    std::string name;
    double flops = 0;
    double bytes = 0;
  };
  struct Span {
    Work work;
    std::unique_ptr<Event> begin;
    std::unique_ptr<Event> end;
  };

  template <class Call>
  void time(Work work, const Call& call) {
    std::unique_ptr<Event> begin = record();
    call();
    spans_.push_back({.work = std::move(work), .begin = std::move(begin), .end = record()});
    collect();
  }
  std::unique_ptr<Event> record();
  void collect();

  void do_run(const EmbeddingFwd& args) override;
  void do_run(const EmbeddingBwd& args) override;
  void do_run(const LinearFwd& args) override;
  void do_run(const LinearBwdData& args) override;
  void do_run(const LinearBwdWeight& args) override;
  void do_run(const ActivationBwd& args) override;
  void do_run(const AttentionFwd& args) override;
  void do_run(const AttentionBwd& args) override;
  void do_run(const ResidualLnFwd& args) override;
  void do_run(const ResidualLnBwd& args) override;
  void do_run(const LayerNormFwd& args) override;
  void do_run(const LayerNormBwd& args) override;
  void do_run(const SoftmaxFwd& args) override;
  void do_run(const SoftmaxBwd& args) override;
  void do_run(const GatherRows& args) override;
  void do_run(const ScatterAddRows& args) override;
  void do_run(const CrossEntropy& args) override;
  void do_run(const SumOfSquares& args) override;
  void do_run(const ClipLocal& args) override;
  void do_run(const LambPrepare& args) override;
  void do_run(const LambMoments& args) override;
  void do_run(const LambApply& args) override;
  void do_run(const Cast& args) override;
  void do_run(const Fill& args) override;
  void do_run(const Scale& args) override;
  void do_run(const GradientScale& args) override;
  void do_run(const PreluFwd& args) override;
  void do_run(const PreluBwd& args) override;
  void do_run(const BatchNormReluFwd& args) override;
  void do_run(const BatchNormReluBwd& args) override;

  std::unique_ptr<Ops> inner_;
  Device& device_;
  Stream& stream_;
  std::deque<Span> spans_;                     // in stream order
  std::vector<std::unique_ptr<Event>> spare_;  // to be used again
  std::map<std::string, OperationTime> totals_;
};

}  // namespace bertha
