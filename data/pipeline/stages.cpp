#include "data/pipeline/stages.h"

#include <utility>

#include "data/pipeline/collate.h"
#include "data/pipeline/epoch_plan.h"
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
         " ranks; the published order wants one sequence per rank at least, so use a "
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

/// How many samples a rank takes from a shard at a time: the micro-batch where it is the same for
/// all, else the rank's part of the step.
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

}  // namespace

CancellableTransport::Entry::Entry(CancellableTransport& gate) : gate_(gate) {
  const std::lock_guard lock(gate_.mutex_);
  if (gate_.abandoned_) throw Abandoned{};
  gate_.inside_ = Inside::kYes;
}

CancellableTransport::Entry::~Entry() {
  const std::lock_guard lock(gate_.mutex_);
  gate_.inside_ = Inside::kNo;
}

std::vector<int64_t> CancellableTransport::all_gather(std::span<const int64_t> mine) {
  const Entry entry(*this);
  return transport_->all_gather(mine);
}

std::vector<int64_t> CancellableTransport::sum(std::span<const int64_t> mine) {
  const Entry entry(*this);
  return transport_->sum(mine);
}

std::vector<std::vector<std::byte>> CancellableTransport::all_gather_bytes(
    std::span<const std::byte> mine) {
  const Entry entry(*this);
  return transport_->all_gather_bytes(mine);
}

std::vector<std::vector<std::byte>> CancellableTransport::all_to_all_bytes(
    std::span<const std::vector<std::byte>> outgoing, std::span<const int64_t> incoming_bytes) {
  const Entry entry(*this);
  return transport_->all_to_all_bytes(outgoing, incoming_bytes);
}

CancellableTransport::Inside CancellableTransport::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  return size() > 1 ? inside_ : Inside::kNo;
}

StageState::StageState(const PipelineOptions& pipeline_options,
                       std::shared_ptr<Transport> transport_in, HostAllocator allocator)
    : options(pipeline_options),
      allocate(std::move(allocator)),
      assignment(make_shard_assignment(pipeline_options, *transport_in)),
      transport(std::move(transport_in)),
      batches(pipeline_options.prefetch_steps) {
  check_options(options, transport.size());
  table = inspect_shards(options.shards, options.shard_xxh3, transport);
  if (options.num_steps) end_step = options.first_step + *options.num_steps;
}

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

void exchange_steps(StageState& state) {
  try {
    StepAssembler assembler(state.assignment, state.options.first_step,
                            [&state] { return state.windows.pop(); });
    const ExchangeOptions exchange_options{
        .mode = state.options.exchange,
        .global_batch_seqs = state.options.global_batch_seqs,
        .micro_batches_per_step = state.options.micro_batches_per_step};
    for (int64_t step = state.options.first_step; step != state.end_step; ++step) {
      Contribution reason;
      std::optional<StepSamples> samples = assemble(state, assembler, reason);
      if (!samples) {
        decline_exchange(exchange_options, reason, state.transport);
        break;
      }
      state.exchanged.push(exchange(exchange_options, std::move(*samples), state.transport));
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
      StepBatch batch = std::move(step->batch);
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

}  // namespace bertha
