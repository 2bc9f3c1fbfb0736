#include "kernels/ops/embedding.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/backward_checks.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/base/tests/naive_dropout.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/rows/tests/naive_layer_norm.h"

namespace bertha {
namespace {

constexpr int32_t kWords = 50;
constexpr int32_t kPositions = 40;
constexpr int32_t kSegments = 2;

struct Case {
  Case(int64_t tokens_in, int64_t hidden_in) : tokens(tokens_in), hidden(hidden_in) {}

  void forward(int threads) {
    run_on_cpu(EmbeddingFwd{.word_ids = word_ids.view(),
                            .position_ids = position_ids.view(),
                            .segment_ids = segment_ids.view(),
                            .word_table = word_table.view(),
                            .position_table = position_table.view(),
                            .segment_table = segment_table.view(),
                            .gamma = gamma.view(),
                            .beta = beta.view(),
                            .sum = sum.view(),
                            .y = y.view(),
                            .mean = mean.view(),
                            .rstd = rstd.view(),
                            .mask = mask.view(),
                            .dropout = dropout.with(state.view()),
                            .epsilon = epsilon},
               threads);
  }

  void backward(int threads, Accumulate accumulate) {
    run_on_cpu(EmbeddingBwd{.dy = dy.view(),
                            .word_ids = word_ids.view(),
                            .position_ids = position_ids.view(),
                            .segment_ids = segment_ids.view(),
                            .rows_by_word = View(),
                            .sum = sum.view(),
                            .mean = mean.view(),
                            .rstd = rstd.view(),
                            .mask = mask.view(),
                            .gamma = gamma.view(),
                            .dword_table = dword_table.view(),
                            .dposition_table = dposition_table.view(),
                            .dsegment_table = dsegment_table.view(),
                            .dgamma = dgamma.view(),
                            .dbeta = dbeta.view(),
                            .dropout = dropout.with(state.view()),
                            .accumulate = accumulate},
               threads);
  }

  NaiveNormInput naive() const {
    Doubles sums;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < hidden; ++h) {
        sums.push_back(static_cast<double>(word_table[word_ids[t] * hidden + h]) +
                       static_cast<double>(position_table[position_ids[t] * hidden + h]) +
                       static_cast<double>(segment_table[segment_ids[t] * hidden + h]));
      }
    }
    return {sums, tokens, hidden, gamma.doubles(), beta.doubles(), static_cast<double>(epsilon)};
  }

  int64_t tokens;
  int64_t hidden;
  float epsilon = 0.0625f;
  NaiveDropout dropout{.site = 3, .probability = 0.15f};
  HostTensor<uint64_t> state = dropout.state();
  HostTensor<int32_t> word_ids = random_ids(tokens, kWords, 1);
  HostTensor<int32_t> position_ids = random_ids(tokens, kPositions, 2);
  HostTensor<int32_t> segment_ids = random_ids(tokens, kSegments, 3);
  HostTensor<float> word_table = random_tensor({kWords, hidden}, 4);
  HostTensor<float> position_table = random_tensor({kPositions, hidden}, 5);
  HostTensor<float> segment_table = random_tensor({kSegments, hidden}, 6);
  HostTensor<float> gamma = random_tensor({hidden}, 7);
  HostTensor<float> beta = random_tensor({hidden}, 8);
  HostTensor<float> sum = garbage_tensor({tokens, hidden});
  HostTensor<float> y = garbage_tensor({tokens, hidden});
  HostTensor<float> mean = garbage_tensor({tokens});
  HostTensor<float> rstd = garbage_tensor({tokens});
  HostTensor<uint8_t> mask = HostTensor<uint8_t>({tokens, hidden / 8}, 0xA5);
  HostTensor<float> dy = random_tensor({tokens, hidden}, 9);
  HostTensor<float> dword_table{{kWords, hidden}};
  HostTensor<float> dposition_table{{kPositions, hidden}};
  HostTensor<float> dsegment_table{{kSegments, hidden}};
  HostTensor<float> dgamma = garbage_tensor({hidden});
  HostTensor<float> dbeta = garbage_tensor({hidden});
};

constexpr std::pair<int64_t, int64_t> kShapes[] = {{0, 16}, {1, 8}, {7, 264}, {33, 40}, {511, 24}};

