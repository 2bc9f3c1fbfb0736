#include "harness/checkpoint/load_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/stated_model.h"
#include "harness/checkpoint/tf_bundle.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/base/tests/tolerance.h"
#include "tests/harness/checkpoint/bundle_writer.h"
#include "tests/harness/checkpoint/checkpoint_rig.h"
#include "tests/harness/checkpoint/load_rig.h"
#include "tests/harness/model/golden_bert.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

/// Names and shapes of the official code, written down as its modeling.py makes them.
Shapes official_shapes(const ModelConfig& c) {
  const int64_t h = c.hidden;
  Shapes shapes = {{"bert/embeddings/word_embeddings", {c.vocab_size, h}},
                   {"bert/embeddings/position_embeddings", {c.max_positions, h}},
                   {"bert/embeddings/token_type_embeddings", {2, h}},
                   {"cls/predictions/output_bias", {c.vocab_size}},
                   {"cls/seq_relationship/output_weights", {2, h}},
                   {"cls/seq_relationship/output_bias", {2}}};
  const auto dense = [&](const std::string& name, int64_t in, int64_t out) {
    shapes[name + "/kernel"] = {in, out};
    shapes[name + "/bias"] = {out};
  };
  const auto norm = [&](const std::string& name) {
    shapes[name + "/LayerNorm/gamma"] = {h};
    shapes[name + "/LayerNorm/beta"] = {h};
  };
  norm("bert/embeddings");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = concat("bert/encoder/layer_", i);
    for (const char* part : {"query", "key", "value"}) {
      dense(layer + "/attention/self/" + part, h, h);
    }
    dense(layer + "/attention/output/dense", h, h);
    norm(layer + "/attention/output");
    dense(layer + "/intermediate/dense", h, c.feed_forward);
    dense(layer + "/output/dense", c.feed_forward, h);
    norm(layer + "/output");
  }
  dense("bert/pooler/dense", h, h);
  dense("cls/predictions/transform/dense", h, h);
  norm("cls/predictions/transform");
  return shapes;
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

/// Tensors whose elements all differ, by their number in the file.
BundleDraft official_draft(const ModelConfig& config) {
  BundleDraft draft;
  float next = 1;
  for (const auto& [name, shape] : official_shapes(config)) {
    std::vector<float> values(static_cast<size_t>(elements_of(shape)));
    for (float& value : values) value = next++;
    draft.add(name, shape, values);
  }
  return draft;
}

std::string refusal_of(const BundleDraft& draft) {
  const TempFolder folder;
  draft.write(folder.path("m"));
  return refusal(small_config().model, {.path = folder.path("m")});
}

/// Tensors of a Hugging Face file, and the folder around it.
struct HuggingFaceDraft {
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> tensors;

  explicit HuggingFaceDraft(const Json& golden) {
    for (const auto& [name, tensor] : golden["parameters"].items()) {
      tensors[name] = {tensor["shape"], tensor["weight"]};
    }
  }

  void rename(const std::string& from, const std::string& to) {
    HuggingFaceDraft copy = *this;
    copy.tensors.clear();
    for (auto& [name, tensor] : tensors) {
      std::string renamed = name;
      if (const size_t at = name.find(from); at != std::string::npos) {
        renamed.replace(at, from.size(), to);
      }
      copy.tensors[renamed] = tensor;
    }
    *this = copy;
  }

  void erase(const std::string& prefix) {
    std::erase_if(tensors, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  }

  void write(const std::string& path) const {
    std::vector<SafeTensorsWriter::Entry> entries;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({.name = name, .shape = tensor.first});
    }
    SafeTensorsWriter writer(path, entries, {{"format", "pt"}});
    for (const auto& [name, tensor] : tensors) {
      writer.append(tensor.second.data(), static_cast<int64_t>(tensor.second.size()));
    }
    writer.finish();
  }
};

class HuggingFace : public ::testing::Test {
 protected:
  HuggingFace() : golden_(read_golden_bert()), config_(golden_config(golden_)), draft_(golden_) {}

