#include "kernels/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/dropout_bits.h"
#include "kernels/base/tests/backward_checks.h"
#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/finite_difference.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "tests/kernels/naive_attention.h"

namespace bertha {
namespace {

using Doubles = std::vector<double>;

constexpr uint32_t kSite = 40;
constexpr int64_t kMaxSeqTokens = 544;  // not a multiple of the tile of dropout groups

struct Case {
  Case(const std::vector<int32_t>& lengths_in, int64_t padding, int64_t heads_in,
       int64_t head_size_in)
      : lengths(lengths_in), heads(heads_in), head_size(head_size_in), state(random_state(8, 15)) {
    cu_seqlens.values = {0};
    for (const int32_t length : lengths) {
      cu_seqlens.values.push_back(cu_seqlens.values.back() + length);
    }
    cu_seqlens.extents = {static_cast<int64_t>(cu_seqlens.values.size())};
    live = cu_seqlens.values.back();
    tokens = live + padding;
    qkv = random_tensor({tokens, 3, heads, head_size}, 1);
    out = garbage_tensor({tokens, heads, head_size});
    lse = garbage_tensor({heads, tokens});
    mask = HostTensor<uint8_t>({tokens, heads, kMaxSeqTokens / 8}, 0xA5);
    dout = random_tensor({tokens, heads, head_size}, 2);
    dqkv = garbage_tensor({tokens, 3, heads, head_size});
    dbias = random_tensor({3 * heads * head_size}, 3);
    const int64_t seqs = static_cast<int64_t>(lengths.size());
    const int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    groups = {{.num_seqs = seqs,
               .num_tokens = live,
               .longest_seq_tokens = longest,
               .bucket_tokens = 512}};
  }

  Dropout dropout() { return {.random = state.view(), .probability = probability, .site = kSite}; }

  void forward(int threads) {
    run_on_cpu(AttentionFwd{.qkv = qkv.view(),
                            .cu_seqlens = cu_seqlens.view(),
                            .out = out.view(),
                            .lse = lse.view(),
                            .mask = mask.view(),
                            .groups = groups,
                            .dropout = dropout(),
                            .max_seq_tokens = kMaxSeqTokens,
                            .scale = scale},
               threads);
  }

  void backward(int threads, Accumulate accumulate = Accumulate::kYes) {
    run_on_cpu(AttentionBwd{.dout = dout.view(),
                            .qkv = qkv.view(),
                            .out = out.view(),
                            .lse = lse.view(),
                            .mask = mask.view(),
                            .cu_seqlens = cu_seqlens.view(),
                            .dqkv = dqkv.view(),
                            .dbias = dbias.view(),
                            .groups = groups,
                            .dropout = dropout(),
                            .max_seq_tokens = kMaxSeqTokens,
                            .scale = scale,
                            .accumulate = accumulate,
                            .dqkv_fp8 = dqkv_fp8},
               threads);
  }

  bool dropped(int64_t seq, int64_t head, int64_t query, int64_t key) const {
    const int64_t row = (cu_seqlens[seq] + query) * heads + head;
    return !is_kept(state[0], state[1], kSite, row * kMaxSeqTokens + key, probability);
  }

  NaiveAttention naive(int64_t seq) const {
    return {.heads = heads,
            .head_size = head_size,
            .scale = static_cast<double>(scale),
            .first = cu_seqlens[seq],
            .length = lengths[static_cast<size_t>(seq)],
            .factor = [this, seq](int64_t head, int64_t query, int64_t key) {
              if (dropped(seq, head, query, key)) return 0.0;
              return 1.0 / (1.0 - static_cast<double>(probability));
            }};
  }

