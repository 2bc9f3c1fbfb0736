#include "kernels/bench/op_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/base/half.h"
#include "kernels/bench/op_cases.h"
#include "kernels/bench/row_cases.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_row_ops.h"

namespace bertha {
namespace {

class OpBenchTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  std::unique_ptr<Ops> ops_ = make_cpu_ops(*device_, *stream_);
  std::unique_ptr<RowOps> row_ops_ = make_cpu_row_ops(*device_, *stream_);
  OpBench::Parts parts_{.device = device_.get(),
                        .stream = stream_.get(),
                        .ops = ops_.get(),
                        .row_ops = row_ops_.get(),
                        .make_reference_row_ops = make_cpu_row_ops};
  OpBench bench_{parts_};

  OpBench bench_in(DType io) {
    OpBench::Parts parts = parts_;
    parts.io = io;
    return OpBench(parts);
  }
};

/// to = factor * from, rounded once.
void multiply(const View& from, const View& to, double factor) {
  for (int64_t i = 0; i < from.elements(); ++i) {
    if (from.dtype == DType::kF32) {
      to.as<float>()[i] = static_cast<float>(factor * static_cast<double>(from.as<float>()[i]));
    } else if (from.dtype == DType::kF16) {
      to.as<Half>()[i] = to_half(factor * static_cast<double>(to_float(from.as<Half>()[i])));
    } else {
      to.as<BFloat16>()[i] =
          to_bfloat16(factor * static_cast<double>(to_float(from.as<BFloat16>()[i])));
    }
  }
}

/// y = 3 x, with something wrong at full extents.
OpCase tripled(std::function<void(const OpCall&)> wrong) {
  return {
      .operation = "triple",
      .shape = "100",
      .tensors =
          {{.name = "x", .extents = {100, 8}, .checked = {30, 8}, .scale = 2, .passes = 1},
           {.name = "y", .extents = {100, 8}, .checked = {30, 8}, .passes = 3, .is_result = true}},
      .call = [wrong = std::move(wrong)](const OpCall& c) {
        multiply(c.tensors[0], c.tensors[1], 3);
        if (c.extent == Extent::kFull) wrong(c);
      }};
}

TEST_F(OpBenchTest, TimesEveryLaunchAndCountsBytes) {
  const OpResult result = bench_.run(tripled([](const OpCall&) {}), 150);
  EXPECT_EQ(result.times_us.size(), 150u);
  for (const double us : result.times_us) EXPECT_GE(us, 0);
  EXPECT_EQ(result.bytes, 4.0 * 100 * 8 * 4);
  EXPECT_GT(result.copy_us, 0);
  EXPECT_EQ(result.error, 0);
  EXPECT_EQ(result.worst, "y");
  EXPECT_EQ(result.checked, "y 30/100");
}

TEST_F(OpBenchTest, FindsOneWrongElementAndOneThatIsNoNumber) {
  const auto change = [](int64_t index, float value) {
    return [=](const OpCall& c) { c.tensors[1].as<float>()[index] = value; };
  };
  EXPECT_GT(bench_.run(tripled(change(30 * 8 - 1, 5.9f)), 1).error, 1);
  EXPECT_GT(bench_.run(tripled(change(0, NAN)), 1).error, 1);
  EXPECT_EQ(bench_.run(tripled(change(30 * 8, 5.9f)), 1).error, 0);  // the first not compared
}

TEST_F(OpBenchTest, ARoundingIsAllowed) {
  const OpResult result =
      bench_.run(tripled([](const OpCall& c) { c.tensors[1].as<float>()[5] *= 1 + 0x1p-23f; }), 1);
  EXPECT_GT(result.error, 0);
  EXPECT_LE(result.error, 1);
}

// The reference gets the rounded values and computes in f32.
TEST_F(OpBenchTest, HalfPrecisionMayRoundAndNothingMore) {
  for (const DType io : {DType::kF16, DType::kBF16}) {
    OpBench bench = bench_in(io);
    const OpResult right = bench.run(tripled([](const OpCall&) {}), 1);
    EXPECT_GT(right.error, 0) << name(io);
    EXPECT_LE(right.error, 1) << name(io);
    EXPECT_EQ(right.bytes, 4.0 * 100 * 8 * 2);
    const double allowed = 8 * rounding_unit(io);
    const OpCase wrong =
        tripled([&](const OpCall& c) { multiply(c.tensors[1], c.tensors[1], 1 + 2 * allowed); });
    EXPECT_GT(bench.run(wrong, 1).error, 1) << name(io);
  }
}

/// The sums of each column of x [100, 8], which repeats its first 25 rows, and of those alone.
OpCase repeated_sums(double repeated) {
  return {.operation = "sums",
          .shape = "100",
          .tensors = {{.name = "x",
                       .extents = {100, 8},
                       .checked = {25, 8},
                       .scale = 2,
                       .passes = 1,
                       .repeats = true},
                      {.name = "sum",
                       .extents = {8},
                       .io = false,
                       .is_result = true,
                       .terms = 100,
                       .repeated = repeated}},
          .call = [](const OpCall& c) {
            auto* sum = c.tensors[1].as<float>();
            const auto* x = c.tensors[0].as<float>();
            std::fill_n(sum, 8, 0.0f);
            for (int64_t i = 0; i < c.tensors[0].elements(); ++i) sum[i % 8] += x[i];
          }};
}

TEST_F(OpBenchTest, SumsOverRowsThatRepeatAreAsManyTimesTheReferences) {
  EXPECT_LE(bench_.run(repeated_sums(4), 1).error, 1);
  EXPECT_GT(bench_.run(repeated_sums(3.99), 1).error, 1);
}

TEST_F(OpBenchTest, RepeatedBytesAreThoseOfTheCheckedPart) {
  OpCase op{.operation = "bytes",
            .shape = "10",
            .tensors = {{.name = "mask",
                         .extents = {10},
                         .checked = {4},
                         .io = false,
                         .dtype = DType::kU8,
                         .bytes = {1, 2, 3, 4},
                         .repeats = true}},
            .call = {}};
  std::vector<int> seen;
  op.call = [&](const OpCall& c) {
    if (c.extent != Extent::kFull) return;
    const auto* bytes = static_cast<const unsigned char*>(c.tensors[0].data);
    seen.assign(bytes, bytes + c.tensors[0].elements());
  };
  bench_.run(op, 1);
  EXPECT_THAT(seen, ::testing::ElementsAre(1, 2, 3, 4, 1, 2, 3, 4, 1, 2));
}

BenchModel tiny_model() {
  return {.hidden = 16,
          .heads = 2,
          .feed_forward = 32,
          .classes = 21,
          .vocab_rows = 24,
          .positions = 40,
          .segment_types = 2,
          .mask_width = 64,
          .parameters = 5000,
          .hidden_dropout = 0.1f,
          .attention_dropout = 0.2f};
}

/// 1,200 live tokens in 30 sequences of 40, of 1,216 rows: more than the reference computes.
BenchBatch tiny_batch() {
  BenchBatch batch;
  batch.name = "all 40";
  batch.tokens = 1200;
  batch.masked = 30;
  batch.cu_seqlens = {0};
  for (int32_t t = 0; t < 1216; ++t) {
    const bool live = t < 1200;
    batch.word_ids.push_back(live ? t * 7 % 21 : 0);
    batch.segment_ids.push_back(live ? t % 2 : 0);
    batch.position_ids.push_back(live ? t % 40 : 0);
    batch.rows_by_word.push_back(live ? t : -1);
  }
  std::stable_sort(
      batch.rows_by_word.begin(), batch.rows_by_word.begin() + 1200, [&](int32_t a, int32_t b) {
        return batch.word_ids[static_cast<size_t>(a)] < batch.word_ids[static_cast<size_t>(b)];
      });
  for (int32_t b = 0; b < 30; ++b) {
    batch.cu_seqlens.push_back(40 * (b + 1));
    batch.masked_positions.push_back(40 * b + 3);
    batch.masked_labels.push_back(b % 21);
  }
  batch.masked_positions.resize(32, -1);
  batch.masked_labels.resize(32, -1);
  batch.groups = {
      {.num_seqs = 30, .num_tokens = 1200, .longest_seq_tokens = 40, .bucket_tokens = 128}};
  return batch;
}

TEST_F(OpBenchTest, EveryOperationAtFullSizeAgreesWithItsLeadingPart) {
  std::set<std::string> operations;
  for (const OpCase& op : make_op_cases(tiny_model(), {tiny_batch()})) {
    const OpResult result = bench_.run(op, 2);
    EXPECT_LE(result.error, 1) << op.operation << ' ' << op.shape << ", " << result.worst;
    EXPECT_FALSE(result.checked.empty()) << op.operation;
    EXPECT_GT(result.bytes, 0) << op.operation;
    operations.insert(op.operation);
  }
  EXPECT_THAT(operations, ::testing::ElementsAre(
                              "activation_bwd", "attention_bwd", "attention_fwd", "cross_entropy",
                              "embedding_bwd", "embedding_fwd", "gather_rows", "lamb_apply",
                              "lamb_moments", "layer_norm_bwd", "layer_norm_fwd", "linear_bwd_data",
                              "linear_bwd_weight", "linear_fwd", "quantize", "residual_ln_bwd",
                              "residual_ln_fwd", "scatter_add_rows", "sum_of_squares"));
}

TEST_F(OpBenchTest, RowsOfAnyWidthAgreeWithTheirLeadingPart) {
  std::set<std::string> seen;
  for (const DType io : {DType::kF32, DType::kF64}) {
    OpBench bench = bench_in(io);
    // Some 16 MB: rows of 3,000 columns become fewer.
    const RowSweep sweep{
        .widths = {1, 33, 3000}, .rows = 400, .most_bytes = int64_t{16} << 20, .io = io};
    for (const OpCase& op : make_row_cases(sweep)) {
      const OpResult result = bench.run(op, 1);
      EXPECT_LE(result.error, 1) << op.operation << ' ' << op.shape << ", " << result.worst;
      EXPECT_GT(result.copy_us, 0) << op.operation;
      seen.insert(op.operation + ' ' + op.shape);
    }
  }
  EXPECT_EQ(seen.size(), 3u * 6u + 6u);  // the widest in f32 and, of fewer rows, in f64
  EXPECT_TRUE(seen.contains("softmax_bwd 400x33, log"));
  EXPECT_TRUE(seen.contains("layer_norm_bwd 174x3000"));
  EXPECT_TRUE(seen.contains("layer_norm_bwd 87x3000"));
}

int64_t elements(const BenchTensor& tensor) {
  int64_t product = 1;
  for (const int64_t extent : tensor.extents) product *= extent;
  return product;
}

TEST_F(OpBenchTest, LayersOfImagesAgreeWithTheirLeadingImages) {
  int64_t repeated = 0;
  std::set<std::string> operations;
  for (const OpCase& op : make_channel_cases(2)) {
    operations.insert(op.operation);
    // Two images of the largest layer are more than the reference computes.
    const bool is_largest = op.shape.starts_with("2x64x112x112");
    if (elements(op.tensors.front()) > 300'000 && !is_largest) continue;
    const OpResult result = bench_.run(op, 1);
    EXPECT_LE(result.error, 1) << op.operation << ' ' << op.shape << ", " << result.worst;
    if (is_largest) ++repeated;
  }
  EXPECT_EQ(repeated, 2 * 4);
  EXPECT_THAT(operations, ::testing::ElementsAre("batch_norm_relu_bwd", "batch_norm_relu_fwd",
                                                 "prelu_bwd", "prelu_fwd"));
}

TEST(ModelGemms, AreEightLayersInThreeDirectionsAndTheSumOfWeightGradients) {
  const std::vector<GemmShape> shapes = model_gemms(tiny_model(), tiny_batch(), DType::kBF16);
  ASSERT_EQ(shapes.size(), 32u);
  EXPECT_EQ(shapes[0].rows, 1216);
  EXPECT_EQ(shapes[0].outputs, 48);
  EXPECT_TRUE(shapes[0].bias);
  EXPECT_EQ(shapes[1].kind, GemmKind::kDataGradient);
  EXPECT_EQ(shapes[1].accumulate, Accumulate::kYes);
  EXPECT_EQ(shapes[2].kind, GemmKind::kWeightGradient);
  EXPECT_EQ(shapes[2].accumulate, Accumulate::kNo);
  EXPECT_EQ(shapes[3].kind, GemmKind::kWeightGradient);
  EXPECT_EQ(shapes[3].accumulate, Accumulate::kYes);
  EXPECT_EQ(shapes[8].activation, Activation::kGeluTanh);
  EXPECT_EQ(shapes[13].activation, Activation::kGeluTanh);
  EXPECT_EQ(shapes[20].rows, 32);
  EXPECT_EQ(shapes[20].outputs, 24);
}

}  // namespace
}  // namespace bertha
