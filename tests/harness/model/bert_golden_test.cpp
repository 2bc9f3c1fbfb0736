// Loss, logits-derived statistics and every gradient against Hugging Face BertForPreTraining in
// float64; tests/golden/make_bert_golden.py made the file and names the versions in it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "kernels/base/tests/tolerance.h"
#include "tests/harness/model/golden_bert.h"

namespace bertha::testing {
namespace {

/// Where a Hugging Face tensor lies in our flat buffer: tensor and first row.
struct Place {
  std::string name;
  int64_t first_row = 0;
};

std::map<std::string, Place> places(int64_t layers, int64_t hidden) {
  const std::string emb = "bert.embeddings.";
  std::map<std::string, Place> map = {
      {emb + "word_embeddings.weight", {"embeddings.word.weight"}},
      {emb + "position_embeddings.weight", {"embeddings.position.weight"}},
      {emb + "token_type_embeddings.weight", {"embeddings.segment.weight"}},
      {emb + "LayerNorm.weight", {"embeddings.layer_norm.gamma"}},
      {emb + "LayerNorm.bias", {"embeddings.layer_norm.beta"}},
      {"bert.pooler.dense.weight", {"pooler.weight"}},
      {"bert.pooler.dense.bias", {"pooler.bias"}},
      {"cls.predictions.transform.dense.weight", {"mlm.transform.weight"}},
      {"cls.predictions.transform.dense.bias", {"mlm.transform.bias"}},
      {"cls.predictions.transform.LayerNorm.weight", {"mlm.layer_norm.gamma"}},
      {"cls.predictions.transform.LayerNorm.bias", {"mlm.layer_norm.beta"}},
      {"cls.predictions.bias", {"mlm.output.bias"}},
      {"cls.seq_relationship.weight", {"nsp.weight"}},
      {"cls.seq_relationship.bias", {"nsp.bias"}}};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string theirs = concat("bert.encoder.layer.", i, ".");
    const std::string ours = concat("layer.", i, ".");
    int64_t row = 0;
    for (const char* part : {"query", "key", "value"}) {
      map[concat(theirs, "attention.self.", part, ".weight")] = {ours + "attention.qkv.weight",
                                                                 row};
      map[concat(theirs, "attention.self.", part, ".bias")] = {ours + "attention.qkv.bias", row};
      row += hidden;
    }
    const std::pair<const char*, const char*> pairs[] = {
        {"attention.output.dense.weight", "attention.output.weight"},
        {"attention.output.dense.bias", "attention.output.bias"},
        {"attention.output.LayerNorm.weight", "attention.layer_norm.gamma"},
        {"attention.output.LayerNorm.bias", "attention.layer_norm.beta"},
        {"intermediate.dense.weight", "feed_forward.in.weight"},
        {"intermediate.dense.bias", "feed_forward.in.bias"},
        {"output.dense.weight", "feed_forward.out.weight"},
        {"output.dense.bias", "feed_forward.out.bias"},
        {"output.LayerNorm.weight", "feed_forward.layer_norm.gamma"},
        {"output.LayerNorm.bias", "feed_forward.layer_norm.beta"}};
    for (const auto& [their, our] : pairs) map[theirs + their] = {ours + our};
  }
  return map;
}

float* element_of(std::vector<float>& flat, const ParamTable& table, const Place& place) {
  const ParamInfo& param = table.find(place.name);
  const int64_t row_elements = param.elements / param.shape[0];
  return flat.data() + param.offset + place.first_row * row_elements;
}

double log_sum_exp(const std::vector<double>& logits) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  return std::log(sum);
}

/// All weights of the golden file into the model.
void assign_weights(const Json& golden, const std::map<std::string, Place>& map, TinyModel& model) {
  for (const auto& [name, tensor] : golden["parameters"].items()) {
    ASSERT_TRUE(map.contains(name)) << name;
    float* to = element_of(model.weights, model.table, map.at(name));
    for (const Json& value : tensor["weight"]) *to++ = value.get<float>();
  }
  ASSERT_EQ(golden["parameters"].size(), map.size());
}

/// The sum that the statistics keep, from the other side's logits.
double mlm_loss_sum(const Json& logits_of_rows, const HostBatch& batch) {
  double sum = 0;
  size_t row = 0;
  for (const Json& logits : logits_of_rows) {
    const auto values = logits.get<std::vector<double>>();
    sum += log_sum_exp(values) - values[static_cast<size_t>(batch.masked_labels[row++])];
  }
  return sum;
}

/// The loss of the model with the golden weights, which is that of `results`, and its gradients.
double expect_losses(const Json& golden, const Json& results, TinyModel& model) {
  const ModelConfig config = golden_config(golden);
  assign_weights(golden, places(config.layers, config.hidden), model);
  const HostBatch batch = golden_batch(golden);
  const double loss = model.loss_and_gradients(batch);
  EXPECT_NEAR(loss, results["loss"].get<double>(), 5 * tolerance::kModelLossF32);
  EXPECT_NEAR(model.stats().mlm_loss_sum, mlm_loss_sum(results["mlm_logits"], batch),
              5 * tolerance::kModelLossF32 * static_cast<double>(batch.num_masked));
  return loss;
}

TEST(BertGolden, LossLogitsAndAllGradientsEqualHuggingFace) {
  const Json golden = read_golden_bert();
  const ModelConfig config = golden_config(golden);
  TinyModel model(config, {.tokens = 64, .seqs = 8, .masked = 16});
  expect_losses(golden, golden, model);
  const auto map = places(config.layers, config.hidden);
  for (const auto& [name, tensor] : golden["parameters"].items()) {
    const float* ours = element_of(model.gradients, model.table, map.at(name));
    for (const Json& theirs : tensor["gradient"]) {
      const double want = theirs.get<double>();
      ASSERT_NEAR(*ours++, want, tolerance::kModelGradientF32 * (1 + std::fabs(want))) << name;
    }
  }
}

TEST(BertGolden, TheErfFormOfTheGeluEqualsHuggingFaceToo) {
  const Json golden = read_golden_bert();
  const Json erf = read_golden("bert_tiny_erf.json");
  ModelConfig config = golden_config(golden);
  config.gelu = GeluForm::kErf;
  TinyModel model(config, {.tokens = 64, .seqs = 8, .masked = 16});
  const double loss = expect_losses(golden, erf, model);
  const auto map = places(config.layers, config.hidden);
  // The two forms differ by little: what was computed is ten times closer to the right one.
  EXPECT_GT(std::abs(loss - golden["loss"].get<double>()),
            10 * std::abs(loss - erf["loss"].get<double>()));
  for (const auto& [name, gradient] : erf["gradients"].items()) {
    const float* ours = element_of(model.gradients, model.table, map.at(name));
    double from_erf = 0;
    double from_tanh = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const auto value = static_cast<double>(ours[i]);
      const double want = gradient[i].get<double>();
      const double tanh_form = golden["parameters"][name]["gradient"][i].get<double>();
      ASSERT_NEAR(value, want, tolerance::kModelGradientF32 * (1 + std::fabs(want))) << name;
      from_erf += std::fabs(value - want);
      from_tanh += std::fabs(value - tanh_form);
    }
    EXPECT_GT(from_tanh, 10 * from_erf) << name;
  }
}

}  // namespace
}  // namespace bertha::testing
