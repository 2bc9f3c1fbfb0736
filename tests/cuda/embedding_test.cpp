#include "kernels/ops/embedding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/base/tests/naive_dropout.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/tests/naive_layer_norm.h"
#include "tests/cuda/expect_each_close.h"
#include "tests/cuda/gpu.h"

namespace bertha::testing {
namespace {

constexpr float kEpsilon = 0.0625f;
constexpr int32_t kWords = 50;
constexpr int32_t kPositions = 40;
constexpr int64_t kPaddingRows = 3;  // at the end of every batch that is long enough
constexpr std::pair<int64_t, int64_t> kShapes[] = {{0, 16},    {1, 8},     {7, 264},  {511, 24},
                                                   {33, 40},   {67, 1024}, {13, 768}, {45, 512},
                                                   {300, 256}, {5, 4104}};

const TestBackend& gpu_with(CudaOptions::EmbeddingGradient gradient) {
  static const TestBackend atomic =
      make_gpu({.embedding_gradient = CudaOptions::EmbeddingGradient::kAtomic});
  static const TestBackend sorted =
      make_gpu({.embedding_gradient = CudaOptions::EmbeddingGradient::kSorted});
  return gradient == CudaOptions::EmbeddingGradient::kAtomic ? atomic : sorted;
}

HostTensor<int32_t> sorted_rows(const HostTensor<int32_t>& ids, int64_t live) {
  HostTensor<int32_t> rows({ids.elements()}, -1);
  std::iota(rows.values.begin(), rows.values.begin() + live, 0);
  std::stable_sort(rows.values.begin(), rows.values.begin() + live,
                   [&](int32_t a, int32_t b) { return ids[a] < ids[b]; });
  return rows;
}

struct Options {
  CudaOptions::EmbeddingGradient gradient = CudaOptions::EmbeddingGradient::kSorted;
  float probability = 0.1f;
  int32_t segments = 2;
  bool one_word = false;  // in all rows
};

struct Case {
  Case(DType io_in, int64_t tokens_in, int64_t hidden_in, const Options& options)
      : backend(gpu_with(options.gradient)),
        io(io_in),
        tokens(tokens_in),
        hidden(hidden_in),
        live(tokens > 2 * kPaddingRows ? tokens - kPaddingRows : tokens),
        segments(options.segments),
        dropout{.probability = options.probability},
        words(random_ids(tokens, options.one_word ? 1 : kWords, 1)),
        positions(random_ids(tokens, kPositions, 2)),
        segment_ids(random_ids(tokens, segments, 3)),
        word_table(rounded_to(io, random_tensor({kWords, hidden}, 4))),
        position_table(rounded_to(io, random_tensor({kPositions, hidden}, 5))),
        segment_table(rounded_to(io, random_tensor({segments, hidden}, 6))),
        gamma(rounded_to(io, random_tensor({hidden}, 7))),
        beta(rounded_to(io, random_tensor({hidden}, 8))),
        dy(rounded_to(io, random_tensor({tokens, hidden}, 9))),
        word_ids(backend, words),
        position_ids(backend, positions),
        segment_ids_on(backend, segment_ids),
        rows_by_word(backend, sorted_rows(words, live)),
        state(backend, dropout.state()),
        gamma_on(backend, io, gamma),
        sum(backend, io, garbage_tensor({tokens, hidden})),
        y(backend, io, garbage_tensor({tokens, hidden})),
        mean(backend, DType::kF32, garbage_tensor({tokens})),
        rstd(backend, DType::kF32, garbage_tensor({tokens})),
        mask(backend, HostTensor<uint8_t>({tokens, hidden / 8}, 0x5A)) {
    std::fill(dy.values.begin() + live * hidden, dy.values.end(), 0.0f);
  }

  Dropout dropout_args() const {
    return dropout.with(dropout.probability > 0.0f ? state.view() : View());
  }
  View mask_view() const { return dropout.probability > 0.0f ? mask.view() : View(); }

  void forward() {
    const DeviceTensor word_table_on(backend, io, word_table);
    const DeviceTensor position_table_on(backend, io, position_table);
    const DeviceTensor segment_table_on(backend, io, segment_table);
    const DeviceTensor beta_on(backend, io, beta);
    backend.ops->run(EmbeddingFwd{.word_ids = word_ids.view(),
                                  .position_ids = position_ids.view(),
                                  .segment_ids = segment_ids_on.view(),
                                  .word_table = word_table_on.view(),
                                  .position_table = position_table_on.view(),
                                  .segment_table = segment_table_on.view(),
                                  .gamma = gamma_on.view(),
                                  .beta = beta_on.view(),
                                  .sum = sum.view(),
                                  .y = y.view(),
                                  .mean = mean.view(),
                                  .rstd = rstd.view(),
                                  .mask = mask_view(),
                                  .dropout = dropout_args(),
                                  .epsilon = kEpsilon});
    backend.wait();
  }

