#include <gtest/gtest.h>

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
  explicit Model(bool fp8, bool graphs = false)
      : TinyModel(small_model(), kFp8Capacity, 1, fp8, graphs) {
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
  EXPECT_EQ(fp8.gradients, io.gradients);
  for (const int32_t most : fp8.maxima()) EXPECT_GT(most, 0);
  EXPECT_EQ(io.bert.fp8_maxima().elements(), 0);
}

TEST(Fp8Model, GradientsAreThoseOfIoButForRounding) {
  Model io(false);
  Model fp8(true);
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
                       .gelu_derivative = saved.fp8_derivative,
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
                        .y = saved.ff_pre,
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
  maxima.resize(8 * 2);
  EXPECT_EQ(maxima, std::vector<int32_t>(8 * 2, 0));
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
  constexpr size_t kThird = 8;    // two layers of four GEMMs
  constexpr size_t kChanged = 6;  // the third GEMM of layer 1
  scales[2 * kThird + kChanged] -= 2;
  EXPECT_TRUE(std::equal(updated.begin() + 2 * kThird, updated.end(), scales.begin() + 2 * kThird));
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
}

TEST(Fp8Model, ScalesOfAnotherModelAreRefused) {
  Model fp8(true);
  EXPECT_THROW(fp8.bert.set_scale_exponents({1, 2, 3}), Error);
  const std::vector<int> scales{0,  1,  2,  3,  4,  5,  6,  7,  -8, -7, -6, -5,
                                -4, -3, -2, 15, 14, 13, 12, 11, 10, 9,  8,  -9};
  fp8.bert.set_scale_exponents(scales);
  EXPECT_EQ(fp8.bert.scale_exponents(), scales);
}

}  // namespace
}  // namespace bertha::testing