  std::vector<int32_t> lengths;
  int64_t heads;
  int64_t head_size;
  int64_t live = 0;
  int64_t tokens = 0;
  float scale = 0.25f;
  float probability = 0.1f;
  HostTensor<uint64_t> state;
  HostTensor<int32_t> cu_seqlens;
  HostTensor<uint8_t> mask;
  HostTensor<float> qkv, out, lse, dout, dqkv, dbias;
  Fp8Result dqkv_fp8{};
  std::vector<SequenceGroup> groups;
};

std::vector<Case> cases() {
  return {Case({}, 0, 2, 8), Case({}, 8, 2, 8), Case({1}, 0, 1, 4), Case({7, 0, 33, 1}, 3, 3, 16),
          Case({130, 0, 257}, 5, 2, 8)};
}

TEST(Attention, ForwardMatchesTheDefinition) {
  for (Case& c : cases()) {
    c.forward(1);
    Doubles out(c.out.values.size(), 0.0);
    Doubles lse(c.lse.values.size(), 0.0);
    const Doubles qkv = c.qkv.doubles();
    for (size_t seq = 0; seq < c.lengths.size(); ++seq) {
      c.naive(static_cast<int64_t>(seq)).forward(qkv, out, lse, c.tokens);
    }
    const std::string what = concat(", ", c.lengths.size(), " sequences of ", c.live, " tokens");
    expect_close(c.out.values, out, tolerance::kAttentionF32, "out" + what);
    expect_close(c.lse.values, lse, tolerance::kAttentionF32, "lse" + what, 8.0);
  }
}

TEST(Attention, BackwardMatchesTheChainRule) {
  for (Case& c : cases()) {
    c.forward(1);
    c.backward(1);
    Doubles dqkv(c.dqkv.values.size(), 0.0);
    for (size_t seq = 0; seq < c.lengths.size(); ++seq) {
      c.naive(static_cast<int64_t>(seq)).backward(c.qkv.doubles(), c.dout.doubles(), dqkv);
    }
    expect_close(c.dqkv.values, dqkv, tolerance::kAttentionF32,
                 concat("dqkv, ", c.lengths.size(), " sequences of ", c.live, " tokens"));
  }
}

TEST(Attention, BiasGradientIsTheColumnSum) {
  for (Case& c : cases()) {
    for (const Accumulate accumulate : {Accumulate::kYes, Accumulate::kNo}) {
      Doubles want = c.dbias.doubles();
      if (accumulate == Accumulate::kNo) {
        std::fill(want.begin(), want.end(), 0.0);
        std::fill(c.dbias.values.begin(), c.dbias.values.end(), std::nanf(""));
      }
      c.forward(1);
      c.backward(1, accumulate);
      for (size_t i = 0; i < c.dqkv.values.size(); ++i) {
        want[i % want.size()] += static_cast<double>(c.dqkv.values[i]);
      }
      // In f64 but for the last rounding.
      expect_close(c.dbias.values, want, 2 * tolerance::kRoundF32,
                   concat("dbias, ", c.lengths.size(), " sequences of ", c.live, " tokens"));
    }
  }
}

TEST(Attention, BackwardMatchesFiniteDifferences) {
  Case c({5, 0, 1, 9}, 2, 2, 8);
  c.forward(1);
  c.backward(1);
  const auto loss = [&] {
    c.forward(1);
    return weighted_sum(c.out, c.dout);
  };
  expect_gradient("qkv", c.qkv, c.dqkv, loss);
}

TEST(Attention, DropsExactlyTheDocumentedProbabilities) {
  // With unit vectors as values, row q of the output is the row of dropped probabilities.
  Case c({33, 33}, 0, 2, 33);
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t d = 0; d < 33; ++d) c.qkv[((t * 3 + 2) * 2 + head) * 33 + d] = t % 33 == d;
    }
  }
  c.forward(1);
  int64_t dropped = 0;
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t key = 0; key < 33; ++key) {
        const bool want = c.dropped(t / 33, head, t % 33, key);
        ASSERT_EQ(c.out[(t * 2 + head) * 33 + key] == 0.0f, want);
        dropped += want ? 1 : 0;
      }
    }
  }
  EXPECT_GT(dropped, 0);
}

TEST(Attention, PaddingRowsBecomeZero) {
  Case c({7, 33}, 8, 2, 8);
  c.forward(1);
  c.backward(1);
  for (int64_t i = c.live * 2 * 8; i < c.out.elements(); ++i) EXPECT_EQ(c.out[i], 0.0f);
  for (int64_t i = c.live * 3 * 2 * 8; i < c.dqkv.elements(); ++i) EXPECT_EQ(c.dqkv[i], 0.0f);
}

TEST(Attention, RoundsItsGradientToFp8) {
  struct Rounded {
    HostTensor<uint8_t> q = HostTensor<uint8_t>({48, 48}, 0xAA);
    HostTensor<float> scale = HostTensor<float>({1}, 65536.0f);  // too large for some elements
    HostTensor<float> amax = HostTensor<float>({1}, 0.125f);
    HostTensor<int64_t> saturated = HostTensor<int64_t>({1}, 5);

    Fp8Result result() {
      View bytes = q.view();
      bytes.dtype = DType::kE5M2;
      return {
          .q = bytes, .scale = scale.view(), .amax = amax.view(), .saturated = saturated.view()};
    }
  };
  Case without({7, 0, 33}, 8, 2, 8);
  without.forward(1);
  without.backward(1);
  Rounded want;
  run_on_cpu(quantize_to(want.result(), without.dqkv.view()));
  Case with({7, 0, 33}, 8, 2, 8);
  Rounded got;
  with.dqkv_fp8 = got.result();
  with.forward(1);
  with.backward(1);
  EXPECT_EQ(with.dbias.values, without.dbias.values);
  EXPECT_EQ(got.q.values, want.q.values);
  EXPECT_EQ(got.amax.values, want.amax.values);
  EXPECT_EQ(got.saturated.values, want.saturated.values);
  EXPECT_GT(got.saturated[0], 5);
  for (int64_t i = with.live * 48; i < got.q.elements(); ++i) EXPECT_EQ(got.q[i], 0);
}

TEST(Attention, SequencesDoNotSeeEachOther) {
  Case c({7, 33}, 0, 2, 8);
  c.probability = 0.0f;
  c.forward(1);
  const HostTensor<float> before = c.out;
  for (int64_t i = 7 * 3 * 2 * 8; i < c.qkv.elements(); ++i) c.qkv[i] += 1.0f;
  c.forward(1);
  for (int64_t i = 0; i < 7 * 2 * 8; ++i) EXPECT_EQ(c.out[i], before[i]);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Case c({33}, 0, 1, 8);
  for (float& value : c.qkv.values) value *= 64.0f;
  c.forward(1);
  c.backward(1);
  for (const float value : c.out.values) EXPECT_TRUE(std::isfinite(value));
  for (const float value : c.dqkv.values) EXPECT_TRUE(std::isfinite(value));
}

TEST(Attention, RefusesASequenceLongerThanTheLimit) {
  Case c({7, 33}, 0, 2, 8);
  c.cu_seqlens[1] = -1;
  EXPECT_THROW(c.forward(1), Error);
}

TEST(Attention, IsTheSameForEveryNumberOfThreads) {
  expect_same_for_threads(Case({130, 7, 0, 257}, 5, 3, 16),
                          {&Case::out, &Case::lse, &Case::dqkv, &Case::dbias});
}

}  // namespace
}  // namespace bertha
