#include "harness/model/params.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/philox.h"

namespace bertha {
namespace {

constexpr int64_t kAlignmentElements = 64;

bool decays(ParamClass param_class, DecayRule rule) {
  switch (param_class) {
    case ParamClass::kMatrix:
    case ParamClass::kEmbedding:
      return true;
    case ParamClass::kQkvBias:
      return rule == DecayRule::kNvidiaFmha || rule == DecayRule::kBaidu;
    case ParamClass::kAttentionLnGamma:
      return rule == DecayRule::kNvidiaTe || rule == DecayRule::kBaidu;
    case ParamClass::kOutputLnGamma:
      return rule == DecayRule::kBaidu;
    case ParamClass::kBias:
    case ParamClass::kEmbeddingLnGamma:
    case ParamClass::kHeadLnGamma:
    case ParamClass::kLnBias:
      return false;
  }
  return false;
}

/// Number of parameters of the published code in the weight, and in the bias, of one QKV GEMM.
int64_t qkv_parameters(DecayRule rule) {
  return rule == DecayRule::kReference || rule == DecayRule::kNvidiaFmha ? 3 : 1;
}

class TableBuilder {
 public:
  explicit TableBuilder(DecayRule rule) : rule_(rule) {}

  void add(const std::string& name, std::vector<int64_t> shape, ParamClass param_class,
           int64_t layer = -1, int64_t norm_parts = 1) {
    ParamInfo param{.name = name,
                    .shape = std::move(shape),
                    .param_class = param_class,
                    .layer = layer,
                    .decay = decays(param_class, rule_),
                    .has_gradient = has_gradient_,
                    .norm_parts = norm_parts,
                    .offset = table_.elements,
                    .elements = 1};
    for (const int64_t extent : param.shape) param.elements *= extent;
    table_.elements = round_up(param.offset + param.elements, kAlignmentElements);
    table_.params.push_back(std::move(param));
  }

  void add_dense(const std::string& name, int64_t outputs, int64_t inputs, int64_t layer = -1) {
    add(name + ".weight", {outputs, inputs}, ParamClass::kMatrix, layer);
    add(name + ".bias", {outputs}, ParamClass::kBias, layer);
  }

  void add_layer_norm(const std::string& name, int64_t width, ParamClass gamma,
                      int64_t layer = -1) {
    add(name + ".gamma", {width}, gamma, layer);
    add(name + ".beta", {width}, ParamClass::kLnBias, layer);
  }

  /// Tensors added from here on belong to the next part.
  void begin_part() { table_.part_begins.push_back(table_.elements); }

  /// Sets whether parameters added from here on have a gradient.
  void set_gradient(bool has_gradient) { has_gradient_ = has_gradient; }

  ParamTable take() { return std::move(table_); }

 private:
  DecayRule rule_;
  bool has_gradient_ = true;
  ParamTable table_;
};

void add_encoder_layer(TableBuilder& builder, const Dims& dims, DecayRule rule, int64_t layer) {
  const std::string prefix = concat("layer.", layer, ".");
  const int64_t qkv_parts = qkv_parameters(rule);
  builder.add(prefix + "attention.qkv.weight", {3 * dims.H, dims.H}, ParamClass::kMatrix, layer,
              qkv_parts);
  builder.add(prefix + "attention.qkv.bias", {3 * dims.H}, ParamClass::kQkvBias, layer, qkv_parts);
  builder.add_dense(prefix + "attention.output", dims.H, dims.H, layer);
  builder.add_layer_norm(prefix + "attention.layer_norm", dims.H, ParamClass::kAttentionLnGamma,
                         layer);
  builder.add_dense(prefix + "feed_forward.in", dims.F, dims.H, layer);
  builder.add_dense(prefix + "feed_forward.out", dims.H, dims.F, layer);
  builder.add_layer_norm(prefix + "feed_forward.layer_norm", dims.H, ParamClass::kOutputLnGamma,
                         layer);
}

uint64_t fnv1a_hash(const std::string& text) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return hash;
}

/// Quantile of the standard normal distribution for p in [0.02, 0.98], to seven digits.
/// Wichura, The percentage points of the normal distribution (Applied Statistics 37, 1988), PPND7.
double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0);
  }
  const double r = std::sqrt(-std::log(q < 0 ? p : 1.0 - p)) - 1.6;
  const double tail = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
                      ((0.12021132975 * r + 0.73700164250) * r + 1.0);
  return q < 0 ? -tail : tail;
}

