#include "data/pipeline/pipeline.h"

#include <exception>
#include <thread>
#include <utility>

#include "data/pipeline/stages.h"

namespace bertha {
namespace {

class TrainingPipeline final : public Pipeline {
 public:
  TrainingPipeline(const PipelineOptions& options, std::shared_ptr<Transport> transport,
                   HostAllocator allocate)
      : state_(std::make_shared<StageState>(options, std::move(transport), std::move(allocate))) {
    try {
      reader_ = std::thread([state = state_] { read_windows(*state); });
      exchanger_ = std::thread([state = state_] { exchange_steps(*state); });
      collator_ = std::thread([state = state_] { collate_steps(*state); });
    } catch (...) {  // the system starts no more threads
      stop(state_->transport.abandon());
      throw;
    }
  }

  // In order, the exchange stage tells the other ranks that this one leaves. While an exception
  // unwinds there may be no rank left to tell: then no further call is started, and a thread that
  // is already inside one is left behind for whoever ends the process.
  ~TrainingPipeline() override {
    auto inside = CancellableTransport::Inside::kNo;
    if (std::uncaught_exceptions() > exceptions_at_start_) inside = state_->transport.abandon();
    stop(inside);
  }

  std::optional<StepBatch> next() override { return state_->batches.pop(); }
  int64_t samples_per_epoch() const override { return state_->table.total_seqs; }

 private:
  void stop(CancellableTransport::Inside inside) {
    state_->batches.close();
    state_->exchanged.close();
    state_->windows.close();
    if (inside == CancellableTransport::Inside::kYes) exchanger_.detach();
    for (std::thread* thread : {&reader_, &exchanger_, &collator_}) {
      if (thread->joinable()) thread->join();
    }
  }

  int exceptions_at_start_ = std::uncaught_exceptions();
  std::shared_ptr<StageState> state_;
  std::thread reader_;
  std::thread exchanger_;
  std::thread collator_;
};

}  // namespace

std::unique_ptr<Pipeline> make_training_pipeline(const PipelineOptions& options,
                                                 std::shared_ptr<Transport> transport,
                                                 HostAllocator allocate) {
  return std::make_unique<TrainingPipeline>(options, std::move(transport), std::move(allocate));
}

}  // namespace bertha
