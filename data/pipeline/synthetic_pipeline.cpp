#include "data/pipeline/synthetic_pipeline.h"

#include <exception>
#include <thread>
#include <utility>

#include "data/pipeline/bounded_queue.h"
#include "kernels/base/divide.h"

namespace bertha {
namespace {

class SyntheticPipeline final : public Pipeline {
 public:
  SyntheticPipeline(const SyntheticSteps& steps, const SyntheticRun& run, HostAllocator allocate)
      : samples_((run.first_step + run.num_steps) * steps.global_batch_seqs),
        batches_(run.prefetch_steps),
        maker_([this, steps, run, allocate = std::move(allocate)] { make(steps, run, allocate); }) {
  }

  ~SyntheticPipeline() override {
    batches_.close();
    maker_.join();
  }

  std::optional<StepBatch> next() override { return batches_.pop(); }
  int64_t samples_per_epoch() const override { return samples_; }

 private:
  void make(const SyntheticSteps& steps, const SyntheticRun& run, const HostAllocator& allocate) {
    try {
      const int64_t end = run.first_step + run.num_steps;
      for (int64_t step = run.first_step; step < end && batches_.wait_for_room(); ++step) {
        const bool repeats = run.distinct_lengths > 0;
        SyntheticPlan plan =
            plan_synthetic_step(steps, repeats ? step % run.distinct_lengths : step);
        plan.step = step;
        batches_.push(make_synthetic_batch(steps, plan, run.rank, allocate));
      }
      batches_.finish();
    } catch (...) {
      batches_.fail(std::current_exception());
    }
  }

  int64_t samples_;
  BoundedQueue<StepBatch> batches_;
  std::thread maker_;  // last: it uses the queue
};

class RepeatedBatch final : public Pipeline {
 public:
  RepeatedBatch(std::unique_ptr<Pipeline> inner, int64_t first_step, int64_t num_steps)
      : inner_(std::move(inner)), step_(first_step), end_step_(first_step + num_steps) {}

  std::optional<StepBatch> next() override {
    if (step_ >= end_step_) return std::nullopt;
    if (!batch_) batch_ = inner_->next();
    if (!batch_) return std::nullopt;
    StepBatch again = *batch_;  // views of the same memory
    again.step = step_++;
    return again;
  }

  int64_t samples_per_epoch() const override { return inner_->samples_per_epoch(); }

 private:
  std::unique_ptr<Pipeline> inner_;
  std::optional<StepBatch> batch_;
  int64_t step_;
  int64_t end_step_;
};

}  // namespace

std::unique_ptr<Pipeline> make_synthetic_pipeline(const SyntheticSteps& steps,
                                                  const SyntheticRun& run, HostAllocator allocate) {
  return std::make_unique<SyntheticPipeline>(steps, run, std::move(allocate));
}

std::vector<HostBatch> make_synthetic_eval_batches(SyntheticSteps steps, int64_t batch_seqs,
                                                   int rank, const HostAllocator& allocate) {
  const int64_t most_of_rank = ceil_div(steps.global_batch_seqs, steps.num_ranks);
  steps.micro_batches_per_step = ceil_div(most_of_rank, batch_seqs);
  steps.exchange = ExchangePadding::kOff;
  StepBatch set = make_synthetic_batch(steps, plan_synthetic_step(steps, 0), rank, allocate);
  std::erase_if(set.micro_batches, [](const HostBatch& batch) { return batch.num_seqs == 0; });
  return std::move(set.micro_batches);
}

std::unique_ptr<Pipeline> repeat_first_batch(std::unique_ptr<Pipeline> inner, int64_t first_step,
                                             int64_t num_steps) {
  return std::make_unique<RepeatedBatch>(std::move(inner), first_step, num_steps);
}

}  // namespace bertha
