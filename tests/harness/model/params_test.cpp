#include "harness/model/params.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

Dims large_dims(int64_t padding_multiple_of_vocab_size) {
  Dims dims = make_dims(ModelConfig{});
  dims.V = padding_multiple_of_vocab_size;
  return dims;
}

Dims odd_dims() {
  return make_dims(ModelConfig{.layers = 2,
                               .hidden = 33,
                               .heads = 3,
                               .feed_forward = 65,
                               .vocab_size = 101,
                               .max_positions = 17});
}

int64_t parameter_count(const ParamTable& table) {
  int64_t count = 0;
  for (const ParamInfo& param : table.params) count += param.elements;
  return count;
}

int64_t decayed_tensors(DecayRule rule) {
  int64_t count = 0;
  for (const ParamInfo& param : make_param_table(large_dims(30528), rule).params) {
    count += param.decay ? 1 : 0;
  }
  return count;
}

TEST(Params, LargeModelHasThePublishedParameterCounts) {
  EXPECT_EQ(make_dims(ModelConfig{}).V, 30528);
  EXPECT_EQ(parameter_count(make_param_table(large_dims(30528), DecayRule::kReference)), 336232258);
  EXPECT_EQ(parameter_count(make_param_table(large_dims(30522), DecayRule::kReference)), 336226108);
}

TEST(Params, LargeModelHas398TensorsOnceQueryKeyValueAreCountedApart) {
  int64_t tensors = 0;
  for (const ParamInfo& param :
       make_param_table(large_dims(30528), DecayRule::kNvidiaFmha).params) {
    tensors += param.norm_parts;
  }
  EXPECT_EQ(tensors, 398);
}

TEST(Params, OffsetsAreAlignedAndTensorsDoNotOverlap) {
  const ParamTable table = make_param_table(odd_dims(), DecayRule::kReference);
  int64_t end = 0;
  for (const ParamInfo& param : table.params) {
    EXPECT_EQ(param.offset % 64, 0) << param.name;
    EXPECT_GE(param.offset, end) << param.name;
    EXPECT_LT(param.offset - end, 64) << param.name;
    end = param.offset + param.elements;
  }
  EXPECT_GE(table.elements, end);
  EXPECT_EQ(table.elements % 64, 0);
}

TEST(Params, PartsAreTheEmbeddingsEachLayerAndTheHeads) {
  const Dims dims = make_dims({.layers = 3, .hidden = 16, .heads = 2, .feed_forward = 24});
  const ParamTable table = make_param_table(dims, DecayRule::kReference);
  ASSERT_EQ(table.part_begins.size(), 5u);
  for (const ParamInfo& param : table.params) {
    const auto after =
        std::upper_bound(table.part_begins.begin(), table.part_begins.end(), param.offset);
    const int64_t part = after - table.part_begins.begin() - 1;
    const bool is_embedding = param.name.starts_with("embeddings.");
    EXPECT_EQ(part, param.layer >= 0 ? 1 + param.layer : is_embedding ? 0 : 4) << param.name;
  }
  EXPECT_EQ(table.part_begins[2], table.find("layer.1.attention.qkv.weight").offset);
}

TEST(Params, EveryRuleDecaysExactlyThePublishedTensors) {
  // Reference: 3 tables, 4 matrices in each of 24 layers, pooler, transform, next-sentence.
  EXPECT_EQ(decayed_tensors(DecayRule::kReference), 3 + 4 * 24 + 3);
  EXPECT_EQ(decayed_tensors(DecayRule::kNvidiaFmha), 3 + 5 * 24 + 3);
  EXPECT_EQ(decayed_tensors(DecayRule::kNvidiaTe), 3 + 5 * 24 + 3);
  EXPECT_EQ(decayed_tensors(DecayRule::kBaidu), 3 + 7 * 24 + 3);
}

