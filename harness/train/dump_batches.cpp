#include "harness/train/dump_batches.h"

#include <cstdio>
#include <span>
#include <vector>

#include "data/files/new_file.h"
#include "data/pipeline/pipeline.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/stated_model.h"
#include "harness/checkpoint/weight_file.h"
#include "harness/config/load.h"
#include "harness/report/files.h"
#include "harness/train/data_check.h"
#include "harness/train/data_source.h"
#include "harness/train/session.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

/// The arrays of a global batch, with its micro-batches joined into one.
struct GlobalBatch {
  std::vector<int64_t> sample_ids;
  std::vector<int32_t> cu_seqlens{0};
  std::vector<int32_t> input_ids, token_type_ids, position_ids;
  std::vector<int32_t> masked_positions, masked_labels;
  std::vector<int32_t> next_sentence_labels;
  std::vector<int32_t> seqs_per_micro_batch;

  void append(const HostBatch& micro) {
    const auto first_token = static_cast<int32_t>(input_ids.size());
    const auto add = [](std::vector<int32_t>& all, std::span<const int32_t> part, int32_t shift) {
      for (const int32_t value : part) all.push_back(value + shift);
    };
    sample_ids.insert(sample_ids.end(), micro.sample_ids.begin(), micro.sample_ids.end());
    add(cu_seqlens, micro.cu_seqlens.subspan(1), first_token);
    add(input_ids, micro.word_ids, 0);
    add(token_type_ids, micro.segment_ids, 0);
    add(position_ids, micro.position_ids, 0);
    add(masked_positions, micro.masked_positions, first_token);
    add(masked_labels, micro.masked_labels, 0);
    add(next_sentence_labels, micro.next_sentence_labels, 0);
    seqs_per_micro_batch.push_back(static_cast<int32_t>(micro.num_seqs));
  }

  void write(const std::string& path) const {
    struct Array {
      const char* name;
      const std::vector<int32_t>& values;
    };
    const Array arrays[] = {{"cu_seqlens", cu_seqlens},
                            {"input_ids", input_ids},
                            {"token_type_ids", token_type_ids},
                            {"position_ids", position_ids},
                            {"masked_positions", masked_positions},
                            {"masked_labels", masked_labels},
                            {"next_sentence_labels", next_sentence_labels},
                            {"seqs_per_micro_batch", seqs_per_micro_batch}};
    std::vector<SafeTensorsWriter::Entry> entries{
        {.name = "sample_ids", .shape = {std::ssize(sample_ids)}, .dtype = "I64"}};
    for (const Array& array : arrays) {
      entries.push_back({.name = array.name, .shape = {std::ssize(array.values)}, .dtype = "I32"});
    }
    SafeTensorsWriter writer(path, entries, {{"written_by", "bertha"}});
    writer.append(sample_ids.data(), std::ssize(sample_ids));
    for (const Array& array : arrays) {
      writer.append(array.values.data(), std::ssize(array.values));
    }
    writer.finish();
  }
};

void write_weights(const Config& config, const Dims& dims, const std::string& path) {
  const ParamTable table = make_param_table(dims, config.optimizer.decay_rule);
  const FirstWeights first = first_weights(config, table, dims);
  for (const std::string& note : first.notes) log_line(LogLevel::kWarning, note);
  write_weight_file(path, hugging_face_names(table, dims), first.flat.data());
}

}  // namespace

void dump_batches(const Config& config, const DumpOptions& options) {
  if (options.steps > config.train.max_steps) {
    fail(ExitCode::kUsage, "--steps is ", options.steps, ", but train.max_steps is ",
         config.train.max_steps, ": the run has no more batches; raise train.max_steps.");
  }
  if (config.data.order == SampleOrder::kPublished) {
    log_line(LogLevel::kWarning,
             "data.order is published, so batches depend on the number of ranks: these are the "
             "batches of a run on one rank");
  }
  const Dims dims = make_dims(config.model);
  check_data_paths(config);
  check_data(config, 0, 1);
  const OpenPipeline open = plan_training_data(config, 0, options.steps);
  make_folder(options.folder, "choose a folder that can be written");
  SoloTransport transport;
  const auto pipeline = open(borrowed(transport), plain_host_allocator());
  while (const auto step = pipeline->next()) {
    GlobalBatch batch;
    for (const HostBatch& micro : step->micro_batches) batch.append(micro);
    char name[48];
    std::snprintf(name, sizeof(name), "/batch_%08lld.safetensors",
                  static_cast<long long>(step->step) + 1);
    batch.write(options.folder + name);
  }
  write_new_file(options.folder + "/config.yaml", to_yaml(config));
  write_new_file(options.folder + "/config.json", hugging_face_config(config.model));
  if (options.weights) write_weights(config, dims, options.folder + "/model.safetensors");
}

}  // namespace bertha
