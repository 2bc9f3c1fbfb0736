#include "harness/model/bert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "kernels/base/arguments.h"
#include "kernels/base/tests/tolerance.h"
#include "tests/harness/model/tiny_model.h"

namespace bertha::testing {
namespace {

ModelConfig small_config(double dropout) {
  return {.layers = 2,
          .hidden = 16,
          .heads = 2,
          .feed_forward = 24,
          .vocab_size = 37,
          .max_positions = 16,
          .hidden_dropout = dropout,
          .attention_dropout = dropout};
}

TinySequence random_sequence(std::mt19937& random, int32_t tokens) {
  std::uniform_int_distribution<int32_t> word(0, 36);
  TinySequence s;
  for (int32_t i = 0; i < tokens; ++i) {
    s.word_ids.push_back(word(random));
    s.segment_ids.push_back(i * 2 >= tokens ? 1 : 0);
    if (i % 5 == 1) {
      s.masked_positions.push_back(i);
      s.masked_labels.push_back(word(random));
    }
  }
  s.next_sentence_label = tokens % 2;
  return s;
}

std::vector<TinySequence> random_sequences(std::vector<int32_t> lengths) {
  std::mt19937 random(11);
  std::vector<TinySequence> sequences;
  for (const int32_t tokens : lengths) sequences.push_back(random_sequence(random, tokens));
  return sequences;
}

void randomize(TinyModel& model) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  for (const ParamInfo& param : model.table.params) {
    for (int64_t i = 0; i < param.elements; ++i) {
      const bool is_gain = param.name.ends_with(".gamma");
      model.weights[static_cast<size_t>(param.offset + i)] =
          (is_gain ? 1.0f : 0.0f) + normal(random);
    }
  }
}

constexpr BatchRows kCapacity{.tokens = 64, .seqs = 8, .masked = 32};

class BertGradient : public ::testing::TestWithParam<double> {};

// The derivative along a random direction of each tensor.
TEST_P(BertGradient, OfEveryTensorMatchesFiniteDifferences) {
  TinyModel model(small_config(GetParam()), kCapacity);
  randomize(model);
  const HostBatch batch = make_batch(random_sequences({7, 1, 12, 5, 16}));
  model.loss_and_gradients(batch);
  const std::vector<float> gradients = model.gradients;

  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  for (const ParamInfo& param : model.table.params) {
    std::vector<float> direction(static_cast<size_t>(param.elements));
    double norm = 0;
    for (float& d : direction) {
      d = normal(random);
      norm += d * d;
    }
    double expected = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      direction[i] /= static_cast<float>(std::sqrt(norm));
      expected += direction[i] * gradients[static_cast<size_t>(param.offset) + i];
    }
    constexpr float kStep = 4e-3f;
    const auto loss_at = [&](float scale) {
      const std::vector<float> kept = model.weights;
      for (size_t i = 0; i < direction.size(); ++i) {
        model.weights[static_cast<size_t>(param.offset) + i] += scale * direction[i];
      }
      const double value = model.loss(batch);
      model.weights = kept;
      return value;
    };
    const double measured = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR(measured, expected, tolerance::central_difference(kStep))
        << param.name << ", dropout " << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(Dropout, BertGradient, ::testing::Values(0.0, 0.2));

TEST(Bert, GradientsAreFinalFromTheHeadsBackToTheEmbeddings) {
  TinyModel model(small_config(0), kCapacity);
  randomize(model);
  model.loss(make_batch(random_sequences({9, 4, 16})));
  std::vector<int64_t> froms;
  std::vector<std::vector<float>> when_told;
  model.bert.backward([&](int64_t from_element) {
    froms.push_back(from_element);
    when_told.emplace_back(model.gradients.begin() + from_element, model.gradients.end());
  });
  const std::vector<int64_t>& begins = model.table.part_begins;
  EXPECT_EQ(froms, std::vector<int64_t>(begins.rbegin(), begins.rend()));
  for (size_t i = 0; i < froms.size(); ++i) {
    EXPECT_EQ(when_told[i],
              std::vector<float>(model.gradients.begin() + froms[i], model.gradients.end()))
        << "from " << froms[i];
  }
}

TEST(Bert, AsksForWeightsBeforeItReadsThem) {
  TinyModel model(small_config(0), kCapacity);
  randomize(model);
  const HostBatch batch = make_batch(random_sequences({9, 4, 16}));
  const double want = model.loss(batch);

  std::vector<float> arriving(model.weights.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<int64_t> ends;
  const auto flat = [](std::vector<float>& values) {
    return View(values.data(), DType::kF32, {static_cast<int64_t>(values.size())});
  };
  model.bert.bind(flat(arriving), flat(model.gradients), [&](int64_t end_element) {
    ends.push_back(end_element);
    std::copy_n(model.weights.begin(), end_element, arriving.begin());
  });
  EXPECT_EQ(model.loss(batch), want);
  std::vector<int64_t> parts(model.table.part_begins.begin() + 1, model.table.part_begins.end());
  parts.push_back(model.table.elements);
  EXPECT_EQ(ends, parts);
}

TEST(Bert, GradientsOfMicroBatchesAddUpToThoseOfTheWholeBatch) {
  const std::vector<TinySequence> sequences = random_sequences({9, 4, 16, 2, 7, 11});
  TinyModel whole(small_config(0), kCapacity);
  randomize(whole);
  const HostBatch all = make_batch(sequences);
  const double loss = whole.loss_and_gradients(all);

  TinyModel parts(small_config(0), kCapacity);
  randomize(parts);
  const HostBatch first = make_batch({sequences.begin(), sequences.begin() + 2});
  const HostBatch second = make_batch({sequences.begin() + 2, sequences.end()});
  parts.bert.begin_step();
  for (const HostBatch* batch : {&first, &second}) {
    parts.bert.upload(*batch);
    parts.bert.forward_train({.masked = all.num_masked, .seqs = all.num_seqs}, View());
    parts.bert.backward();
  }
  const LossStats s = parts.stats();
  EXPECT_EQ(s.mlm_count, all.num_masked);
  EXPECT_EQ(s.nsp_count, all.num_seqs);
  EXPECT_NEAR(s.mlm_loss_sum / static_cast<double>(s.mlm_count) +
                  s.nsp_loss_sum / static_cast<double>(s.nsp_count),
              loss, 5 * tolerance::kModelLossF32);
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    ASSERT_NEAR(parts.gradients[i], whole.gradients[i], tolerance::kModelGradientF32)
        << "element " << i;
  }
}

TEST(Bert, TheNeededRowsOfTheLastLayerGiveTheSameLossAndGradients) {
  const HostBatch batch = make_batch(random_sequences({7, 1, 12, 5, 16, 16}));
  const auto train = [&](LastLayer last_layer) {
    auto model = std::make_unique<TinyModel>(small_config(0.2), kCapacity);
    randomize(*model);
    model->bert.set_last_layer(last_layer);
    return std::pair(model->loss_and_gradients(batch), std::move(model));
  };
  const auto [loss, all] = train(LastLayer::kAllRows);
  const auto [loss_of_needed, needed] = train(LastLayer::kNeededRows);
  const auto rows_of_output = [](const TinyModel& model) {
    for (const NamedView& view : model.bert.activations()) {
      if (view.name == "layer.1.output") return view.values.extent(0);
    }
    return int64_t{0};
  };
  EXPECT_EQ(rows_of_output(*all), batch.num_tokens);
  EXPECT_LT(rows_of_output(*needed), batch.num_tokens);
  EXPECT_NEAR(loss_of_needed, loss, 5 * tolerance::kModelLossF32);
  for (const ParamInfo& param : all->table.params) {
    for (int64_t i = param.offset; i < param.offset + param.elements; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_NEAR(needed->gradients[at], all->gradients[at], tolerance::kModelGradientF32)
          << param.name;
    }
  }
}

TEST(Bert, ASequenceGetsTheSameLossAloneAsAmongOthers) {
  const std::vector<TinySequence> sequences = random_sequences({9, 16, 3});
  TinyModel model(small_config(0), kCapacity);
  randomize(model);
  double sum_alone = 0;
  for (const TinySequence& sequence : sequences) {
    model.loss(make_batch({sequence}));
    sum_alone += model.stats().mlm_loss_sum;
  }
  model.loss(make_batch(sequences));
  EXPECT_NEAR(model.stats().mlm_loss_sum, sum_alone,
              5 * 6 * tolerance::kModelLossF32);  // six masked tokens
}

TEST(Bert, EvaluationLeavesDropoutOut) {
  const HostBatch batch = make_batch(random_sequences({9, 16, 3}));
  TinyModel without(small_config(0), kCapacity);
  randomize(without);
  const double expected = without.loss(batch);

  TinyModel with(small_config(0.5), kCapacity);
  randomize(with);
  EXPECT_GT(std::fabs(with.loss(batch) - expected), 1e-3);
  with.bert.reset_stats();
  with.bert.forward_eval();
  const LossStats s = with.stats();
  EXPECT_NEAR(s.mlm_loss_sum / static_cast<double>(s.mlm_count) +
                  s.nsp_loss_sum / static_cast<double>(s.nsp_count),
              expected, 5 * tolerance::kModelLossF32);
}

TEST(Bert, AStepForgetsTheGradientsOfTheOneBefore) {
  const HostBatch before = make_batch(random_sequences({12, 5}));
  const HostBatch batch = make_batch(random_sequences({9, 16, 3}));
  TinyModel fresh(small_config(0), kCapacity);
  randomize(fresh);
  fresh.loss_and_gradients(batch);

  TinyModel used(small_config(0), kCapacity);
  randomize(used);
  used.loss_and_gradients(before);
  used.loss_and_gradients(batch);
  EXPECT_EQ(used.gradients, fresh.gradients);
}

TEST(Bert, AnEmptyMicroBatchAddsNothing) {
  TinyModel model(small_config(0.1), kCapacity);
  randomize(model);
  model.loss_and_gradients(make_batch(random_sequences({9, 16, 3})));
  model.bert.begin_step();
  model.bert.reset_stats();
  const HostBatch empty = make_batch({});
  model.bert.upload(empty);
  model.bert.forward_train({.masked = 3, .seqs = 2}, View());
  model.bert.backward();
  EXPECT_EQ(model.stats().mlm_count, 0);
  for (const float gradient : model.gradients) ASSERT_EQ(gradient, 0.0f);
}

TEST(Bert, ResultsDoNotDependOnTheNumberOfThreads) {
  const HostBatch batch = make_batch(random_sequences({9, 16, 3, 12}));
  std::vector<float> expected;
  for (const int threads : {1, 3}) {
    TinyModel model(small_config(0.1), kCapacity, threads);
    randomize(model);
    model.loss_and_gradients(batch);
    if (expected.empty()) expected = model.gradients;
    EXPECT_EQ(model.gradients, expected);
  }
}

}  // namespace
}  // namespace bertha::testing
