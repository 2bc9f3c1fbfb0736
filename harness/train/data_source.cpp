#include "harness/train/data_source.h"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "data/files/hashing.h"
#include "data/files/text_file.h"
#include "data/format/manifest.h"
#include "data/format/shard_names.h"
#include "data/pipeline/agreement.h"
#include "data/prepare/vocabulary.h"
#include "harness/train/data_check.h"
#include "harness/train/session.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kSyntheticEvalSeqs = 1024;

std::unique_ptr<Pipeline> open_synthetic(SyntheticSteps steps, const SyntheticRun& run,
                                         const Transport& transport, HostAllocator allocate) {
  steps.num_ranks = transport.size();
  SyntheticRun of_rank = run;
  of_rank.rank = transport.rank();
  return make_synthetic_pipeline(steps, of_rank, std::move(allocate));
}

/// Checks that all ranks read the same lengths: a file may differ between nodes.
void check_same_lengths(const std::string& path, const LengthHistogram& lengths,
                        Transport& transport) {
  const std::string_view bytes(reinterpret_cast<const char*>(lengths.data()),
                               lengths.size() * sizeof lengths.front());
  const auto seen = gather_values(transport, {.values = {crc32c(bytes)}});
  for (size_t rank = 1; rank < seen.size(); ++rank) {
    if (seen[rank] == seen[0]) continue;
    fail(ExitCode::kData, "data.synthetic_lengths: ", path, ": rank ", rank,
         " read other lengths than rank 0; copy one file to every node");
  }
}

OpenPipeline plan_steps(const Config& config, int64_t first_step, int64_t num_steps) {
  if (!config.data.synthetic) {
    const PipelineOptions options = pipeline_options(config, first_step, num_steps);
    return [options](std::shared_ptr<Transport> transport, HostAllocator allocate) {
      return make_training_pipeline(options, std::move(transport), std::move(allocate));
    };
  }
  SyntheticSteps steps = synthetic_steps(config, 1);
  steps.lengths = synthetic_lengths(config.data);
  const SyntheticRun run{.first_step = first_step,
                         .num_steps = num_steps,
                         .prefetch_steps = config.data.prefetch_steps};
  return [steps, run, path = config.data.synthetic_lengths](
             const std::shared_ptr<Transport>& transport, HostAllocator allocate) {
    if (!path.empty()) check_same_lengths(path, steps.lengths, *transport);
    return open_synthetic(steps, run, *transport, std::move(allocate));
  };
}

/// The md5 over `choice`, names and sizes of the shards; and the md5 over these and the hashes in
/// their manifest, "" without a manifest.
std::pair<std::string, std::string> identity_of(const Config& config, const std::string& data_path,
                                                const std::string& choice) {
  const std::vector<std::string> shards = list_shards(data_path);
  const std::vector<std::string> hashes = known_hashes(config, shards);
  std::string names = choice, contents = choice;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::error_code error;
    const uintmax_t bytes = std::filesystem::file_size(shards[i], error);
    if (error) {
      fail(ExitCode::kData, shards[i], ": its size cannot be read (", error.message(),
           "); check the folder's permissions.");
    }
    const std::string line =
        concat(std::filesystem::path(shards[i]).filename().string(), " ", bytes);
    names += line + "\n";
    if (!hashes.empty()) contents += concat(line, " ", hashes[i], "\n");
  }
  return {md5_of_text(names), hashes.empty() ? "" : md5_of_text(contents)};
}

/// Whether each entry continues a word: [entries].
std::shared_ptr<const std::vector<bool>> pieces_inside_words(const Vocabulary& vocabulary) {
  auto continues = std::make_shared<std::vector<bool>>();
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    const std::string& piece = vocabulary.wordpiece(id);
    continues->push_back(piece.size() > 2 && piece.starts_with("##"));
  }
  return continues;
}

SampleLimits sample_limits(const Config& config) {
  return {.max_seq_tokens = config.data.max_seq_tokens,
          .max_masked_per_seq = config.data.max_masked_per_seq,
          .vocab_size = config.model.vocab_size};
}

}  // namespace