  Loaded load_draft(MissingHeads missing = MissingHeads::kRefuse,
                    bool trains_sentence_head = true) {
    draft_.write(folder_.path("model.safetensors"));
    return load_into(config_, {.path = folder_.path(),
                               .missing_heads = missing,
                               .seed = 5,
                               .trains_sentence_head = trains_sentence_head});
  }
  std::string refused_draft() {
    draft_.write(folder_.path("model.safetensors"));
    return refusal(config_, {.path = folder_.path()});
  }

  TempFolder folder_;
  Json golden_;
  ModelConfig config_;
  HuggingFaceDraft draft_;
};

TEST(LoadWeights, TensorFlowCheckpointsGiveTheGoldenLoss) {
  const Json golden = read_golden_bert();
  const ModelConfig config = golden_config(golden);
  for (const char* prefix : {"saver.ckpt-7", "sharded.ckpt", "objects-1"}) {
    TinyModel model(config, {.tokens = 64, .seqs = 8, .masked = 16});
    const LoadedWeights facts =
        load_weights({.path = kGolden + "tf/" + prefix}, config, model.table, model.weights.data());
    EXPECT_THAT(facts.notes, IsEmpty());
    const double loss = model.loss(golden_batch(golden));
    EXPECT_NEAR(loss, golden["loss"].get<double>(), 5 * tolerance::kModelLossF32) << prefix;
  }
}

TEST(LoadWeights, AnyFileOfATensorFlowCheckpointNamesIt) {
  const ModelConfig config = golden_config(read_golden_bert());
  const std::vector<float> want = load_into(config, {.path = kGolden + "tf/sharded.ckpt"}).flat;
  for (const char* end : {".index", ".data-00001-of-00002"}) {
    EXPECT_EQ(load_into(config, {.path = kGolden + "tf/sharded.ckpt" + end}).flat, want) << end;
  }
  EXPECT_THAT(refusal(config, {.path = kGolden + "tf"}),
              AllOf(HasSubstr("3 TensorFlow checkpoints"), HasSubstr("tf/objects-1")));
}

TEST(LoadWeights, BertLargeHasThe398OfficialTensors) {
  const ModelConfig large;
  const ParamTable table = table_of(large);
  Shapes found;
  int64_t elements = 0;
  for (const NamedRows& rows : tensorflow_names(table, make_dims(large))) {
    EXPECT_TRUE(found.emplace(rows.foreign_name, rows.foreign_shape).second) << rows.foreign_name;
    EXPECT_EQ(rows.elements, elements_of(rows.foreign_shape)) << rows.foreign_name;
    // Dense kernels, and they alone, are [in, out]; square ones would not show it.
    EXPECT_EQ(rows.transposed, rows.foreign_name.ends_with("/kernel")) << rows.foreign_name;
    elements += rows.elements;
  }
  EXPECT_EQ(found.size(), 398u);
  EXPECT_EQ(found, official_shapes(large));
  EXPECT_EQ(elements, 336'226'108);
}

TEST(LoadWeights, EveryElementOf24LayersIsReadOnce) {
  const TempFolder folder;
  ModelConfig config = small_config().model;
  config.layers = 24;
  const BundleDraft draft = official_draft(config);
  ASSERT_EQ(draft.entries.size(), 398u);
  draft.write(folder.path("m"));
  std::vector<float> flat = load_into(config, {.path = folder.path("m")}).flat;
  const auto count = draft.data.size() / sizeof(float);
  std::erase(flat, 0.0f);  // padding
  std::sort(flat.begin(), flat.end());
  ASSERT_EQ(flat.size(), count);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(flat[i], static_cast<float>(i + 1));
}

