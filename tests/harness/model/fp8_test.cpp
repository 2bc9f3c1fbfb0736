#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/model/activations.h"
#include "harness/model/fp8_state.h"
#include "kernels/base/tests/tolerance.h"
#include "tests/harness/model/tiny_model.h"

namespace bertha::testing {
namespace {

constexpr BatchRows kFp8Capacity{.tokens = 64, .seqs = 8, .masked = 32};

ModelConfig small_model() {
  return {.name = "fp8",
          .layers = 2,
          .hidden = 32,
          .heads = 2,
          .feed_forward = 48,
          .vocab_size = 61,
          .max_positions = 32,
          .hidden_dropout = 0,
          .attention_dropout = 0};
}

HostBatch batch_of(int64_t sequences) {
  std::vector<TinySequence> all;
  for (int64_t i = 0; i < sequences; ++i) {
    TinySequence sequence{.word_ids = {},
                          .segment_ids = {},
                          .masked_positions = {1, 3},
                          .masked_labels = {static_cast<int32_t>(5 + i), 9},
                          .next_sentence_label = static_cast<int32_t>(i % 2)};
    for (int64_t t = 0; t < 7 + i; ++t) {
      sequence.word_ids.push_back(static_cast<int32_t>((11 * i + 7 * t + 2) % 61));
      sequence.segment_ids.push_back(t > 3 ? 1 : 0);
    }
    all.push_back(std::move(sequence));
  }
  return make_batch(all);
}

class Model : public TinyModel {
 public:
  explicit Model(bool fp8, bool graphs = false, const ModelConfig& config = small_model())
      : TinyModel(config, kFp8Capacity, 1, fp8, graphs) {
    initialize(table, dims, 0.2, 3, weights.data());
  }

  std::vector<int32_t> maxima() const {
    const View view = bert.fp8_maxima();
    return {view.as<int32_t>(), view.as<int32_t>() + view.elements()};
  }

  /// Through one batch in io, for its scales.
  void find_scales(const HostBatch& batch) {
    loss_and_gradients(batch);
    bert.update_scales(View());
  }

  double eval_loss(const HostBatch& batch) {
    bert.reset_stats();
    bert.upload(batch);
    bert.forward_eval();
    return stats().mlm_loss_sum;
  }
};

constexpr size_t kMatrices = 9;  // of each kind: two layers of four GEMMs, and the decoder

/// What a version without a decoder in fp8 would have stored.
std::vector<int> without_decoder(std::vector<int> scales) {
  for (const size_t third : {3, 2, 1}) {
    scales.erase(scales.begin() + static_cast<std::ptrdiff_t>(third * kMatrices - 1));
  }
  return scales;
}

double dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

TEST(Fp8Model, WithoutScalesItComputesInIo) {
  Model io(false);
  Model fp8(true);
  const HostBatch batch = batch_of(3);
  EXPECT_FALSE(io.bert.needs_scales());
  EXPECT_TRUE(fp8.bert.needs_scales());
  EXPECT_EQ(fp8.eval_loss(batch), io.eval_loss(batch));
  EXPECT_EQ(fp8.loss_and_gradients(batch), io.loss_and_gradients(batch));
  // With io f32 only the fp8 model saves derivatives of GELUs in bytes, within half a step in each
  // of the two layers. Gradients above the last GELU are the same.
  bool is_above = false;
  for (const ParamInfo& param : io.table.params) {
    const float* exact = io.gradients.data() + param.offset;
    std::vector<float> error(fp8.gradients.data() + param.offset,
                             fp8.gradients.data() + param.offset + param.elements);
    for (size_t i = 0; i < error.size(); ++i) error[i] -= exact[i];
    const double bound = is_above ? 0.0 : static_cast<double>(kDerivativeStep);
    EXPECT_LE(std::sqrt(dot(error.data(), error.data(), param.elements)),
              bound * std::sqrt(dot(exact, exact, param.elements)))
        << param.name;
    is_above = is_above || param.name == "layer.1.feed_forward.in.bias";
  }
  EXPECT_TRUE(is_above);
  for (const int32_t most : fp8.maxima()) EXPECT_GT(most, 0);
  EXPECT_EQ(io.bert.fp8_maxima().elements(), 0);
}

void expect_gradients_of_io(LastLayer last_layer) {
  Model io(false);
  Model fp8(true);
  for (Model* model : {&io, &fp8}) {
    model->bert.set_last_layer(last_layer);
    for (const ParamInfo& param : model->table.params) {  // not as in the other LayerNorms
      if (param.name != "layer.0.feed_forward.layer_norm.gamma") continue;
      std::fill_n(model->weights.begin() + param.offset, param.elements, 0.5f);
    }
    model->bert.weights_changed();
  }
  const HostBatch batch = batch_of(4);
  fp8.find_scales(batch);
  const double loss = fp8.loss_and_gradients(batch);
  const double want = io.loss_and_gradients(batch);
  EXPECT_NE(loss, want);
  EXPECT_NEAR(loss, want, tolerance::kFp8ModelLoss * want);
  for (const ParamInfo& param : io.table.params) {
    const float* got = fp8.gradients.data() + param.offset;
    const float* exact = io.gradients.data() + param.offset;
    const double norm = std::sqrt(dot(exact, exact, param.elements));
    const double found = std::sqrt(dot(got, got, param.elements));
    if (norm < 1e-6) continue;  // keys have no bias gradient, and the word table has unused rows
    EXPECT_GT(dot(got, exact, param.elements) / (norm * found), tolerance::kFp8GradientCosine)
        << param.name;
    EXPECT_NEAR(found / norm, 1, tolerance::kFp8GradientNorm) << param.name;
  }
  EXPECT_EQ(fp8.stats().fp8_saturated, 0);  // the scales are those of this very batch
}

TEST(Fp8Model, GradientsAreThoseOfIoButForRounding) {
  expect_gradients_of_io(LastLayer::kNeededRows);
}

TEST(Fp8Model, GradientsAreThoseOfIoIfTheSecondLayerComputesItsResidualAgain) {
  expect_gradients_of_io(LastLayer::kAllRows);
}

/// Notes the operations of a GEMM forward instead of running them.
class NotedOps final : public Ops {
 public:
  std::vector<Quantize> quantized;
  std::vector<LinearFwd> multiplied;