PipelineOptions pipeline_options(const Config& config, int64_t first_step, int64_t num_steps) {
  const std::vector<std::string> shards = list_shards(config.data.train);
  return {.shards = shards,
          .shard_xxh3 = known_hashes(config, shards),
          .limits = sample_limits(config),
          .global_batch_seqs = config.train.global_batch_seqs,
          .micro_batches_per_step = config.train.accumulation_steps,
          .seed = static_cast<uint64_t>(config.train.seed),
          .order = config.data.order,
          .window_shards = config.data.window_shards,
          .exchange = config.data.exchange_padding,
          .masks = mask_rule(config.data),
          .prefetch_steps = config.data.prefetch_steps,
          .first_step = first_step,
          .num_steps = num_steps};
}

EvalOptions eval_options(const Config& config) {
  const std::vector<std::string> shards = list_shards(config.data.eval);
  return {.shards = shards,
          .shard_xxh3 = known_hashes(config, shards),
          .limits = sample_limits(config),
          .batch_seqs = config.eval.batch_seqs,
          .max_samples = config.eval.max_samples};
}

std::optional<MaskRule> mask_rule(const DataConfig& data) {
  if (data.masking == Masking::kStored) return std::nullopt;
  MaskRule rule{.fraction = data.masked_fraction};
  if (!data.vocab.empty()) {
    const Vocabulary vocabulary = Vocabulary::load(data.vocab);
    rule.special = vocabulary.special();
    rule.vocab_size = vocabulary.size();
    if (data.whole_words) rule.continues_word = pieces_inside_words(vocabulary);
    return rule;
  }
  const std::optional<Manifest> manifest = find_manifest(data.train);
  if (!manifest || !manifest->special_ids) {
    fail(ExitCode::kUsage, "data.masking = dynamic needs the ids of [CLS], [SEP] and [MASK], but ",
         manifest_path(data.train), manifest ? " states none" : " is missing",
         "; set data.vocab to the vocabulary of the shards.");
  }
  rule.special = *manifest->special_ids;
  rule.vocab_size = manifest->limits.vocab_size;
  return rule;
}

LengthHistogram synthetic_lengths(const DataConfig& data) {
  const std::string& path = data.synthetic_lengths;
  if (path.empty()) return uniform_lengths(data.max_seq_tokens);
  return parse_length_histogram(read_text_file(path), path);
}

SyntheticSteps synthetic_steps(const Config& config, int num_ranks) {
  return {.max_seq_tokens = config.data.max_seq_tokens,
          .max_masked_per_seq = config.data.max_masked_per_seq,
          .vocab_size = config.model.vocab_size,
          .global_batch_seqs = config.train.global_batch_seqs,
          .micro_batches_per_step = config.train.accumulation_steps,
          .exchange = config.data.exchange_padding,
          .seed = static_cast<uint64_t>(config.train.seed),
          .num_ranks = num_ranks};
}

OpenPipeline plan_training_data(const Config& config, int64_t first_batch, int64_t num_steps) {
  if (!config.train.overfit_one_batch) return plan_steps(config, first_batch, num_steps);
  const OpenPipeline open_first = plan_steps(config, 0, 1);
  return [=](std::shared_ptr<Transport> transport, HostAllocator allocate) {
    return repeat_first_batch(open_first(std::move(transport), std::move(allocate)), first_batch,
                              num_steps);
  };
}

std::vector<HostBatch> read_eval_batches(const Config& config, int rank, int num_ranks,
                                         const HostAllocator& allocate) {
  if (!config.data.synthetic) {
    return load_eval_batches(eval_options(config), rank, num_ranks, allocate);
  }
  const EvalConfig& eval = config.eval;
  SyntheticSteps steps = synthetic_steps(config, num_ranks);
  steps.lengths = synthetic_lengths(config.data);
  steps.global_batch_seqs = eval.max_samples > 0 ? eval.max_samples : kSyntheticEvalSeqs;
  steps.seed = derive_seed(steps.seed, kSyntheticEvalPurpose, 0);
  return make_synthetic_eval_batches(steps, eval.batch_seqs, rank, allocate);
}

void identify_data(const Config& config, DataPosition& position) {
  if (config.data.synthetic) {
    const std::string& path = config.data.synthetic_lengths;
    position.identity = md5_of_text("synthetic " + (path.empty() ? "" : read_text_file(path)));
    return;
  }
  std::tie(position.identity, position.content) = identity_of(config, config.data.train, "");
  std::tie(position.eval_identity, position.eval_content) = identity_of(
      config, config.data.eval, concat("of ", config.eval.max_samples, " samples at most\n"));
}

}  // namespace bertha
