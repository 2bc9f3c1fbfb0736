#include "harness/checkpoint/stated_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/harness/checkpoint/checkpoint_rig.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class Stated : public ::testing::Test {
 protected:
  StatedModel read(const Json& json, const std::string& name = "config.json") {
    std::ofstream(folder_.path(name)) << json.dump();
    return read_stated_model(folder_.path(name));
  }
  std::string refusal(const std::string& key, const Json& value) {
    Json json = json_;
    json[key] = value;
    if (value.is_null()) json.erase(key);
    return message_of([&] { read(json); });
  }

  TempFolder folder_;
  Json json_ = Json::parse(hugging_face_config(small_config().model));
};

TEST_F(Stated, ReadsBackWhatWasWritten) {
  ModelConfig config = small_config().model;
  config.gelu = "erf";
  config.hidden_dropout = 0.25;
  config.layer_norm_epsilon = 1e-5;
  const Json json = Json::parse(hugging_face_config(config));
  const ModelConfig found = read(json).model;
  EXPECT_EQ(found.layers, config.layers);
  EXPECT_EQ(found.hidden, config.hidden);
  EXPECT_EQ(found.heads, config.heads);
  EXPECT_EQ(found.feed_forward, config.feed_forward);
  EXPECT_EQ(found.vocab_size, config.vocab_size);
  EXPECT_EQ(found.max_positions, config.max_positions);
  EXPECT_EQ(found.gelu, "erf");
  EXPECT_EQ(found.hidden_dropout, 0.25);
  EXPECT_EQ(found.layer_norm_epsilon, 1e-5);
}

TEST_F(Stated, TheWordGeluMeansWhatItsWriterComputes) {
  const std::pair<const char*, const char*> forms[] = {
      {"gelu", "erf"}, {"gelu_new", "tanh"}, {"gelu_pytorch_tanh", "tanh"}};
  for (const auto& [word, form] : forms) {
    json_["hidden_act"] = word;
    EXPECT_EQ(read(json_).model.gelu, form) << word;
  }
  json_["hidden_act"] = "gelu";
  EXPECT_EQ(read(json_, "bert_config.json").model.gelu, "tanh");
}

TEST_F(Stated, RefusesOtherModels) {
  EXPECT_THAT(refusal("hidden_act", "relu"), HasSubstr("hidden_act is relu"));
  EXPECT_THAT(refusal("model_type", "roberta"), HasSubstr("type roberta"));
  EXPECT_THAT(refusal("position_embedding_type", "relative_key"), HasSubstr("relative_key"));
  EXPECT_THAT(refusal("is_decoder", true), HasSubstr("is_decoder"));
  EXPECT_THAT(refusal("hidden_size", nullptr), HasSubstr("hidden_size"));
  EXPECT_THAT(refusal("hidden_size", "wide"), HasSubstr("is no config.json of a BERT model"));
  EXPECT_THAT(message_of([&] { read_stated_model(folder_.path("none.json")); }),
              HasSubstr("cannot be opened"));
}

}  // namespace
}  // namespace bertha::testing
