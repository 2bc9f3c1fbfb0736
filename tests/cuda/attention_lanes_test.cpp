#include <gtest/gtest.h>

#include "tests/cuda/gpu.h"

namespace bertha::testing {
namespace {

constexpr int64_t kHeads = 2;
constexpr int64_t kMaskWidth = 256;

/// Sequences of 100, 256 and 0 tokens: three groups, of which one has nothing to do.
struct Batch {
  HostTensor<int32_t> starts{{4}};
  std::vector<SequenceGroup> groups = {{.first_seq = 0,
                                        .num_seqs = 1,
                                        .first_token = 0,
                                        .num_tokens = 100,
                                        .longest_seq_tokens = 100,
                                        .bucket_tokens = 128},
                                       {.first_seq = 1,
                                        .num_seqs = 1,
                                        .first_token = 100,
                                        .num_tokens = 256,
                                        .longest_seq_tokens = 256,
                                        .bucket_tokens = 256},
                                       {.first_seq = 2, .num_seqs = 1, .first_token = 356}};
  Batch() { starts.values = {0, 100, 356, 356}; }
};

TEST(CudaAttentionLanes, HaveASpanForEveryGroupWithTokensTheLongestFirst) {
  const Batch batch;
  const DeviceTensor qkv(gpu(), DType::kBF16, random_tensor({356, 3, kHeads, 64}, 1));
  const DeviceTensor out(gpu(), DType::kBF16, garbage_tensor({356, kHeads, 64}));
  const DeviceTensor lse(gpu(), DType::kF32, garbage_tensor({kHeads, 356}));
  const DeviceTensor mask(gpu(), HostTensor<uint8_t>({356, kHeads, kMaskWidth / 8}, 0));
  const DeviceTensor starts(gpu(), batch.starts);
  int calls = 0;
  const std::vector<LaneSpan> spans =
      time_attention_lanes(*gpu().device, *gpu().stream, [&](Ops& ops) {
        ++calls;
        ops.run(AttentionFwd{.qkv = qkv.view(),
                             .cu_seqlens = starts.view(),
                             .out = out.view(),
                             .lse = lse.view(),
                             .mask = mask.view(),
                             .groups = batch.groups,
                             .dropout = {},
                             .max_seq_tokens = kMaskWidth,
                             .scale = 0.125f});
      });
  EXPECT_GT(calls, 1);
  ASSERT_EQ(spans.size(), 2u);
  const int64_t longest[] = {256, 100};
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].lane, static_cast<int>(i));
    EXPECT_EQ(spans[i].num_seqs, 1);
    EXPECT_EQ(spans[i].longest_seq_tokens, longest[i]);
    EXPECT_GE(spans[i].begin_us, 0);
    EXPECT_GT(spans[i].end_us, spans[i].begin_us);
  }
}

}  // namespace
}  // namespace bertha::testing
