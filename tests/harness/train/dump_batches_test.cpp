#include "harness/train/dump_batches.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "data/files/text_file.h"
#include "harness/checkpoint/load_weights.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/config/load.h"
#include "harness/train/data_source.h"
#include "harness/train/session.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"
#include "tests/support/captured_log.h"

namespace bertha {
namespace {

constexpr SampleLimits kLimits{.max_seq_tokens = 32, .max_masked_per_seq = 5, .vocab_size = 300};

/// The values of a tensor of this element type.
template <class T>
std::vector<T> read(const std::string& path, const std::string& name) {
  const SafeTensorsHeader header = read_safetensors_header(path);
  const SafeTensor& tensor = header.tensors.at(name);
  EXPECT_EQ(tensor.dtype, sizeof(T) == 8 ? "I64" : "I32") << name;
  EXPECT_EQ(tensor.shape.size(), 1u) << name;
  const std::string bytes = bytes_of(path);
  std::vector<T> values(static_cast<size_t>(tensor.elements()));
  std::memcpy(values.data(), bytes.data() + header.data_offset_bytes + tensor.begin_byte,
              values.size() * sizeof(T));
  return values;
}

template <class Values>
void append(const Values& part, std::vector<int32_t>& all, int32_t shift = 0) {
  for (const int32_t value : part) all.push_back(value + shift);
}

class DumpBatches : public ::testing::Test {
 protected:
  DumpBatches() {
    for (const int64_t part : {0, 1, 2}) {
      write_shard(folder_.path(concat("part_", part, ".hdf5")), ShardLayout::kVariableLength,
                  example_samples(20 + part, static_cast<uint64_t>(part), kLimits), kLimits);
    }
    config_.data.train = config_.data.eval = folder_.path("");
    config_.data.max_seq_tokens = kLimits.max_seq_tokens;
    config_.data.max_masked_per_seq = kLimits.max_masked_per_seq;
    config_.model = {.name = "tiny",
                     .layers = 1,
                     .hidden = 16,
                     .heads = 2,
                     .feed_forward = 24,
                     .vocab_size = kLimits.vocab_size,
                     .max_positions = kLimits.max_seq_tokens};
    config_.train.global_batch_seqs = 10;
    config_.train.accumulation_steps = 2;
    config_.train.max_steps = 8;
  }

  std::string dump(int64_t steps, bool weights) const {
    const std::string output = folder_.path("dump");
    dump_batches(config_, {.folder = output, .steps = steps, .weights = weights});
    return output;
  }

  TempFolder folder_;
  Config config_;
};

TEST_F(DumpBatches, HoldWhatTheLoaderGives) {
  const std::string output = dump(7, false);  // more than an epoch
  SoloTransport transport;
  const auto pipeline = make_training_pipeline(pipeline_options(config_, 0, 7), borrowed(transport),
                                               plain_host_allocator());
  for (int64_t step = 1; step <= 7; ++step) {
    const auto wanted = pipeline->next();
    ASSERT_TRUE(wanted.has_value());
    const std::string path = concat(output, "/batch_0000000", step, ".safetensors");
    std::vector<int32_t> ids, segments, positions, ends{0}, masked, labels, next;
    std::vector<int64_t> samples;
    for (const HostBatch& micro : wanted->micro_batches) {
      const auto begin = static_cast<int32_t>(ids.size());
      append(micro.word_ids, ids);
      append(micro.segment_ids, segments);
      append(micro.position_ids, positions);
      append(micro.cu_seqlens.subspan(1), ends, begin);
      append(micro.masked_positions, masked, begin);
      append(micro.masked_labels, labels);
      append(micro.next_sentence_labels, next);
      samples.insert(samples.end(), micro.sample_ids.begin(), micro.sample_ids.end());
    }
    EXPECT_EQ(read<int32_t>(path, "input_ids"), ids);
    EXPECT_EQ(read<int32_t>(path, "token_type_ids"), segments);
    EXPECT_EQ(read<int32_t>(path, "position_ids"), positions);
    EXPECT_EQ(read<int32_t>(path, "cu_seqlens"), ends);
    EXPECT_EQ(read<int32_t>(path, "masked_positions"), masked);
    EXPECT_EQ(read<int32_t>(path, "masked_labels"), labels);
    EXPECT_EQ(read<int32_t>(path, "next_sentence_labels"), next);
    EXPECT_EQ(read<int64_t>(path, "sample_ids"), samples);
    EXPECT_EQ(read<int32_t>(path, "seqs_per_micro_batch"), (std::vector<int32_t>{5, 5}));
    EXPECT_EQ(std::ssize(ends), 11);
    EXPECT_EQ(std::ssize(ids), wanted->num_tokens_global);
  }
  EXPECT_FALSE(std::filesystem::exists(output + "/batch_00000008.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(output + "/model.safetensors"));
  EXPECT_EQ(read_text_file(output + "/config.yaml"), to_yaml(config_));
}

TEST_F(DumpBatches, GiveTheWeightsThatTheRunBeginsWith) {
  const std::string output = dump(1, true);
  const Dims dims = make_dims(config_.model);
  const ParamTable table = make_param_table(dims, DecayRule::kReference);
  const std::vector<float> wanted = first_weights(config_, table, dims).flat;
  std::vector<float> found(wanted.size());
  load_weights({.path = output}, config_.model, table, found.data());
  EXPECT_EQ(found, wanted);
  EXPECT_NE(found.front(), 0.0f);
}

TEST_F(DumpBatches, OfThePublishedOrderAreSaidToBeThoseOfOneRank) {
  const CapturedLog log;
  dump(1, false);
  EXPECT_THAT(log.warnings(), IsEmpty());
  config_.data.order = SampleOrder::kPublished;
  dump(1, false);
  EXPECT_THAT(log.warnings(), ElementsAre(HasSubstr("the batches of a run on one rank")));
}

TEST_F(DumpBatches, RefuseMoreStepsThanTheRunHas) {
  EXPECT_THAT(error_of([&] { dump(9, false); }, ExitCode::kUsage),
              HasSubstr("train.max_steps is 8"));
}

}  // namespace
}  // namespace bertha
