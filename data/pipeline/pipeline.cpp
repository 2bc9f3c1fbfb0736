#include "data/pipeline/pipeline.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "data/pipeline/bounded_queue.h"
#include "data/pipeline/collate.h"
#include "data/pipeline/epoch_plan.h"
#include "data/pipeline/exchange.h"
#include "data/pipeline/reader.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

void check_options(const PipelineOptions& options, int num_ranks) {
  BERTHA_CHECK(options.global_batch_seqs >= 1 && options.global_batch_seqs < (int64_t{1} << 31),
               "global_batch_seqs ", options.global_batch_seqs);
  BERTHA_CHECK(options.micro_batches_per_step >= 1, "micro_batches_per_step ",
               options.micro_batches_per_step);
  const int64_t longest = options.limits.max_seq_tokens;
  BERTHA_CHECK(longest >= 1 && longest < (1 << 16), "max_seq_tokens ", longest);
  BERTHA_CHECK(options.first_step >= 0, "first_step ", options.first_step);
  BERTHA_CHECK(!options.num_steps || *options.num_steps >= 0, "num_steps ", *options.num_steps);
  if (options.order == SampleOrder::kPublished && options.global_batch_seqs < num_ranks) {
    fail(ExitCode::kUsage, "a global batch of ", options.global_batch_seqs, " sequences on ",
         num_ranks,
         " ranks, but the published order needs at least one sequence per rank; use a "
         "larger batch, fewer ranks or the windowed order");
  }
}

ShardAssignment make_shard_assignment(const PipelineOptions& options, const Transport& transport) {
  ShardAssignment::Rule rule = ShardAssignment::Rule::kByShard;
  if (options.exchange == ExchangePadding::kOff) rule = ShardAssignment::Rule::kBySlice;
  if (options.order == SampleOrder::kPublished) rule = ShardAssignment::Rule::kOwnOrder;
  return {.rule = rule,
          .global_batch_seqs = options.global_batch_seqs,
          .rank = transport.rank(),
          .num_ranks = transport.size()};
}

/// State shared by the three threads of a pipeline: the queues between them, and their inputs. Each
/// thread owns a shared_ptr, because one that is stuck in the transport may outlive the Pipeline.
struct StageState {
  StageState(const PipelineOptions& pipeline_options, std::shared_ptr<Transport> transport_in,
             HostAllocator allocator)
      : options(pipeline_options),
        allocate(std::move(allocator)),
        assignment(make_shard_assignment(pipeline_options, *transport_in)),
        transport(std::move(transport_in)),
        batches(pipeline_options.prefetch_steps) {
    check_options(options, transport.size());
    table = inspect_shards(options.shards, options.shard_xxh3, transport);
    if (options.num_steps) end_step = options.first_step + *options.num_steps;
  }

  PipelineOptions options;
  HostAllocator allocate;
  ShardTable table;
  ShardAssignment assignment;
  std::optional<int64_t> end_step;
  CancellableTransport transport;
  BoundedQueue<LoadedWindow> windows{1};
  BoundedQueue<ExchangedStep> exchanged{1};
  BoundedQueue<StepBatch> batches;
};

/// Number of samples that a rank takes from a shard at a time: the micro-batch if all are equal,
/// else the rank's part of the step.
int64_t batch_seqs_of_rank(const PipelineOptions& options, int64_t step_seqs) {
  return step_seqs % options.micro_batches_per_step == 0
             ? step_seqs / options.micro_batches_per_step
             : step_seqs;
}

std::unique_ptr<SampleWindows> make_order(const StageState& state) {
  const PipelineOptions& options = state.options;
  if (options.order == SampleOrder::kWindowed) {
    return make_windowed_order({.seed = options.seed,
                                .shard_seqs = state.table.num_seqs,
                                .window_shards = options.window_shards,
                                .first_position = options.first_step * options.global_batch_seqs});
  }
  const Slice slice =
      even_slice(options.global_batch_seqs, state.assignment.rank, state.assignment.num_ranks);
  const int64_t step_seqs = slice.end - slice.begin;
  return make_published_order({.seed = options.seed,
                               .shard_seqs = state.table.num_seqs,
                               .rank = state.assignment.rank,
                               .num_ranks = state.assignment.num_ranks,
                               .batch_seqs = batch_seqs_of_rank(options, step_seqs),
                               .first_position = options.first_step * step_seqs});
}

// --- the three threads: each ends when its queue is closed, and hands errors to the next ---

void read_windows(StageState& state) {
  try {
    WindowReader reader(state.table, state.options.limits, state.assignment, make_order(state));
    const auto stop = [&state] { return state.windows.closed(); };
    while (state.windows.wait_for_room()) {
      std::optional<LoadedWindow> window = reader.next(stop);
      if (!window) break;
      state.windows.push(std::move(*window));
    }
  } catch (...) {
    state.windows.fail(std::current_exception());
  }
}

