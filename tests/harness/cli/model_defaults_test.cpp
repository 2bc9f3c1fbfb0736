#include "harness/cli/model_defaults.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>

#include "harness/checkpoint/stated_model.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

/// A folder of BERT-large as Hugging Face writes it, whose weights file has one tensor.
class ModelFolder {
 public:
  ModelFolder() {
    std::ofstream(folder_.path("config.json")) << hugging_face_config(ModelConfig());
    const std::string header =
        R"({"bert.pooler.dense.bias":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    const uint64_t bytes = header.size();
    std::ofstream weights(folder_.path("model.safetensors"), std::ios::binary);
    weights.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    weights << header << std::string(4, '\0');
  }

  Config adapted(int num_ranks, int64_t gpu_bytes, const std::vector<Override>& given = {}) const {
    std::vector<Override> overrides{{"checkpoint.init=" + folder_.path(""), "--model"},
                                    {"train.global_batch_seqs=64", "--global-batch"}};
    overrides.insert(overrides.end(), given.begin(), given.end());
    LoadedConfig loaded = load_config({}, overrides);
    complete_from_files(loaded, true, num_ranks, gpu_bytes);
    return loaded.config;
  }

 private:
  TempFolder folder_;
};

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(ModelDefaults, AStepThatFitsTheGpuIsNotSplit) {
  const ModelFolder model;
  EXPECT_EQ(model.adapted(1, 141 * kGiB).train.accumulation_steps, 1);
  EXPECT_EQ(model.adapted(1, 0).train.accumulation_steps, 1);
}

TEST(ModelDefaults, AStepIsSplitIntoAsFewMicroBatchesAsFitTheGpu) {
  const ModelFolder model;
  const int64_t of_24 = model.adapted(1, 24 * kGiB).train.accumulation_steps;
  const int64_t of_16 = model.adapted(1, 16 * kGiB).train.accumulation_steps;
  EXPECT_GT(of_24, 1);
  EXPECT_GT(of_16, of_24);
  EXPECT_EQ(64 % of_16, 0);
  EXPECT_LT(model.adapted(4, 16 * kGiB).train.accumulation_steps, of_16);
}

TEST(ModelDefaults, WhatIsSetStays) {
  const ModelFolder model;
  const Config config = model.adapted(
      1, 16 * kGiB, {{"train.accumulation_steps=2", "--set"}, {"eval.batch_seqs=7", "--set"}});
  EXPECT_EQ(config.train.accumulation_steps, 2);
  EXPECT_EQ(config.eval.batch_seqs, 7);
}

TEST(ModelDefaults, AModelThatFitsInNoWayKeepsItsStep) {
  EXPECT_EQ(ModelFolder().adapted(1, kGiB).train.accumulation_steps, 1);
}

}  // namespace
}  // namespace bertha::testing