  struct Gradients {
    HostTensor<float> words, positions, segments, dgamma, dbeta;
  };
  /// The tables hold 0.5 before.
  Gradients backward(bool with_order = true) {
    const DeviceTensor dy_on(backend, io, dy);
    const DeviceTensor dwords(backend, io, HostTensor<float>({kWords, hidden}, 0.5f));
    const DeviceTensor dpositions(backend, io, HostTensor<float>({kPositions, hidden}, 0.5f));
    const DeviceTensor dsegments(backend, io, HostTensor<float>({segments, hidden}, 0.5f));
    const DeviceTensor dgamma(backend, io, garbage_tensor({hidden}));
    const DeviceTensor dbeta(backend, io, garbage_tensor({hidden}));
    backend.ops->run(EmbeddingBwd{.dy = dy_on.view(),
                                  .word_ids = word_ids.view(),
                                  .position_ids = position_ids.view(),
                                  .segment_ids = segment_ids_on.view(),
                                  .rows_by_word = with_order ? rows_by_word.view() : View(),
                                  .sum = sum.view(),
                                  .mean = mean.view(),
                                  .rstd = rstd.view(),
                                  .mask = mask_view(),
                                  .gamma = gamma_on.view(),
                                  .dword_table = dwords.view(),
                                  .dposition_table = dpositions.view(),
                                  .dsegment_table = dsegments.view(),
                                  .dgamma = dgamma.view(),
                                  .dbeta = dbeta.view(),
                                  .dropout = dropout_args(),
                                  .accumulate = Accumulate::kNo});
    return {dwords.floats(), dpositions.floats(), dsegments.floats(), dgamma.floats(),
            dbeta.floats()};
  }

  Doubles sums() const {
    Doubles values;
    for (int64_t i = 0; i < tokens * hidden; ++i) {
      const int64_t t = i / hidden;
      const int64_t h = i % hidden;
      values.push_back(static_cast<double>(word_table[words[t] * hidden + h]) +
                       static_cast<double>(position_table[positions[t] * hidden + h]) +
                       static_cast<double>(segment_table[segment_ids[t] * hidden + h]));
    }
    return values;
  }
  NaiveNormInput naive() const {
    return {sum.floats().doubles(), tokens,         hidden,
            gamma.doubles(),        beta.doubles(), static_cast<double>(kEpsilon)};
  }
  std::string what(const char* name_of) const {
    return concat(name_of, " ", name(io), " [", tokens, ",", hidden, "]");
  }