/// The samples of the next step, or why there are none.
std::optional<StepSamples> assemble(StageState& state, StepAssembler& assembler,
                                    Contribution& reason) {
  try {
    std::optional<StepSamples> samples;
    if (state.exchanged.wait_for_room()) samples = assembler.next();
    if (!samples) reason.kind = Contribution::Kind::kLeaving;
    return samples;
  } catch (...) {
    reason.kind = Contribution::Kind::kFailure;
    reason.failure = std::current_exception();
    return std::nullopt;
  }
}

std::optional<MaskDrawer> make_mask_drawer(const PipelineOptions& options) {
  if (!options.masks) return std::nullopt;
  const int64_t most = num_masks(options.limits.max_seq_tokens, options.masks->fraction);
  return MaskDrawer(*options.masks, options.seed, most);
}

void exchange_steps(StageState& state) {
  try {
    StepAssembler assembler(
        state.assignment, state.options.first_step, [&state] { return state.windows.pop(); },
        make_mask_drawer(state.options));
    for (int64_t step = state.options.first_step; step != state.end_step; ++step) {
      Contribution reason;
      std::optional<StepSamples> samples = assemble(state, assembler, reason);
      if (!samples) {
        decline_exchange(state.options, reason, state.transport);
        break;
      }
      state.exchanged.push(exchange(state.options, std::move(*samples), state.transport));
    }
    state.exchanged.finish();
  } catch (const CancellableTransport::Abandoned&) {
    state.exchanged.finish();
  } catch (...) {
    state.exchanged.fail(std::current_exception());
  }
  state.windows.close();
}

void collate_steps(StageState& state) {
  try {
    while (state.batches.wait_for_room()) {
      std::optional<ExchangedStep> step = state.exchanged.pop();
      if (!step) break;
      StepBatch batch{step->counts, {}};
      for (std::vector<SampleView>& samples : step->micro_batches) {
        batch.micro_batches.push_back(
            collate(std::move(samples), state.options.group_bucket_tokens, state.allocate));
      }
      state.batches.push(std::move(batch));
    }
    state.batches.finish();
  } catch (...) {
    state.exchanged.reject(std::current_exception());
    state.batches.fail(std::current_exception());
  }
}

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

  // On an orderly end, the exchange stage notifies the other ranks. While an exception unwinds, the
  // others may have ended: no further call is started, and a thread that is already in a call stays
  // there until the process ends.
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

// --- evaluation ---

Slice part_of_rank(int64_t total, int rank, int num_ranks) {
  const int64_t chunk = total / num_ranks;
  const int64_t remainder = total % num_ranks;
  const int64_t begin = rank * chunk + std::min<int64_t>(rank, remainder);
  return {.begin = begin, .end = begin + chunk + (rank < remainder ? 1 : 0)};
}

SampleSet read_range(const ShardTable& table, const Slice& range, const SampleLimits& limits) {
  SampleSet samples;
  for (size_t s = 0; s < table.paths.size(); ++s) {
    const int64_t first = table.first_ids[s];
    const int64_t begin = std::max(range.begin, first);
    const int64_t end = std::min(range.end, first + table.num_seqs[s]);
    if (begin >= end) continue;
    const SampleSet shard = read_shard(table, static_cast<int64_t>(s), limits);
    for (int64_t id = begin; id < end; ++id) samples.append(shard[id - first]);
  }
  return samples;
}

}  // namespace

std::unique_ptr<Pipeline> make_training_pipeline(const PipelineOptions& options,
                                                 std::shared_ptr<Transport> transport,
                                                 HostAllocator allocate) {
  return std::make_unique<TrainingPipeline>(options, std::move(transport), std::move(allocate));
}

std::vector<HostBatch> load_eval_batches(const EvalOptions& options, int rank, int num_ranks,
                                         const HostAllocator& allocate) {
  BERTHA_CHECK(options.batch_seqs >= 1, "batch_seqs ", options.batch_seqs);
  SoloTransport alone;
  const ShardTable table = inspect_shards(options.shards, options.shard_xxh3, alone);
  const int64_t total =
      options.max_samples > 0 ? std::min(options.max_samples, table.total_seqs) : table.total_seqs;
  const SampleSet samples = read_range(table, part_of_rank(total, rank, num_ranks), options.limits);
  std::vector<HostBatch> batches;
  for (int64_t first = 0; first < samples.size(); first += options.batch_seqs) {
    std::vector<SampleView> views;
    for (int64_t i = first; i < std::min(first + options.batch_seqs, samples.size()); ++i) {
      views.push_back(samples[i]);
    }
    batches.push_back(collate(std::move(views), options.group_bucket_tokens, allocate));
  }
  return batches;
}

}  // namespace bertha
