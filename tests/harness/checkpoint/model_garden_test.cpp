#include "harness/checkpoint/model_garden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "harness/checkpoint/tf_bundle.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/checkpoint/bundle_writer.h"
#include "tests/harness/checkpoint/load_rig.h"
#include "tests/harness/model/golden_bert.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

const std::string kGarden = kGolden + "tf_garden/";

/// The elements of the parts that a checkpoint has; zeros elsewhere.
std::vector<float> without(const std::vector<ModelPart>& parts, const ModelConfig& config,
                           std::vector<float> flat) {
  for (const ParamInfo& param : table_of(config).params) {
    if (std::find(parts.begin(), parts.end(), part_of(param.name)) == parts.end()) continue;
    std::fill_n(flat.begin() + param.offset, param.elements, 0.0f);
  }
  return flat;
}

TEST(ModelGarden, ItsCheckpointsHaveTheWeightsOfTheOfficialCode) {
  const ModelConfig config = golden_config(read_golden_bert());
  const std::vector<float> want = load_into(config, {.path = kGolden + "tf/saver.ckpt-7"}).flat;
  const Loaded whole = load_into(config, {.path = kGarden + "model-1"});
  EXPECT_EQ(whole.flat, want);
  EXPECT_THAT(whole.facts.fresh, IsEmpty());
  const Loaded numbered = load_into(config, {.path = kGarden + "numbered"});
  EXPECT_EQ(numbered.flat, want);
  EXPECT_THAT(numbered.facts.notes, IsEmpty());
  EXPECT_THAT(whole.facts.notes,
              ElementsAre(HasSubstr("_pooler_layer/bias"), HasSubstr("_pooler_layer/kernel")));

  struct Part {
    const char* prefix;
    std::vector<ModelPart> missing;
  };
  for (const auto& [prefix, missing] :
       {Part{"layers", {ModelPart::kMaskedTokenHead, ModelPart::kSentenceHead}},
        Part{"items", {ModelPart::kSentenceHead}}}) {
    EXPECT_THAT(refusal(config, {.path = kGarden + prefix}), HasSubstr("no sentence head"));
    const Loaded loaded =
        load_into(config, {.path = kGarden + prefix, .missing_heads = MissingHeads::kFresh});
    EXPECT_EQ(loaded.facts.fresh, missing) << prefix;
    EXPECT_EQ(without(missing, config, loaded.flat), without(missing, config, want)) << prefix;
  }
}

/// The weights of a checkpoint of the model garden, to be changed.
BundleDraft garden_draft(const std::string& prefix) {
  BundleDraft draft;
  const TfBundle bundle(kGarden + prefix);
  for (const auto& [name, tensor] : bundle.tensors()) {
    if (tensor.dtype != "F32" || is_optimizer_state_in_tensorflow(name)) continue;
    const std::string bytes = bundle.read(name);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    draft.add(name, tensor.shape, values);
  }
  return draft;
}

std::string refusal_of_garden(const BundleDraft& draft) {
  const TempFolder folder;
  draft.write(folder.path("m"));
  return refusal(golden_config(read_golden_bert()), {.path = folder.path("m")});
}

TEST(ModelGarden, WhatIsMissingOrBelongsNowhereIsListed) {
  const std::string end = "/.ATTRIBUTES/VARIABLE_VALUE";
  EXPECT_EQ(refusal_of_garden(garden_draft("model-1")), "no error");

  BundleDraft draft = garden_draft("model-1");
  draft.add("model/classification_heads/1/dense/kernel" + end, {16, 16},
            std::vector<float>(16 * 16, 1.0f));
  draft.entries.erase("model/encoder_network/_transformer_layers/1/_output_dense/bias" + end);
  EXPECT_THAT(
      refusal_of_garden(draft),
      AllOf(HasSubstr("bert/encoder/layer_1/output/dense/bias is missing"),
            HasSubstr("model/classification_heads/1/dense/kernel" + end + " [16,16] is unknown")));

  draft = garden_draft("model-1");
  draft.add("model/encoder_network/_embedding_layer/embeddings" + end, {37, 16},
            std::vector<float>(37 * 16, 1.0f));
  EXPECT_THAT(refusal_of_garden(draft), HasSubstr("are both bert/embeddings/word_embeddings"));

  draft = garden_draft("model-1");
  auto& shape =
      *draft.entries["model/classification_heads/0/out_proj/kernel" + end].mutable_shape();
  shape.mutable_dim(0)->set_size(2);
  shape.mutable_dim(1)->set_size(16);
  EXPECT_THAT(refusal_of_garden(draft),
              HasSubstr("out_proj/kernel" + end + " is [2,16], want [16,2]"));

  // Layers by number, of a model that has other things in them.
  BundleDraft other;
  other.add("layer_with_weights-0/token_embedding/embeddings" + end, {37, 16},
            std::vector<float>(37 * 16, 1.0f));
  EXPECT_THAT(refusal_of_garden(other),
              AllOf(HasSubstr("bert/embeddings/word_embeddings is missing"), HasSubstr("more")));
}