TEST(Params, RulesDifferInTheTensorsThatTheirCodesNameOtherwise) {
  struct Expectation {
    DecayRule rule;
    bool qkv_bias;
    bool attention_gamma;
    bool output_gamma;
    int64_t qkv_parts;
  };
  const Expectation expectations[] = {{DecayRule::kReference, false, false, false, 3},
                                      {DecayRule::kNvidiaFmha, true, false, false, 3},
                                      {DecayRule::kNvidiaTe, false, true, false, 1},
                                      {DecayRule::kBaidu, true, true, true, 1}};
  for (const Expectation& want : expectations) {
    const ParamTable table = make_param_table(odd_dims(), want.rule);
    EXPECT_EQ(table.find("layer.1.attention.qkv.bias").decay, want.qkv_bias);
    EXPECT_EQ(table.find("layer.1.attention.layer_norm.gamma").decay, want.attention_gamma);
    EXPECT_EQ(table.find("layer.1.feed_forward.layer_norm.gamma").decay, want.output_gamma);
    EXPECT_EQ(table.find("layer.1.attention.qkv.weight").norm_parts, want.qkv_parts);
    EXPECT_EQ(table.find("layer.1.attention.qkv.bias").norm_parts, want.qkv_parts);
    for (const char* always : {"embeddings.word.weight", "pooler.weight", "nsp.weight"}) {
      EXPECT_TRUE(table.find(always).decay) << always;
    }
    for (const char* never : {"embeddings.layer_norm.gamma", "mlm.layer_norm.gamma",
                              "layer.0.attention.layer_norm.beta", "layer.0.feed_forward.in.bias",
                              "mlm.output.bias", "nsp.bias"}) {
      EXPECT_FALSE(table.find(never).decay) << never;
    }
  }
}

TEST(Params, ShapesFollowTheDims) {
  const ParamTable table = make_param_table(odd_dims(), DecayRule::kReference);
  const std::map<std::string, std::vector<int64_t>> shapes = {
      {"embeddings.word.weight", {104, 33}},
      {"embeddings.position.weight", {17, 33}},
      {"embeddings.segment.weight", {2, 33}},
      {"layer.1.attention.qkv.weight", {99, 33}},
      {"layer.0.feed_forward.in.weight", {65, 33}},
      {"layer.0.feed_forward.out.weight", {33, 65}},
      {"mlm.output.bias", {104}},
      {"nsp.weight", {2, 33}}};
  for (const auto& [name, shape] : shapes) EXPECT_EQ(table.find(name).shape, shape) << name;
  EXPECT_EQ(table.find("layer.1.attention.qkv.weight").layer, 1);
  EXPECT_EQ(table.find("nsp.weight").layer, -1);
}

TEST(Params, ViewPointsAtTheTensorInTheFlatBuffer) {
  const ParamTable table = make_param_table(odd_dims(), DecayRule::kReference);
  const ParamInfo& param = table.find("layer.0.feed_forward.in.weight");
  std::vector<float> flat(static_cast<size_t>(table.elements));
  const View view = table.view(param, flat.data(), DType::kF32);
  EXPECT_EQ(view.as<float>(), flat.data() + param.offset);
  EXPECT_EQ(view.shape_text(), "f32 [65,33]");
  EXPECT_EQ(table.view(table.find("nsp.bias"), flat.data(), DType::kF32).shape_text(), "f32 [2]");
}

TEST(Params, FindingAnUnknownNameSaysWhichOne) {
  const ParamTable table = make_param_table(odd_dims(), DecayRule::kReference);
  EXPECT_THAT(error_of([&] { table.find("layer.9.attention.qkv.weight"); }, ExitCode::kInternal),
              HasSubstr("layer.9.attention.qkv.weight"));
}