TEST(LoadWeights, KernelsAreTransposedAndQkvStacked) {
  const TempFolder folder;
  const ModelConfig config = small_config().model;
  official_draft(config).write(folder.path("m"));
  const std::vector<float> flat = load_into(config, {.path = folder.path("m")}).flat;
  const TfBundle bundle(folder.path("m"));
  const auto at = [&](const std::string& name, int64_t row, int64_t column) {
    const TfTensor& tensor = bundle.tensors().at(name);
    float value = 0;
    std::memcpy(&value, bundle.read(name).data() + 4 * (row * tensor.shape[1] + column), 4);
    return value;
  };
  const ParamTable table = table_of(config);
  const int64_t h = config.hidden;
  const std::string layer = "bert/encoder/layer_0/";
  for (int64_t out = 0; out < h; ++out) {
    for (int64_t in = 0; in < h; ++in) {
      const int64_t qkv = table.find("layer.0.attention.qkv.weight").offset;
      int64_t row = out;
      for (const char* part : {"query", "key", "value"}) {
        ASSERT_EQ(flat[static_cast<size_t>(qkv + row * h + in)],
                  at(concat(layer, "attention/self/", part, "/kernel"), in, out));
        row += h;
      }
      const int64_t pooler = table.find("pooler.weight").offset;
      ASSERT_EQ(flat[static_cast<size_t>(pooler + out * h + in)],
                at("bert/pooler/dense/kernel", in, out));
    }
  }
  const int64_t sentence = table.find("nsp.weight").offset;
  ASSERT_EQ(flat[static_cast<size_t>(sentence + 1)],
            at("cls/seq_relationship/output_weights", 0, 1));
}

TEST(LoadWeights, OneMessageNamesAllThatDoesNotFit) {
  BundleDraft draft = official_draft(small_config().model);
  const auto move = [&](const std::string& from, const std::string& to) {
    draft.entries[to] = draft.entries.at(from);
    draft.entries.erase(from);
  };
  move("bert/encoder/layer_0/intermediate/dense/kernel",
       "bert/encoder/layer_0/intermediate/dense/kernels");
  draft.entries["bert/pooler/dense/bias"].mutable_shape()->mutable_dim(0)->set_size(17);
  draft.entries["mystery"] = draft.entries["cls/predictions/output_bias"];
  EXPECT_THAT(refusal_of(draft),
              AllOf(HasSubstr("bert/encoder/layer_0/intermediate/dense/kernel is missing"),
                    HasSubstr("bert/encoder/layer_0/intermediate/dense/kernels [16,24] is unknown "
                              "(nearest: bert/encoder/layer_0/intermediate/dense/kernel)"),
                    HasSubstr("bert/pooler/dense/bias is [17], want [16]"),
                    HasSubstr("mystery [37] is unknown;"), HasSubstr("under model")));
  ModelConfig deeper = small_config().model;
  deeper.layers = 3;
  const TempFolder folder;
  official_draft(small_config().model).write(folder.path("m"));
  EXPECT_THAT(refusal(deeper, {.path = folder.path("m")}),
              AllOf(HasSubstr("bert/encoder/layer_1/"), HasSubstr("is missing; and 24 more")));
}

TEST(LoadWeights, OptimizerStateIsPassedOver) {
  BundleDraft draft = official_draft(small_config().model);
  for (const char* slot : {"adam_m", "adam_v", "LAMB", "LAMB_1", "AdamWeightDecayOptimizer"}) {
    draft.add(concat("bert/pooler/dense/kernel/", slot), {1}, {1});
  }
  for (const char* name : {"global_step", "beta1_power", "beta2_power"}) draft.add(name, {}, {1});
  EXPECT_EQ(refusal_of(draft), "no error");
  draft.add("bert/pooler/dense/adam_moment", {1}, {1});
  EXPECT_THAT(refusal_of(draft), HasSubstr("adam_moment [1] is unknown"));
}

TEST(LoadWeights, OtherTypesAreRefused) {
  BundleDraft draft = official_draft(small_config().model);
  tf::BundleEntry& bias = draft.entries["bert/pooler/dense/bias"];
  bias.set_dtype(2);
  EXPECT_THAT(refusal_of(draft), HasSubstr("bert/pooler/dense/bias is F64, want F32, F16 or BF16"));
  bias.set_dtype(1);
  bias.set_size(0);
  bias.set_crc32c(masked_crc32c(crc32c("")));
  EXPECT_THAT(refusal_of(draft), HasSubstr("0 bytes, which do not fill its shape [16]"));
}