  const TestBackend& backend;
  DType io;
  int64_t tokens;
  int64_t hidden;
  int64_t live;
  int32_t segments;
  NaiveDropout dropout;
  HostTensor<int32_t> words, positions, segment_ids;
  HostTensor<float> word_table, position_table, segment_table, gamma, beta, dy;
  DeviceTensor word_ids, position_ids, segment_ids_on, rows_by_word, state, gamma_on;
  DeviceTensor sum, y, mean, rstd, mask;
};

TEST(CudaEmbedding, ForwardMatchesTheDefinition) {
  for (const DType io : kIoTypes) {
    for (const float probability : {0.0f, 0.1f}) {
      for (const auto& [tokens, hidden] : kShapes) {
        Case c(io, tokens, hidden, {.probability = probability});
        c.forward();
        const double stored = tolerance::device_row(rounding(io));
        expect_close(c.sum.floats().values, c.sums(), stored, c.what("sum"), 6.0);
        const NaiveNorm want = naive_layer_norm(c.naive());
        expect_close(c.y.floats().values, c.dropout.of(want.y), stored, c.what("y"), 20.0);
        expect_close(c.mean.floats().values, want.mean, tolerance::kRowF32, c.what("mean"), 6.0);
        expect_close(c.rstd.floats().values, want.rstd, tolerance::kRowF32, c.what("rstd"));
        if (probability == 0.0f) continue;
        EXPECT_EQ(c.mask.values<uint8_t>().values, c.dropout.mask(tokens, hidden).values)
            << c.what("mask");
      }
    }
  }
}

/// table[ids[t]] += dsum[t], with the magnitudes of what is added, and the most terms of a row.
struct Table {
  Table(const HostTensor<int32_t>& ids, int64_t rows, const Doubles& dsum, int64_t hidden)
      : sum(static_cast<size_t>(rows * hidden), 0.5), magnitude(sum) {
    std::vector<int64_t> count(static_cast<size_t>(rows));
    for (size_t i = 0; i < dsum.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i);
      const int64_t row = ids[at / hidden];
      const auto cell = static_cast<size_t>(row * hidden + at % hidden);
      sum[cell] += dsum[i];
      // A term is the end of a chain over values of up to 8, which may cancel.
      magnitude[cell] += 8.0 + std::abs(dsum[i]);
      if (at % hidden == 0) most = std::max(most, ++count[static_cast<size_t>(row)]);
    }
  }
  Doubles sum;
  Doubles magnitude;
  int64_t most = 0;
};

void expect_gradients(Case& c, const Case::Gradients& got, bool atomic) {
  const NaiveNormGradient want = naive_layer_norm_backward(c.naive(), c.dropout.of(c.dy.doubles()));
  const double summed = tolerance::device_sum(rounding(c.io), c.tokens);
  const auto expect_table = [&](const HostTensor<float>& actual, const HostTensor<int32_t>& ids,
                                int64_t rows, bool added_one_by_one, const char* name_of) {
    const Table table(ids, rows, want.dx, c.hidden);
    // Every term is stored once before it is added; atomic adds round each sum as well. Padding
    // rows add zeros, which round nothing.
    const double roundings = added_one_by_one ? 1.0 + static_cast<double>(table.most) : 1.0;
    expect_each_close(actual.values, table.sum, table.magnitude,
                      summed + roundings * rounding(c.io), c.what(name_of));
  };
  expect_table(got.words, c.words, kWords, atomic, "dword_table");
  expect_table(got.positions, c.positions, kPositions, false, "dposition_table");
  expect_table(got.segments, c.segment_ids, c.segments, false, "dsegment_table");
  const double terms = 2.0 + 8.0 * static_cast<double>(c.tokens);
  expect_close(got.dgamma.values, want.dgamma, summed, c.what("dgamma"), terms);
  expect_close(got.dbeta.values, want.dbeta, summed, c.what("dbeta"), terms);
}

TEST(CudaEmbedding, BackwardAddsEveryTokenToItsRows) {
  for (const DType io : kIoTypes) {
    for (const float probability : {0.0f, 0.1f}) {
      for (const auto& [tokens, hidden] : kShapes) {
        for (const auto gradient :
             {CudaOptions::EmbeddingGradient::kSorted, CudaOptions::EmbeddingGradient::kAtomic}) {
          Case c(io, tokens, hidden, {.gradient = gradient, .probability = probability});
          c.forward();
          expect_gradients(c, c.backward(), gradient == CudaOptions::EmbeddingGradient::kAtomic);
        }
      }
    }
  }
}

TEST(CudaEmbedding, OneWordInAllRows) {
  for (const int64_t tokens : {31, 32, 33, 64, 1000}) {
    Case c(DType::kBF16, tokens, 264, {.one_word = true});
    c.forward();
    expect_gradients(c, c.backward(), false);
  }
}

TEST(CudaEmbedding, WithoutAnOrderTheSumIsAtomic) {
  Case c(DType::kF32, 67, 40, {});
  c.forward();
  expect_gradients(c, c.backward(false), true);
}

TEST(CudaEmbedding, SegmentTablesOfOtherSizes) {
  for (const int32_t segments : {1, 3}) {
    Case c(DType::kBF16, 67, 1024, {.segments = segments});
    c.forward();
    expect_gradients(c, c.backward(), false);
  }
}

TEST(CudaEmbedding, SortedRepeatsBitForBit) {
  // Two tiles of the position scan, and runs over many chunks.
  Case one(DType::kBF16, 9001, 256, {});
  Case two(DType::kBF16, 9001, 256, {});
  one.forward();
  two.forward();
  const Case::Gradients first = one.backward();
  const Case::Gradients second = two.backward();
  EXPECT_EQ(first.words.values, second.words.values);
  EXPECT_EQ(first.positions.values, second.positions.values);
  EXPECT_EQ(first.segments.values, second.segments.values);
  EXPECT_EQ(first.dgamma.values, second.dgamma.values);
}

TEST(CudaEmbedding, ManyRowsOfFewIds) {
  Case c(DType::kF16, 9001, 24, {});
  c.forward();
  expect_gradients(c, c.backward(), false);
}

}  // namespace
}  // namespace bertha::testing