TEST(Embedding, ForwardMatchesTheDefinition) {
  for (const auto& [tokens, hidden] : kShapes) {
    Case c(tokens, hidden);
    c.forward(1);
    const NaiveNorm want = naive_layer_norm(c.naive());
    const std::string shape = concat(" at [", tokens, ",", hidden, "]");
    expect_close(c.sum.values, c.naive().x, tolerance::kRowF32, "sum" + shape);
    expect_close(c.y.values, c.dropout.of(want.y), tolerance::kRowF32, "y" + shape, 20.0);
    expect_close(c.mean.values, want.mean, tolerance::kRowF32, "mean" + shape, 6.0);
    expect_close(c.rstd.values, want.rstd, tolerance::kRowF32, "rstd" + shape);
  }
}

/// Each row of `table`, `before` everywhere at first, has received the rows of `dsum` of its ids.
void expect_scattered(const std::string& what, const HostTensor<float>& table, double before,
                      const HostTensor<int32_t>& ids, const Doubles& dsum) {
  const size_t hidden = static_cast<size_t>(table.extents[1]);
  Doubles want(table.values.size(), before);
  for (size_t i = 0; i < dsum.size(); ++i) {
    want[static_cast<size_t>(ids.values[i / hidden]) * hidden + i % hidden] += dsum[i];
  }
  expect_close(table.values, want, tolerance::kRowGradientF32, what, 8 + largest_magnitude(want));
}

TEST(Embedding, BackwardAddsEveryTokenToItsRows) {
  for (const auto& [tokens, hidden] : kShapes) {
    Case c(tokens, hidden);
    for (HostTensor<float>* table : {&c.dword_table, &c.dposition_table, &c.dsegment_table}) {
      table->values.assign(table->values.size(), 0.5f);
    }
    c.forward(1);
    c.backward(1, Accumulate::kNo);
    const NaiveNormGradient want =
        naive_layer_norm_backward(c.naive(), c.dropout.of(c.dy.doubles()));
    const std::string shape = concat(" at [", tokens, ",", hidden, "]");
    expect_scattered("dword_table" + shape, c.dword_table, 0.5, c.word_ids, want.dx);
    expect_scattered("dposition_table" + shape, c.dposition_table, 0.5, c.position_ids, want.dx);
    expect_scattered("dsegment_table" + shape, c.dsegment_table, 0.5, c.segment_ids, want.dx);
    expect_close(c.dgamma.values, want.dgamma, tolerance::kRowF32, "dgamma" + shape,
                 8 + largest_magnitude(want.dgamma));
    expect_close(c.dbeta.values, want.dbeta, tolerance::kRowF32, "dbeta" + shape,
                 8 + largest_magnitude(want.dbeta));
  }
}

TEST(Embedding, BackwardMatchesFiniteDifferences) {
  expect_finite_differences(Case(9, 24),
                            {{"word_table", &Case::word_table, &Case::dword_table},
                             {"position_table", &Case::position_table, &Case::dposition_table},
                             {"segment_table", &Case::segment_table, &Case::dsegment_table},
                             {"gamma", &Case::gamma, &Case::dgamma},
                             {"beta", &Case::beta, &Case::dbeta}});
}

TEST(Embedding, DropsExactlyTheDocumentedElements) {
  Case c(511, 40);
  c.beta.values.assign(c.beta.values.size(), 100.0f);  // no element is zero by itself
  c.forward(1);
  for (int64_t i = 0; i < c.y.elements(); ++i) {
    ASSERT_EQ(c.y[i] == 0.0f, c.dropout.drops(i)) << "element " << i;
  }
}

TEST(Embedding, RowsWithoutGradientAddNothing) {
  Case c(33, 24);
  for (int64_t i = 10 * 24; i < c.dy.elements(); ++i) c.dy[i] = 0.0f;
  for (int64_t t = 10; t < 33; ++t) c.word_ids[t] = 49;
  for (int64_t t = 0; t < 10; ++t) c.word_ids[t] = static_cast<int32_t>(t);
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  for (int64_t h = 0; h < 24; ++h) EXPECT_EQ(c.dword_table[49 * 24 + h], 0.0f);
}

TEST(Embedding, AccumulateAddsToTheParameterGradients) {
  expect_backward_adds(Case(33, 24), {&Case::dgamma, &Case::dbeta});
}

TEST(Embedding, RefusesAnIdOutsideItsTable) {
  Case c(7, 8);
  c.word_ids[4] = kWords;
  EXPECT_THAT(error_of([&] { c.forward(1); }, ExitCode::kInternal), HasSubstr("word_ids[4] = 50"));
}

TEST(Embedding, IsTheSameForEveryNumberOfThreads) {
  expect_same_for_threads(Case(511, 40), {&Case::y, &Case::dword_table, &Case::dposition_table,
                                          &Case::dsegment_table, &Case::dgamma, &Case::dbeta});
}

}  // namespace
}  // namespace bertha