TEST(LoadWeights, SaysWhatAPathIsInstead) {
  const TempFolder folder;
  const ModelConfig config = small_config().model;
  const auto refused = [&](const std::string& path) { return refusal(config, {.path = path}); };
  EXPECT_THAT(refused(folder.path("nothing")), HasSubstr("nothing: no such file or folder"));
  EXPECT_THAT(refused(folder.path()), HasSubstr("neither model.safetensors nor"));
  std::ofstream(folder.path("pytorch_model.bin")) << "x";
  EXPECT_THAT(refused(folder.path()),
              HasSubstr("a pickle, which this program does not read; convert it"));
  std::ofstream(folder.path("model.safetensors.index.json")) << "{}";
  EXPECT_THAT(refused(folder.path()),
              HasSubstr("model.safetensors.index.json: field weight_map is missing"));
  std::ofstream(folder.path("model.ckpt")) << "x";
  EXPECT_THAT(refused(folder.path("model.ckpt")), HasSubstr("format V1"));
}

TEST_F(HuggingFace, EveryWayOfNamingGivesTheSameWeights) {
  const std::vector<float> want = load_into(config_, {.path = kGolden + "tf/saver.ckpt-7"}).flat;
  EXPECT_EQ(load_draft().flat, want);
  EXPECT_EQ(load_into(config_, {.path = folder_.path("model.safetensors")}).flat, want);
  draft_.rename("LayerNorm.weight", "LayerNorm.gamma");
  draft_.rename("LayerNorm.bias", "LayerNorm.beta");
  EXPECT_EQ(load_draft().flat, want);
  draft_.rename("bert.", "");
  EXPECT_EQ(load_draft().flat, want);
  draft_.tensors["cls.predictions.decoder.weight"] =
      draft_.tensors["embeddings.word_embeddings.weight"];
  draft_.tensors["embeddings.position_ids"] = {{1, 16}, std::vector<float>(16)};
  EXPECT_EQ(load_draft().flat, want);
}

TEST_F(HuggingFace, PrefixesOfWrappersAreLeftOut) {
  const std::vector<float> want = load_draft().flat;
  draft_.rename("bert.", "_orig_mod.bert.");
  EXPECT_THAT(refused_draft(), HasSubstr("is missing")) << "not every name begins with it";
  draft_.rename("cls.", "_orig_mod.cls.");
  EXPECT_EQ(load_draft().flat, want);
  draft_.rename("_orig_mod.", "module._orig_mod.");
  const Loaded loaded = load_draft();
  EXPECT_EQ(loaded.flat, want);
  ASSERT_EQ(loaded.facts.notes.size(), 1u);
  EXPECT_THAT(loaded.facts.notes[0], HasSubstr("read without module._orig_mod., a prefix"));
}

TEST_F(HuggingFace, TheDecoderMayGoByOneNameOrByTwo) {
  const std::vector<float> want = load_draft().flat;
  draft_.tensors["cls.predictions.decoder.weight"] =
      draft_.tensors["bert.embeddings.word_embeddings.weight"];
  draft_.tensors["cls.predictions.decoder.bias"] = draft_.tensors["cls.predictions.bias"];
  EXPECT_EQ(load_draft().flat, want);
  draft_.erase("cls.predictions.bias");
  EXPECT_EQ(load_draft().flat, want);
  draft_.tensors["cls.predictions.decoder.weight"].second.back() += 1;
  EXPECT_THAT(refused_draft(), AllOf(HasSubstr("cls.predictions.decoder.weight differs from "
                                               "bert.embeddings.word_embeddings.weight"),
                                     HasSubstr("to which this program ties it")));
}

TEST_F(HuggingFace, TwoNamesForOneTensorAreRefused) {
  draft_.tensors["pooler.dense.bias"] = draft_.tensors["bert.pooler.dense.bias"];
  EXPECT_THAT(refused_draft(), HasSubstr("bert.pooler.dense.bias and pooler.dense.bias are both"));
}