/// normal(0, stddev) cut at two deviations, for elements [0, count) of the named tensor.
void fill_truncated_normal(const std::string& name, uint64_t seed, double stddev, int64_t count,
                           float* out) {
  constexpr double kBelowMinusTwo = 0.022750131948179207;  // P(z < -2)
  constexpr double kWordToProbability = (1.0 - 2.0 * kBelowMinusTwo) / 4294967296.0;
  const uint64_t hash = fnv1a_hash(name);
  const uint32_t site = static_cast<uint32_t>(hash);
  for (int64_t begin = 0; begin < count; begin += 4) {
    const PhiloxWords words = random_block(seed, hash >> 32, site, begin / 4);
    for (int64_t i = begin; i < std::min(begin + 4, count); ++i) {
      const double p = kBelowMinusTwo + (words.elem[i - begin] + 0.5) * kWordToProbability;
      out[i] = static_cast<float>(stddev * normal_quantile(p));
    }
  }
}

void initialize_param(const ParamInfo& param, double stddev, uint64_t seed, float* out) {
  switch (param.param_class) {
    case ParamClass::kMatrix:
    case ParamClass::kEmbedding:
      fill_truncated_normal(param.name, seed, stddev, param.elements, out);
      return;
    case ParamClass::kEmbeddingLnGamma:
    case ParamClass::kAttentionLnGamma:
    case ParamClass::kOutputLnGamma:
    case ParamClass::kHeadLnGamma:
      std::fill_n(out, param.elements, 1.0f);
      return;
    case ParamClass::kBias:
    case ParamClass::kQkvBias:
    case ParamClass::kLnBias:
      return;
  }
}

}  // namespace

const ParamInfo& ParamTable::find(const std::string& name) const {
  const auto found = std::ranges::find_if(params, [&](const auto& p) { return p.name == name; });
  BERTHA_CHECK(found != params.end(), "no parameter is named \"", name, "\"");
  return *found;
}

View ParamTable::view(const ParamInfo& param, void* flat, DType dtype) const {
  BERTHA_CHECK(param.offset + param.elements <= elements, param.name, " ends at element ",
               param.offset + param.elements, " of a table with ", elements);
  void* data = static_cast<char*>(flat) + param.offset * size_bytes(dtype);
  return param.shape.size() == 1 ? View(data, dtype, {param.shape[0]})
                                 : View(data, dtype, {param.shape[0], param.shape[1]});
}

ParamTable make_param_table(const Dims& dims, DecayRule rule, double nsp_weight) {
  TableBuilder builder(rule);
  builder.begin_part();
  builder.add("embeddings.word.weight", {dims.V, dims.H}, ParamClass::kEmbedding);
  builder.add("embeddings.position.weight", {dims.P, dims.H}, ParamClass::kEmbedding);
  builder.add("embeddings.segment.weight", {dims.G, dims.H}, ParamClass::kEmbedding);
  builder.add_layer_norm("embeddings.layer_norm", dims.H, ParamClass::kEmbeddingLnGamma);
  for (int64_t layer = 0; layer < dims.L; ++layer) {
    builder.begin_part();
    add_encoder_layer(builder, dims, rule, layer);
  }
  builder.begin_part();
  builder.set_gradient(nsp_weight > 0);
  builder.add_dense("pooler", dims.H, dims.H);
  builder.set_gradient(true);
  builder.add_dense("mlm.transform", dims.H, dims.H);
  builder.add_layer_norm("mlm.layer_norm", dims.H, ParamClass::kHeadLnGamma);
  builder.add("mlm.output.bias", {dims.V}, ParamClass::kBias);
  builder.set_gradient(nsp_weight > 0);
  builder.add_dense("nsp", 2, dims.H);
  return builder.take();
}

void initialize(const ParamTable& table, const Dims& dims, double stddev, uint64_t seed,
                float* flat) {
  std::fill_n(flat, table.elements, 0.0f);
  for (const ParamInfo& param : table.params) {
    initialize_param(param, stddev, seed, flat + param.offset);
  }
  const ParamInfo& words = table.find("embeddings.word.weight");
  std::fill(flat + words.offset + dims.C * dims.H, flat + words.offset + dims.V * dims.H, 0.0f);
}

}  // namespace bertha
