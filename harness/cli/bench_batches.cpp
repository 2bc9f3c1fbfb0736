#include "harness/cli/bench_batches.h"

#include <algorithm>

#include "data/files/text_file.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/model/params.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// A batch as in training, with sequence lengths from the histogram.
BenchBatch bench_batch(const Config& config, const std::string& name,
                       const LengthHistogram& lengths, int64_t tokens, const Device& device) {
  const SyntheticSteps steps{.lengths = lengths,
                             .max_seq_tokens = config.data.max_seq_tokens,
                             .max_masked_per_seq = config.data.max_masked_per_seq,
                             .vocab_size = config.model.vocab_size,
                             .tokens_per_micro_batch = tokens,
                             .seed = static_cast<uint64_t>(config.train.seed)};
  const StepBatch step =
      make_synthetic_batch(steps, plan_synthetic_step(steps, 0), 0, plain_host_allocator());
  const HostBatch& host = step.micro_batches.front();
  const auto padded = [&](std::span<const int32_t> values, int64_t live, int32_t beyond) {
    std::vector<int32_t> all(values.begin(), values.end());
    all.resize(static_cast<size_t>(device.padded_rows(live)), beyond);
    return all;
  };
  return {.name = name,
          .tokens = host.num_tokens,
          .masked = host.num_masked,
          .word_ids = padded(host.word_ids, host.num_tokens, 0),
          .segment_ids = padded(host.segment_ids, host.num_tokens, 0),
          .position_ids = padded(host.position_ids, host.num_tokens, 0),
          .rows_by_word = padded(host.rows_by_word, host.num_tokens, -1),
          .cu_seqlens = {host.cu_seqlens.begin(), host.cu_seqlens.end()},
          .masked_positions = padded(host.masked_positions, host.num_masked, -1),
          .masked_labels = padded(host.masked_labels, host.num_masked, -1),
          .groups = host.groups};
}

}  // namespace

LengthHistogram read_lengths(const std::string& path, World& world) {
  if (path.empty()) return {};
  const std::string text = text_of_first_rank(world, [&] {
    std::string found = read_text_file(path);
    parse_length_histogram(found, path);  // all ranks throw its error
    return found;
  });
  return parse_length_histogram(text, path);
}

BenchModel bench_model(const Config& config) {
  const Dims dims = make_dims(config.model, config.data.max_seq_tokens);
  const ParamTable table = make_param_table(dims, config.optimizer.decay_rule);
  return {.hidden = dims.H,
          .heads = dims.A,
          .feed_forward = dims.F,
          .classes = dims.C,
          .vocab_rows = dims.V,
          .positions = dims.P,
          .segment_types = dims.G,
          .mask_width = dims.S,
          .parameters = table.elements,
          .hidden_dropout = static_cast<float>(config.model.hidden_dropout),
          .attention_dropout = static_cast<float>(config.model.attention_dropout)};
}

std::vector<BenchBatch> bench_batches(const Config& config, const std::string& lengths_path,
                                      int64_t tokens, const Device& device, World& world) {
  std::vector<BenchBatch> batches;
  const auto add = [&](const std::string& name, const LengthHistogram& lengths) {
    batches.push_back(bench_batch(config, name, lengths, tokens, device));
  };
  if (!lengths_path.empty()) add("histogram", read_lengths(lengths_path, world));
  const int64_t longest = config.data.max_seq_tokens;
  add(concat("all ", longest), {});
  const int64_t quarter = std::max<int64_t>(longest / 4, 3);
  LengthHistogram lengths(static_cast<size_t>(quarter + 1), 0);
  lengths.back() = 1;
  add(concat("all ", quarter), lengths);
  return batches;
}

}  // namespace bertha