TEST_F(HuggingFace, MissingHeadsAreFreshWhenAskedFor) {
  const std::vector<float> whole = load_draft().flat;
  draft_.erase("cls.");
  EXPECT_THAT(refused_draft(), AllOf(HasSubstr("no masked-token head, no sentence head"),
                                     HasSubstr("checkpoint.init_missing_heads to fresh")));
  const Loaded partly = load_draft(MissingHeads::kFresh);
  EXPECT_THAT(partly.facts.fresh,
              ElementsAre(ModelPart::kMaskedTokenHead, ModelPart::kSentenceHead));
  ASSERT_EQ(partly.facts.notes.size(), 1u);
  EXPECT_THAT(partly.facts.notes[0],
              HasSubstr("no sentence head: initialized with random weights; all other"));
  const ParamTable table = table_of(config_);
  std::vector<float> fresh(static_cast<size_t>(table.elements));
  initialize(table, make_dims(config_), config_.init_stddev, 5, fresh.data());
  for (const ParamInfo& param : table.params) {
    const bool head = param.name.starts_with("mlm.") || param.name.starts_with("nsp.");
    const std::vector<float>& want = head ? fresh : whole;
    for (int64_t i = param.offset; i < param.offset + param.elements; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_EQ(partly.flat[at], want[at]) << param.name;
    }
  }
}

TEST_F(HuggingFace, AFreshSentenceHeadThatIsNotTrainedIsSaidToBeZero) {
  const auto note = [&] { return load_draft(MissingHeads::kFresh, false).facts.notes.at(0); };
  draft_.erase("cls.seq_relationship.");
  EXPECT_THAT(note(), HasSubstr("has no sentence head: left zero because train.nsp_weight is 0; "));
  draft_.erase("cls.");
  EXPECT_THAT(note(), HasSubstr("no sentence head: initialized with random weights, the sentence "
                                "head left zero because train.nsp_weight is 0; all other"));
}

TEST_F(HuggingFace, HalfAHeadIsAnError) {
  draft_.erase("cls.predictions.transform.dense.bias");
  draft_.write(folder_.path("model.safetensors"));
  EXPECT_THAT(refusal(config_, {.path = folder_.path(), .missing_heads = MissingHeads::kFresh}),
              HasSubstr("cls.predictions.transform.dense.bias is missing"));
  EXPECT_THAT(error_of([&] {
                const TempFolder other;
                draft_.erase("cls.predictions");
                draft_.erase("cls.seq_relationship");
                draft_.write(other.path("model.safetensors"));
                check_weight_tensors(other.path(), table_of(config_), make_dims(config_),
                                     MissingHeads::kRefuse);
              }),
              HasSubstr("no masked-token head, no sentence head"));
}

TEST_F(HuggingFace, WhatShapesCannotShowIsComparedWithTheConfig) {
  ModelConfig stated = config_;
  stated.gelu = GeluForm::kErf;
  stated.heads = 4;
  stated.layer_norm_epsilon = 1e-5;
  std::ofstream(folder_.path("config.json")) << hugging_face_config(stated);
  EXPECT_THAT(refused_draft(),
              AllOf(HasSubstr("model.heads is 2, but " + folder_.path("config.json") + " states 4"),
                    HasSubstr("model.gelu is tanh"), HasSubstr("states erf"),
                    HasSubstr("model.layer_norm_epsilon is 1e-12"),
                    HasSubstr("checkpoint.init_differences to allow")));
  const Loaded loaded =
      load_into(config_, {.path = folder_.path(), .differences = StatedDifferences::kAllow});
  EXPECT_EQ(loaded.facts.notes.size(), 3u);
  std::ofstream(folder_.path("config.json")) << hugging_face_config(config_);
  EXPECT_THAT(load_draft().facts.notes, IsEmpty());
}

}  // namespace
}  // namespace bertha::testing
