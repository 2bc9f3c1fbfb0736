#include "data/pipeline/bench_loader.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>

#include "data/format/shard_writer.h"
#include "data/pipeline/agreement.h"
#include "data/pipeline/synthetic_steps.h"
#include "kernels/base/error.h"
#include "kernels/base/seconds_since.h"

namespace bertha {
namespace {

// Share of sequences of at most 1/8, 2/8 .. 8/8 of the longest length; 0.7651 are shorter than
// the longest, and the rest have exactly that length.
constexpr std::array<double, 8> kShareUpTo{0.1759, 0.3694, 0.4834, 0.5663,
                                           0.6308, 0.6836, 0.7280, 0.7657};
constexpr int64_t kShortestTokens = 8;

int64_t draw_length(Draws& draws, int64_t longest) {
  const double share = draws.share();
  double below = 0.0;
  for (size_t i = 0; i < kShareUpTo.size(); ++i) {
    if (share < kShareUpTo[i]) {
      const double inside = (share - below) / (kShareUpTo[i] - below);
      const double length =
          (static_cast<double>(i) + inside) / kShareUpTo.size() * static_cast<double>(longest);
      return std::clamp(static_cast<int64_t>(length), std::min(kShortestTokens, longest), longest);
    }
    below = kShareUpTo[i];
  }
  return longest;
}

/// Runs `work` on all ranks; an error on any of them is thrown by all.
template <class Work>
void do_together(Transport& transport, const Work& work) {
  gather_values(transport, contribution_of([&] {
                  work();
                  return std::vector<int64_t>();
                }));
}

/// A folder that goes away with its content.
class OwnedFolder {
 public:
  OwnedFolder() = default;
  ~OwnedFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  OwnedFolder(const OwnedFolder&) = delete;
  OwnedFolder& operator=(const OwnedFolder&) = delete;

  void make(const std::string& parent) {
    std::string name = parent + "/bertha_bench_loader_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      fail(ExitCode::kData, parent, ": cannot create a folder here: ", std::strerror(errno),
           "; give a scratch folder with free space");
    }
    path_ = name;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Synthetic shards in a folder of rank 0; all ranks write some.
std::vector<std::string> make_shards(const LoaderBenchOptions& options, OwnedFolder& folder,
                                     Transport& transport) {
  do_together(transport, [&] {
    if (transport.rank() == 0) folder.make(options.scratch_folder);
  });
  const auto paths = transport.all_gather_bytes(std::as_bytes(std::span(folder.path())));
  const std::string path(reinterpret_cast<const char*>(paths[0].data()), paths[0].size());
  std::vector<std::string> shards;
  for (int64_t s = 0; s < options.synthetic_shards; ++s) {
    shards.push_back(concat(path, "/part_", s, "_of_", options.synthetic_shards, ".hdf5"));
  }
  do_together(transport, [&] {
    for (int64_t s = transport.rank(); s < options.synthetic_shards; s += transport.size()) {
      write_synthetic_shard(shards[static_cast<size_t>(s)], options.synthetic_shard_seqs,
                            options.pipeline.seed + static_cast<uint64_t>(s),
                            options.pipeline.limits);
    }
  });
  return shards;
}

/// A rank's measurements. Times are whole microseconds, which transports can send.
struct RankRun {
  int64_t elapsed_us = 0;
  int64_t waited_us = 0;
  double most_over_mean_tokens = 0.0;  // sum over steps
  int64_t seqs = 0;                    // on all ranks
  int64_t tokens = 0;                  // on all ranks
};

int64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::llround(1e6 * seconds_since(start));
}

/// The first batch is not timed: it waits for the first window.
RankRun run_steps(PipelineOptions options, int64_t num_steps, Transport& transport) {
  options.num_steps = num_steps + 1;
  const auto pipeline =
      make_training_pipeline(options, borrowed(transport), plain_host_allocator());
  pipeline->next();
  RankRun run;
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const auto asked = std::chrono::steady_clock::now();
    const std::optional<StepBatch> batch = pipeline->next();
    if (!batch) break;
    run.waited_us += microseconds_since(asked);
    run.seqs += batch->num_seqs_global;
    run.tokens += batch->num_tokens_global;
    run.most_over_mean_tokens +=
        static_cast<double>(batch->most_tokens_per_rank * transport.size()) /
        static_cast<double>(batch->num_tokens_global);
  }
  run.elapsed_us = microseconds_since(start);
  return run;
}

/// The elapsed seconds of the slowest rank.
double elapsed_s(const RankRun& run, Transport& transport) {
  return 1e-6 * static_cast<double>(std::ranges::max(transport.all_gather({&run.elapsed_us, 1})));
}

}  // namespace

void write_synthetic_shard(const std::string& path, int64_t num_seqs, uint64_t seed,
                           const SampleLimits& limits) {
  ShardWriter writer(path, ShardLayout::kVariableLength, limits);
  const SyntheticSteps samples{.max_masked_per_seq = limits.max_masked_per_seq,
                               .vocab_size = limits.vocab_size};
  for (int64_t i = 0; i < num_seqs; ++i) {
    Draws draws(seed, i);
    const int64_t length = draw_length(draws, limits.max_seq_tokens);
    SampleSet one;
    append_synthetic_sample(samples, {.slot = i, .tokens = length}, draws, one);
    writer.append(one[0]);
  }
  writer.finish();
}

LoaderBenchResult bench_loader(const LoaderBenchOptions& options, Transport& transport) {
  OwnedFolder folder;
  PipelineOptions pipeline = options.pipeline;
  if (pipeline.shards.empty()) pipeline.shards = make_shards(options, folder, transport);

  // All ranks must take the same number of steps, so the clock is read only between runs.
  int64_t steps = 8;
  double warm_up_s = elapsed_s(run_steps(pipeline, steps, transport), transport);
  while (warm_up_s < options.warm_up_s / 2) {
    steps *= 2;
    warm_up_s = elapsed_s(run_steps(pipeline, steps, transport), transport);
  }
  steps =
      std::max<int64_t>(1, std::llround(options.timed_s / warm_up_s * static_cast<double>(steps)));

  const RankRun run = run_steps(pipeline, steps, transport);
  LoaderBenchResult result{.steps = steps, .elapsed_s = elapsed_s(run, transport)};
  result.seqs_per_s_global = static_cast<double>(run.seqs) / result.elapsed_s;
  result.tokens_per_s_global = static_cast<double>(run.tokens) / result.elapsed_s;
  const auto waited_us = static_cast<double>(transport.sum({&run.waited_us, 1}).front());
  result.mean_wait_ms = 1e-3 * waited_us / static_cast<double>(transport.size() * steps);
  result.mean_tokens_per_seq = static_cast<double>(run.tokens) / static_cast<double>(run.seqs);
  result.most_over_mean_tokens = run.most_over_mean_tokens / static_cast<double>(steps);
  return result;
}

}  // namespace bertha
