#include "harness/checkpoint/stated_model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/checkpoint/checkpoint_rig.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

using Json = nlohmann::json;

class Stated : public ::testing::Test {
 protected:
  StatedModel read(const Json& json, const std::string& name = "config.json",
                   WeightFormat weights = WeightFormat::kHuggingFace) {
    std::ofstream(folder_.path(name)) << json.dump();
    return read_stated_model(folder_.path(name), weights);
  }
  std::string refusal(const std::string& key, const Json& value) {
    Json json = json_;
    json[key] = value;
    if (value.is_null()) json.erase(key);
    return error_of([&] { read(json); });
  }

  TempFolder folder_;
  Json json_ = Json::parse(hugging_face_config(small_config().model));
};

TEST_F(Stated, ReadsBackWhatWasWritten) {
  ModelConfig config = small_config().model;
  config.gelu = GeluForm::kErf;
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
  EXPECT_EQ(found.gelu, GeluForm::kErf);
  EXPECT_EQ(found.hidden_dropout, 0.25);
  EXPECT_EQ(found.layer_norm_epsilon, 1e-5);
}

TEST_F(Stated, TheWordGeluMeansWhatItsWriterComputes) {
  const std::pair<const char*, GeluForm> forms[] = {{"gelu", GeluForm::kErf},
                                                    {"gelu_new", GeluForm::kTanh},
                                                    {"gelu_pytorch_tanh", GeluForm::kTanh}};
  for (const auto& [word, form] : forms) {
    json_["hidden_act"] = word;
    EXPECT_EQ(read(json_).model.gelu, form) << word;
  }
}

TEST_F(Stated, TheContentAndTheWeightsSayWhoseGeluItIsAndNotTheName) {
  json_["hidden_act"] = "gelu";
  Json googles = json_;
  for (const char* theirs : {"architectures", "model_type"}) googles.erase(theirs);
  for (const char* name : {"config.json", "bert_config.json", "mine.json"}) {
    EXPECT_EQ(read(json_, name).model.gelu, GeluForm::kErf) << name;
    EXPECT_EQ(read(googles, name).model.gelu, GeluForm::kTanh) << name;
    for (const Json& json : {json_, googles}) {
      EXPECT_EQ(read(json, name, WeightFormat::kTensorFlow).model.gelu, GeluForm::kTanh) << name;
    }
  }
  json_["hidden_act"] = "gelu_python";  // names the form itself
  EXPECT_EQ(read(json_, "bert_config.json", WeightFormat::kTensorFlow).model.gelu, GeluForm::kErf);
}

TEST_F(Stated, SizesBeyondTheLimitsOfTheirKeysAreRefusedByFileAndField) {
  EXPECT_THAT(
      refusal("hidden_size", 1 << 20),
      AllOf(HasSubstr("config.json"), HasSubstr("hidden_size is 1048576, want 8 to 65536")));
  EXPECT_THAT(refusal("hidden_size", 1001), HasSubstr("a multiple of 8"));
  EXPECT_THAT(refusal("intermediate_size", 1001), HasSubstr("intermediate_size is 1001"));
  EXPECT_THAT(refusal("num_hidden_layers", 1e9), HasSubstr("want a whole number"));
  EXPECT_THAT(refusal("num_hidden_layers", 1000000000), HasSubstr("num_hidden_layers is 10000"));
  EXPECT_THAT(refusal("num_attention_heads", 0), HasSubstr("num_attention_heads is 0"));
  EXPECT_THAT(refusal("num_attention_heads", 3), HasSubstr("does not divide"));
  EXPECT_THAT(refusal("vocab_size", 1000001), HasSubstr("want 8 to 1000000"));
  EXPECT_THAT(refusal("type_vocab_size", 1), HasSubstr("want 2 to 127"));
  EXPECT_THAT(refusal("max_position_embeddings", -1), HasSubstr("max_position_embeddings is -1"));
  EXPECT_THAT(refusal("layer_norm_eps", 0.0), HasSubstr("layer_norm_eps is 0"));
}

TEST_F(Stated, RefusesOtherModels) {
  EXPECT_THAT(refusal("hidden_act", "relu"), HasSubstr("hidden_act is relu"));
  EXPECT_THAT(refusal("model_type", "roberta"), HasSubstr("type roberta"));
  EXPECT_THAT(refusal("position_embedding_type", "relative_key"), HasSubstr("relative_key"));
  EXPECT_THAT(refusal("is_decoder", true), HasSubstr("is_decoder"));
  EXPECT_THAT(refusal("hidden_size", nullptr), HasSubstr("hidden_size"));
  EXPECT_THAT(refusal("hidden_size", "wide"), HasSubstr("hidden_size is \"wide\""));
  EXPECT_THAT(
      error_of([&] { read_stated_model(folder_.path("none.json"), WeightFormat::kHuggingFace); }),
      HasSubstr("cannot open"));
}

}  // namespace
}  // namespace bertha::testing
