#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "data/pipeline/batch.h"
#include "harness/model/bert.h"
#include "kernels/cpu/cpu_backend.h"

namespace bertha::testing {

/// One sequence as a test writes it.
struct TinySequence {
  std::vector<int32_t> word_ids;
  std::vector<int32_t> segment_ids;
  std::vector<int32_t> masked_positions;
  std::vector<int32_t> masked_labels;
  int32_t next_sentence_label = 0;
};

/// A HostBatch laid out by hand: independent of the collation that the pipeline does.
inline HostBatch make_batch(const std::vector<TinySequence>& sequences) {
  std::vector<int32_t> words, segments, positions, cu_seqlens{0}, rows, labels, nsp;
  for (const TinySequence& s : sequences) {
    const int32_t start = static_cast<int32_t>(words.size());
    words.insert(words.end(), s.word_ids.begin(), s.word_ids.end());
    segments.insert(segments.end(), s.segment_ids.begin(), s.segment_ids.end());
    for (size_t i = 0; i < s.word_ids.size(); ++i) positions.push_back(static_cast<int32_t>(i));
    for (const int32_t position : s.masked_positions) rows.push_back(start + position);
    labels.insert(labels.end(), s.masked_labels.begin(), s.masked_labels.end());
    nsp.push_back(s.next_sentence_label);
    cu_seqlens.push_back(static_cast<int32_t>(words.size()));
  }

  auto memory = std::make_shared<std::vector<int32_t>>();
  memory->reserve(3 * words.size() + 2 * rows.size() + 2 * nsp.size() + 1);
  const auto place = [&memory](const std::vector<int32_t>& values) {
    const size_t begin = memory->size();
    memory->insert(memory->end(), values.begin(), values.end());
    return std::span<int32_t>(memory->data() + begin, values.size());
  };
  const auto tokens = static_cast<int64_t>(words.size());
  int64_t longest = 0;
  for (const TinySequence& s : sequences) {
    longest = std::max(longest, static_cast<int64_t>(s.word_ids.size()));
  }
  HostBatch batch{.num_seqs = static_cast<int64_t>(nsp.size()),
                  .num_tokens = tokens,
                  .num_masked = static_cast<int64_t>(rows.size()),
                  .word_ids = place(words),
                  .segment_ids = place(segments),
                  .position_ids = place(positions),
                  .cu_seqlens = place(cu_seqlens),
                  .masked_positions = place(rows),
                  .masked_labels = place(labels),
                  .next_sentence_labels = place(nsp),
                  .groups = {},
                  .sample_ids = {},
                  .block = memory};
  batch.groups.push_back({.first_seq = 0,
                          .num_seqs = batch.num_seqs,
                          .first_token = 0,
                          .num_tokens = tokens,
                          .longest_seq_tokens = longest,
                          .bucket_tokens = 128});
  return batch;
}

/// A model with its flat buffers on the CPU backend.
class TinyModel {
 public:
  TinyModel(const ModelConfig& config, const BatchRows& capacity, int threads = 1, bool fp8 = false,
            bool graphs = false)
      : dims(make_dims(config)),
        table(make_param_table(dims, DecayRule::kReference)),
        weights(static_cast<size_t>(table.elements), 0.0f),
        gradients(static_cast<size_t>(table.elements), 0.0f),
        device_(make_cpu_device(threads)),
        stream_(device_->make_stream()),
        ops_(make_cpu_ops(*device_, *stream_)),
        bert(config, table, capacity,
             {.device = device_.get(),
              .stream = stream_.get(),
              .ops = ops_.get(),
              .fp8 = fp8,
              .graphs = graphs}) {
    bert.bind(flat(weights), flat(gradients));
  }

  /// Mean losses summed as in training, over one batch.
  double loss(const HostBatch& batch) {
    bert.begin_step();
    bert.reset_stats();
    bert.set_random(7, 3);
    bert.upload(batch);
    bert.forward_train({.masked = batch.num_masked, .seqs = batch.num_seqs}, View());
    const LossStats s = stats();
    return s.mlm_loss_sum / static_cast<double>(s.mlm_count) +
           s.nsp_loss_sum / static_cast<double>(s.nsp_count);
  }

  double loss_and_gradients(const HostBatch& batch) {
    const double value = loss(batch);
    bert.backward();
    return value;
  }

  LossStats stats() const { return *static_cast<const LossStats*>(bert.stats().data); }

  Dims dims;
  ParamTable table;
  std::vector<float> weights;
  std::vector<float> gradients;

 private:
  View flat(std::vector<float>& values) {
    return View(values.data(), DType::kF32, {static_cast<int64_t>(values.size())});
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;

 public:
  Bert bert;
};

}  // namespace bertha::testing