 private:
  void enqueue(AnyArgs any) override {
    if (const auto* args = std::get_if<const Quantize*>(&any)) quantized.push_back(**args);
    if (const auto* args = std::get_if<const LinearFwd*>(&any)) multiplied.push_back(**args);
  }
};

bool is_same(const View& a, const View& b) {
  return a.data == b.data &&
         (a.data == nullptr || (a.dtype == b.dtype && a.rank == b.rank && a.extents == b.extents));
}

TEST(Fp8Model, AnInputRoundedAsItIsStoredIsThatOfItsPass) {
  constexpr BatchRows kRows{.tokens = 16, .seqs = 1, .masked = 1, .needed = 2, .last = 16};
  const Dims dims = make_dims(small_model());
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const Buffer memory = device->allocate(1 << 20);
  Arena arena(memory);
  const Activations activations =
      allocate_activations(arena, dims, kRows, kRows, DType::kBF16, true);
  const LayerActivations& saved = activations.layers[0];
  const Fp8State state = allocate_fp8_state(arena, dims);
  const Fp8Layer layer{.weights = state.weight_copies[0],
                       .inputs_transposed = saved.fp8_inputs,
                       .input_scales = state.inputs(),
                       .gradient_scales = state.gradients(),
                       .weight_scales = state.weights(),
                       .rows = activations.scratch.fp8_rows,
                       .inner_rows = activations.scratch.fp8_inner_rows,
                       .gradient_transposed = activations.scratch.fp8_gradient_transposed,
                       .unused_amax = state.unused_amax,
                       .unused_count = state.unused_count,
                       .saturated = arena.take(DType::kI64, {1}),
                       .live_tokens = arena.take(DType::kI32, {1})};
  const LinearFwd in_io{.x = saved.attention_y,
                        .weight = arena.take(DType::kBF16, {dims.F, dims.H}),
                        .bias = View(),
                        .y = saved.ff_mid,
                        .pre_activation = View()};
  for (const GemmMode mode : {GemmMode::kFp8, GemmMode::kFp8Eval}) {
    NotedOps by_pass;
    EncoderGemms(by_pass, mode, &layer).forward(EncoderGemm::kFfIn, in_io);
    NotedOps as_stored;
    const EncoderGemms gemms(as_stored, mode, &layer);
    const Fp8Result result = gemms.input_result(EncoderGemm::kFfIn);
    gemms.forward(EncoderGemm::kFfIn, in_io, result);

    ASSERT_EQ(by_pass.quantized.size(), 1u);
    const Quantize& want = by_pass.quantized[0];
    const Quantize got = quantize_to(result, in_io.x);
    for (View Quantize::*field : {&Quantize::x, &Quantize::scale, &Quantize::q, &Quantize::amax,
                                  &Quantize::saturated, &Quantize::live_rows}) {
      EXPECT_TRUE(is_same(got.*field, want.*field));
    }
    ASSERT_EQ(as_stored.quantized.size(), mode == GemmMode::kFp8 ? 1u : 0u);
    for (const Quantize& transposition : as_stored.quantized) {
      EXPECT_TRUE(is_same(transposition.x, want.q));
      EXPECT_TRUE(is_same(transposition.transposed, want.transposed));
    }
    for (View LinearFwd::*field : {&LinearFwd::x, &LinearFwd::x_inverse_scale, &LinearFwd::weight,
                                   &LinearFwd::weight_inverse_scale}) {
      EXPECT_TRUE(is_same(as_stored.multiplied.at(0).*field, by_pass.multiplied.at(0).*field));
    }
  }
  for (const GemmMode mode : {GemmMode::kIo, GemmMode::kRecord}) {
    NotedOps none;
    EXPECT_FALSE(EncoderGemms(none, mode, &layer).input_result(EncoderGemm::kFfIn).q.has_data());
  }
}

TEST(Fp8Model, LayerNormRoundsByTheScaleOfTheNextGemm) {
  const HostBatch batch = batch_of(4);
  for (const size_t gemm : {2u, 4u}) {  // feed-forward in of layer 0, QKV of layer 1
    Model fp8(true);
    fp8.find_scales(batch);
    std::vector<int> scales = fp8.bert.scale_exponents();
    scales[gemm] = 100;  // saturates all elements but zeros
    fp8.bert.set_scale_exponents(scales);
    fp8.loss_and_gradients(batch);
    EXPECT_GE(fp8.stats().fp8_saturated, batch.num_tokens * fp8.dims.H) << gemm;
    EXPECT_LT(fp8.stats().fp8_saturated, 2 * batch.num_tokens * fp8.dims.H) << gemm;
    for (const int32_t most : fp8.maxima()) EXPECT_GT(most, 0);
  }
}

TEST(Fp8Model, EvaluationReadsScalesAndRecordsNothing) {
  Model fp8(true);
  const HostBatch batch = batch_of(4);
  const double in_io = fp8.eval_loss(batch);
  fp8.find_scales(batch);
  const std::vector<int> scales = fp8.bert.scale_exponents();
  const double loss = fp8.eval_loss(batch_of(2));
  std::vector<int32_t> maxima = fp8.maxima();  // but of the weights, which it has copied
  maxima.resize(kMatrices * 2);
  EXPECT_EQ(maxima, std::vector<int32_t>(kMatrices * 2, 0));
  EXPECT_EQ(fp8.bert.scale_exponents(), scales);
  EXPECT_EQ(fp8.stats().fp8_saturated, 0);
  EXPECT_EQ(fp8.eval_loss(batch_of(2)), loss);
  EXPECT_NE(fp8.eval_loss(batch), in_io);
}

TEST(Fp8Model, PaddingRowsHaveNoPartInTheMaxima) {
  const HostBatch few = batch_of(1);  // seven tokens in eight rows
  ASSERT_EQ(few.num_tokens % 8, 7);
  Model fresh(true);
  fresh.loss_and_gradients(few);
  Model used(true);
  for (int slot = 0; slot < 2; ++slot) used.loss_and_gradients(batch_of(6));
  used.bert.set_scale_exponents({});
  used.loss_and_gradients(few);
  EXPECT_EQ(used.maxima(), fresh.maxima());
}

TEST(Fp8Model, CopiesOfWeightsAreMadeAnewWhenTheyChanged) {
  Model fp8(true);
  const HostBatch batch = batch_of(4);
  fp8.find_scales(batch);
  const double before = fp8.eval_loss(batch);
  const ParamInfo& weight = fp8.table.find("layer.1.feed_forward.in.weight");
  for (int64_t i = 0; i < weight.elements; ++i) {
    fp8.weights[static_cast<size_t>(weight.offset + i)] *= -3;
  }
  EXPECT_EQ(fp8.eval_loss(batch), before);
  fp8.bert.weights_changed();
  EXPECT_NE(fp8.eval_loss(batch), before);
}

TEST(Fp8Model, WeightsOfOneLayerAtATimeOrOfAllTogether) {
  Model each(true);
  Model together(true, true);  // all layers are one piece
  const HostBatch batch = batch_of(4);
  each.find_scales(batch);
  together.find_scales(batch);
  EXPECT_EQ(together.loss_and_gradients(batch), each.loss_and_gradients(batch));
  EXPECT_EQ(together.gradients, each.gradients);
  EXPECT_EQ(together.maxima(), each.maxima());
}

TEST(Fp8Model, WeightsHaveTheScalesOfTheStepBefore) {
  Model fp8(true);
  const HostBatch batch = batch_of(4);
  fp8.find_scales(batch);
  std::vector<int> scales = fp8.bert.scale_exponents();
  const ParamInfo& weight = fp8.table.find("layer.1.feed_forward.in.weight");
  for (int64_t i = 0; i < weight.elements; ++i) {
    fp8.weights[static_cast<size_t>(weight.offset + i)] *= 4;
  }
  fp8.bert.weights_changed();
  fp8.loss_and_gradients(batch);
  EXPECT_GT(fp8.stats().fp8_saturated, 0);
  fp8.bert.update_scales(View());
  const std::vector<int> updated = fp8.bert.scale_exponents();
  constexpr size_t kChanged = 6;  // the third GEMM of layer 1
  scales[2 * kMatrices + kChanged] -= 2;
  EXPECT_TRUE(
      std::equal(updated.begin() + 2 * kMatrices, updated.end(), scales.begin() + 2 * kMatrices));
}

TEST(Fp8Model, SaturatedElementsAreCounted) {
  Model fp8(true);
  const HostBatch batch = batch_of(4);
  fp8.find_scales(batch);
  std::vector<int> scales = fp8.bert.scale_exponents();
  scales[3] = 100;  // of the last GEMM's input in the first layer: no GELU of a live token is zero
  fp8.bert.set_scale_exponents(scales);
  fp8.loss_and_gradients(batch);
  EXPECT_GE(fp8.stats().fp8_saturated, batch.num_tokens * fp8.dims.F);
  EXPECT_LT(fp8.stats().fp8_saturated, 2 * batch.num_tokens * fp8.dims.F);
  const int64_t inputs = 32 + 32 + 32 + 48;
  const int64_t gradients = 3 * 32 + 32 + 48 + 32;
  EXPECT_EQ(quantized_per_token(fp8.dims), 2 * (inputs + gradients));
  EXPECT_EQ(quantized_per_masked_token(fp8.dims), 32 + 64);
}

TEST(Fp8Model, SaturatedElementsOfTheDecoderAreCounted) {
  Model fp8(true);
  const HostBatch batch = batch_of(4);
  fp8.find_scales(batch);
  std::vector<int> scales = fp8.bert.scale_exponents();
  const double loss = fp8.loss_and_gradients(batch);
  scales[kMatrices - 1] = 100;  // no result of a LayerNorm is zero
  fp8.bert.set_scale_exponents(scales);
  EXPECT_NE(fp8.loss_and_gradients(batch), loss);
  EXPECT_EQ(fp8.stats().fp8_saturated, batch.num_masked * fp8.dims.H);
}

TEST(Fp8Model, GradientsOfTheDecoderAreThoseOfIoButForItsRoundings) {
  Model io(true);  // but in the encoder
  Model fp8(true);
  const HostBatch batch = batch_of(4);
  fp8.find_scales(batch);
  io.bert.set_scale_exponents(without_decoder(fp8.bert.scale_exponents()));
  const double loss = fp8.loss_and_gradients(batch);
  const double want = io.loss_and_gradients(batch);
  EXPECT_NE(loss, want);
  EXPECT_NEAR(loss, want, tolerance::kFp8DecoderLoss * want);
  for (const char* name : {"embeddings.word.weight", "mlm.output.bias", "mlm.transform.weight",
                           "mlm.layer_norm.gamma"}) {
    const ParamInfo& param = io.table.find(name);
    const float* got = fp8.gradients.data() + param.offset;
    const float* exact = io.gradients.data() + param.offset;
    const double norm = std::sqrt(dot(exact, exact, param.elements));
    const double found = std::sqrt(dot(got, got, param.elements));
    const double cosine = dot(got, exact, param.elements) / (norm * found);
    EXPECT_GT(cosine, tolerance::kFp8DecoderCosine) << name;
    EXPECT_LT(cosine, 1 - 1e-6) << name;
    EXPECT_NEAR(found / norm, 1, tolerance::kFp8DecoderNorm) << name;
  }
}

/// With 6 masked tokens the largest gradients are near 1/6, which e5m2 at a power of two rounds by
/// 6 %. What may be left are the probabilities of the labels, 1/61 on average.
TEST(Fp8Model, GradientsOfLabelsAreNotAllRoundedTheSameWay) {
  Model io(true);  // but in the encoder
  Model fp8(true);
  const HostBatch batch = batch_of(3);
  ASSERT_EQ(batch.num_masked, 6);
  fp8.find_scales(batch);
  io.bert.set_scale_exponents(without_decoder(fp8.bert.scale_exponents()));
  fp8.loss_and_gradients(batch);
  io.loss_and_gradients(batch);
  const ParamInfo& param = io.table.find("embeddings.word.weight");
  const float* got = fp8.gradients.data() + param.offset;
  const float* exact = io.gradients.data() + param.offset;
  const double along = dot(got, exact, param.elements) / dot(exact, exact, param.elements);
  EXPECT_NEAR(along, 1, 0.02);
}

TEST(Fp8Model, ScalesOfTheEncoderAloneGainThoseOfTheDecoder) {
  Model fp8(true);
  const HostBatch batch = batch_of(4);
  fp8.find_scales(batch);
  const std::vector<int> scales = fp8.bert.scale_exponents();
  ASSERT_EQ(std::ssize(scales), fp8_scale_count(2));
  const std::vector<int> of_encoder = without_decoder(scales);
  ASSERT_EQ(std::ssize(of_encoder), fp8_encoder_scale_count(2));

  Model older(true);
  older.bert.set_scale_exponents(of_encoder);
  EXPECT_FALSE(older.bert.needs_scales());
  EXPECT_EQ(older.bert.scale_exponents(), of_encoder);
  EXPECT_NE(older.eval_loss(batch), fp8.eval_loss(batch));
  for (Model* model : {&older, &fp8}) {
    model->loss_and_gradients(batch);
    model->bert.update_scales(View());
    model->bert.weights_changed();
  }
  const std::vector<int> gained = older.bert.scale_exponents();
  const std::vector<int> wanted = fp8.bert.scale_exponents();
  ASSERT_EQ(gained.size(), wanted.size());
  for (const size_t end : {kMatrices, 2 * kMatrices, 3 * kMatrices}) {
    EXPECT_EQ(gained[end - 1], wanted[end - 1]);
  }
  EXPECT_EQ(older.eval_loss(batch), fp8.eval_loss(batch));
}

TEST(Fp8Model, DecoderOfAnUnalignedVocabularyStaysInIo) {
  ModelConfig config = small_model();
  config.vocab_size = 65;
  Model fp8(true, false, config);
  ASSERT_EQ(fp8.dims.V, 72);
  EXPECT_EQ(fp8_gemms(fp8.dims).find("decoder"), std::string::npos);
  EXPECT_NE(fp8_gemms(make_dims(small_model())).find("decoder"), std::string::npos);
  EXPECT_EQ(quantized_per_masked_token(fp8.dims), 0);
  const HostBatch batch = batch_of(4);
  for (int step = 0; step < 2; ++step) {
    fp8.loss_and_gradients(batch);
    const std::vector<int32_t> maxima = fp8.maxima();
    for (size_t i = 0; i < maxima.size(); ++i) {
      EXPECT_EQ(maxima[i] == 0, i % kMatrices == kMatrices - 1) << i;
    }
    fp8.bert.update_scales(View());
  }
}

TEST(Fp8Model, ScalesOfAnotherModelAreRefused) {
  Model fp8(true);
  EXPECT_THROW(fp8.bert.set_scale_exponents({1, 2, 3}), Error);
  const std::vector<int> scales{0,  1,  2,  3,  4,  5,  6,  7, -8, -7, -6, -5, 1, 2,
                                -4, -3, -2, 15, 14, 13, 12, 3, 11, 10, 9,  8,  -9};
  fp8.bert.set_scale_exponents(scales);
  EXPECT_EQ(fp8.bert.scale_exponents(), scales);
}

}  // namespace
}  // namespace bertha::testing