/// Renamed as in the first versions: heads of numbered layers, the sentence head last, one model
/// around all, and the projection of attention beside it.
std::string first_name_of(std::string name) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  };
  const std::string masked_token = "model/layer_with_weights-2/";
  replace("model/layer_with_weights-1/", "layer_with_weights-0/layer_with_weights-2/");
  replace("model/layer_with_weights-0/", "layer_with_weights-0/layer_with_weights-0/");
  replace("_attention_layer/_output_dense", "_attention_output_dense");
  replace(masked_token + "embedding_table",
          "layer_with_weights-0/layer_with_weights-0/layer_with_weights-0/embeddings");
  const std::string head = "layer_with_weights-0/layer_with_weights-1/";
  replace(masked_token + "dense/", head + "layer_with_weights-0/");
  replace(masked_token + "layer_norm/", head + "layer_with_weights-1/");
  replace(masked_token + "output_bias.Sbias", head + "layer_with_weights-2/bias");
  return name;
}

TEST(ModelGarden, TheFirstVersionsNumberedTheLayersOfHeadsToo) {
  BundleDraft draft = garden_draft("numbered");
  std::map<std::string, tf::BundleEntry> renamed;
  for (const auto& [name, entry] : draft.entries) renamed[first_name_of(name)] = entry;
  ASSERT_EQ(renamed.size(), draft.entries.size());
  draft.entries = renamed;
  const TempFolder folder;
  draft.write(folder.path("m"));
  const ModelConfig config = golden_config(read_golden_bert());
  EXPECT_EQ(load_into(config, {.path = folder.path("m")}).flat,
            load_into(config, {.path = kGarden + "numbered"}).flat);
}

TEST(ModelGarden, EveryPlaceOfATensorHasItsName) {
  const std::string end = "/.ATTRIBUTES/VARIABLE_VALUE";
  for (const char* root : {"model/", "encoder/", "model/encoder/", "model/encoder_network/"}) {
    const auto name = [&](const std::string& path) {
      return official_name_of(root + path + end, {});
    };
    EXPECT_EQ(name("layer_with_weights-0/embeddings"), "bert/embeddings/word_embeddings");
    EXPECT_EQ(name("layer_with_weights-3/beta"), "bert/embeddings/LayerNorm/beta");
    EXPECT_EQ(name("layer_with_weights-15/_attention_output_dense/kernel"),
              "bert/encoder/layer_11/attention/output/dense/kernel");
    EXPECT_EQ(name("layer_with_weights-28/kernel"), "bert/pooler/dense/kernel");
    EXPECT_EQ(name("_transformer_layers/23/_attention_layer/_key_dense/bias"),
              "bert/encoder/layer_23/attention/self/key/bias");
    for (const char* unknown :
         {"layer_with_weights-3/kernel", "layer_with_weights-4", "layer_with_weights-/kernel",
          "layer_with_weights-4/_attention_layer/kernel", "_transformer_layers/kernel",
          "_transformer_layers/99999999999/_output_dense/bias", "bias",
          "layer_with_weights-1/layer_with_weights-3/kernel",
          "layer_with_weights-1/layer_with_weights-1/layer_with_weights-0/kernel"}) {
      EXPECT_EQ(name(unknown), "") << unknown;
    }
  }
  const std::string dense = "model/layer_with_weights-1/layer_with_weights-0/";
  EXPECT_EQ(official_name_of(dense + "kernel" + end, {16, 2}),
            "cls/seq_relationship/output_weights");
  EXPECT_EQ(official_name_of(dense + "bias" + end, {16}), "cls/predictions/transform/dense/bias");
  EXPECT_EQ(official_name_of("encoder/_pooler_layer/bias", {}), "");
  EXPECT_FALSE(is_model_garden_path("bert/encoder/layer_0/output/dense/kernel"));

  using Shape = std::vector<int64_t>;
  const std::string layer = "bert/encoder/layer_0/attention/";
  EXPECT_EQ(without_heads(layer + "self/query/kernel", {16, 2, 8}), (Shape{16, 16}));
  EXPECT_EQ(without_heads(layer + "self/query/bias", {2, 8}), (Shape{16}));
  EXPECT_EQ(without_heads(layer + "output/dense/kernel", {2, 8, 24}), (Shape{16, 24}));
  EXPECT_EQ(without_heads(layer + "output/dense/kernel", {16, 24}), (Shape{16, 24}));
}

}  // namespace
}  // namespace bertha::testing