TEST(Params, InitialWeightsAreATruncatedNormalWithZeroPaddingRows) {
  const Dims dims = make_dims(ModelConfig{.layers = 1,
                                          .hidden = 64,
                                          .heads = 2,
                                          .feed_forward = 128,
                                          .vocab_size = 2001,
                                          .max_positions = 32});
  const ParamTable table = make_param_table(dims, DecayRule::kReference);
  std::vector<float> flat(static_cast<size_t>(table.elements), 7.0f);
  initialize(table, dims, 0.02, 5, flat.data());

  const ParamInfo& words = table.find("embeddings.word.weight");
  const int64_t live = dims.C * dims.H;
  double sum = 0, squares = 0, largest = 0;
  int64_t above_one_deviation = 0;
  for (int64_t i = 0; i < live; ++i) {
    const double x = flat[static_cast<size_t>(words.offset + i)];
    sum += x;
    squares += x * x;
    largest = std::max(largest, std::abs(x));
    above_one_deviation += x > 0.02 ? 1 : 0;
  }
  // Five standard errors at n = 128064; truncated at two: deviation 0.8796, P(z > 1) = 0.14240.
  const double n = static_cast<double>(live);
  EXPECT_NEAR(sum / n, 0.0, 5 * 0.02 * 0.88 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02 * 0.879626, 5 * 0.02 * 0.88 / std::sqrt(2 * n));
  EXPECT_LE(largest, 0.04 + 1e-8);
  EXPECT_GT(largest, 0.0399);
  EXPECT_NEAR(above_one_deviation / n, 0.142377, 5 * 0.35 / std::sqrt(n));
  for (int64_t i = live; i < words.elements; ++i) {
    ASSERT_EQ(flat[static_cast<size_t>(words.offset + i)], 0.0f) << i;
  }
  for (const char* gamma : {"embeddings.layer_norm.gamma", "layer.0.attention.layer_norm.gamma",
                            "layer.0.feed_forward.layer_norm.gamma", "mlm.layer_norm.gamma"}) {
    EXPECT_EQ(flat[static_cast<size_t>(table.find(gamma).offset + 63)], 1.0f) << gamma;
  }
  for (const char* zero :
       {"layer.0.attention.qkv.bias", "mlm.layer_norm.beta", "mlm.output.bias"}) {
    EXPECT_EQ(flat[static_cast<size_t>(table.find(zero).offset + 3)], 0.0f) << zero;
  }
}

TEST(Params, InitialWeightsDependOnSeedNameAndElementOnly) {
  const Dims dims = odd_dims();
  Dims deeper = dims;
  deeper.L = 4;
  const ParamTable table = make_param_table(dims, DecayRule::kReference);
  const ParamTable deep_table = make_param_table(deeper, DecayRule::kBaidu);
  std::vector<float> flat(static_cast<size_t>(table.elements));
  std::vector<float> deep(static_cast<size_t>(deep_table.elements));
  std::vector<float> other_seed(static_cast<size_t>(table.elements));
  initialize(table, dims, 0.02, 5, flat.data());
  initialize(deep_table, deeper, 0.02, 5, deep.data());
  initialize(table, dims, 0.02, 6, other_seed.data());

  const ParamInfo& pooler = table.find("pooler.weight");
  const ParamInfo& transform = table.find("mlm.transform.weight");
  const ParamInfo& deep_pooler = deep_table.find("pooler.weight");
  int64_t same_as_other_tensor = 0, same_as_other_seed = 0;
  for (int64_t i = 0; i < pooler.elements; ++i) {
    const float value = flat[static_cast<size_t>(pooler.offset + i)];
    ASSERT_EQ(value, deep[static_cast<size_t>(deep_pooler.offset + i)]) << i;
    same_as_other_tensor += value == flat[static_cast<size_t>(transform.offset + i)] ? 1 : 0;
    same_as_other_seed += value == other_seed[static_cast<size_t>(pooler.offset + i)] ? 1 : 0;
  }
  EXPECT_LT(same_as_other_tensor, 3);
  EXPECT_LT(same_as_other_seed, 3);
}

TEST(Dims, HeadsThatDoNotDivideTheWidthAreAUsageError) {
  EXPECT_THAT(error_of([] { make_dims(ModelConfig{.heads = 7}); }, ExitCode::kUsage),
              HasSubstr("model.heads is 7"));
}

TEST(Dims, VocabularyIsPaddedToAMultipleOfEight) {
  EXPECT_EQ(make_dims(ModelConfig{.max_positions = 32767}).S, 32768);
  EXPECT_EQ(make_dims(ModelConfig{.max_positions = 32767}, 512).S, 512);
  EXPECT_EQ(make_dims(ModelConfig{.max_positions = 512}, 100).S, 128);
  EXPECT_EQ(make_dims(ModelConfig{.max_positions = 64}, 33).S, 64);
  EXPECT_EQ(make_dims(ModelConfig{.vocab_size = 8000}).V, 8000);
  EXPECT_EQ(make_dims(ModelConfig{.vocab_size = 8001}).V, 8008);
  EXPECT_EQ(make_dims(ModelConfig{.vocab_size = 8001}).C, 8001);
}

}  // namespace
}  // namespace bertha
