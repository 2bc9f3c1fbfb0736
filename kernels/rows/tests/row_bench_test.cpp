#include "kernels/rows/bench/row_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/base/bench/bench_report.h"
#include "kernels/base/cpu/cpu_devices.h"
#include "kernels/base/error.h"
#include "kernels/base/half.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/rows/cpu/cpu_row_ops.h"

namespace bertha {
namespace {

class RowBenchTest : public ::testing::Test {
 protected:
  OpBench<RowOps>::Parts parts_in(DType io) const {
    return {.device = device_.get(),
            .stream = stream_.get(),
            .ops = ops_.get(),
            .make_reference = make_cpu_row_ops,
            .io = io};
  }

  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  std::unique_ptr<RowOps> ops_ = make_cpu_row_ops(*device_, *stream_);
  OpBench<RowOps> bench_{parts_in(DType::kF32)};
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
RowCase tripled(std::function<void(const RowCall&)> wrong) {
  return {
      .operation = "triple",
      .shape = "100",
      .tensors =
          {{.name = "x", .extents = {100, 8}, .checked = {30, 8}, .scale = 2, .passes = 1},
           {.name = "y", .extents = {100, 8}, .checked = {30, 8}, .passes = 3, .is_result = true}},
      .call = [wrong = std::move(wrong)](const RowCall& c) {
        multiply(c.tensors[0], c.tensors[1], 3);
        if (c.extent == Extent::kFull) wrong(c);
      }};
}

TEST_F(RowBenchTest, TimesEveryLaunchAndCountsBytes) {
  const OpResult result = bench_.run(tripled([](const RowCall&) {}), 150);
  EXPECT_EQ(result.times_us.size(), 150u);
  for (const double us : result.times_us) EXPECT_GE(us, 0);
  EXPECT_EQ(result.bytes, 4.0 * 100 * 8 * 4);
  EXPECT_GT(result.copy_us, 0);
  EXPECT_EQ(result.error, 0);
  EXPECT_EQ(result.worst, "y");
  EXPECT_EQ(result.checked, "y 30/100");
}

TEST_F(RowBenchTest, FindsOneWrongElementAndOneThatIsNoNumber) {
  const auto change = [](int64_t index, float value) {
    return [=](const RowCall& c) { c.tensors[1].as<float>()[index] = value; };
  };
  EXPECT_GT(bench_.run(tripled(change(30 * 8 - 1, 5.9f)), 1).error, 1);
  EXPECT_GT(bench_.run(tripled(change(0, NAN)), 1).error, 1);
  EXPECT_EQ(bench_.run(tripled(change(30 * 8, 5.9f)), 1).error, 0);  // the first not compared
}

TEST_F(RowBenchTest, ARoundingIsAllowed) {
  const OpResult result =
      bench_.run(tripled([](const RowCall& c) { c.tensors[1].as<float>()[5] *= 1 + 0x1p-23f; }), 1);
  EXPECT_GT(result.error, 0);
  EXPECT_LE(result.error, 1);
}

// The reference gets the rounded values and computes in f32.
TEST_F(RowBenchTest, HalfPrecisionMayRoundAndNothingMore) {
  for (const DType io : {DType::kF16, DType::kBF16}) {
    OpBench<RowOps> bench(parts_in(io));
    const OpResult right = bench.run(tripled([](const RowCall&) {}), 1);
    EXPECT_GT(right.error, 0) << name(io);
    EXPECT_LE(right.error, 1) << name(io);
    EXPECT_EQ(right.bytes, 4.0 * 100 * 8 * 2);
    const double allowed = 8 * rounding_unit(io);
    const RowCase wrong =
        tripled([&](const RowCall& c) { multiply(c.tensors[1], c.tensors[1], 1 + 2 * allowed); });
    EXPECT_GT(bench.run(wrong, 1).error, 1) << name(io);
  }
}

/// The sums of each column of x [100, 8], which repeats its first 25 rows, and of those alone.
RowCase repeated_sums(double repeated) {
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
          .call = [](const RowCall& c) {
            auto* sum = c.tensors[1].as<float>();
            const auto* x = c.tensors[0].as<float>();
            std::fill_n(sum, 8, 0.0f);
            for (int64_t i = 0; i < c.tensors[0].elements(); ++i) sum[i % 8] += x[i];
          }};
}

TEST_F(RowBenchTest, SumsOverRowsThatRepeatAreAsManyTimesTheReferences) {
  EXPECT_LE(bench_.run(repeated_sums(4), 1).error, 1);
  EXPECT_GT(bench_.run(repeated_sums(3.99), 1).error, 1);
}

TEST_F(RowBenchTest, RepeatedBytesAreThoseOfTheCheckedPart) {
  RowCase op{.operation = "bytes",
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
  op.call = [&](const RowCall& c) {
    if (c.extent != Extent::kFull) return;
    const auto* bytes = static_cast<const unsigned char*>(c.tensors[0].data);
    seen.assign(bytes, bytes + c.tensors[0].elements());
  };
  bench_.run(op, 1);
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4, 1, 2, 3, 4, 1, 2));
}

TEST_F(RowBenchTest, RefusesANameThatNoTensorHas) {
  const RowCase op = tripled([](const RowCall& c) { static_cast<void>(c["z"]); });
  EXPECT_THROW(bench_.run(op, 1), Error);
}

TEST_F(RowBenchTest, TensorsCanBeEmptyBeyondTheCheckedPart) {
  const int64_t rows = 300'000;  // more bytes than are uploaded at once
  std::vector<int32_t> ids;
  std::vector<float> values;
  const RowCase op{
      .operation = "sums",
      .shape = "",
      .tensors =
          {{.name = "ids",
            .extents = {rows},
            .checked = {2},
            .io = false,
            .dtype = DType::kI32,
            .bytes = std::vector<char>(static_cast<size_t>(4 * rows), 1),
            .is_empty_beyond = true},
           {.name = "x", .extents = {rows}, .checked = {3}, .scale = 1, .is_empty_beyond = true}},
      .call = [&](const RowCall& c) {
        if (c.extent == Extent::kChecked || !ids.empty()) return;  // checked first, then timed
        ids.assign(c["ids"].as<int32_t>(), c["ids"].as<int32_t>() + rows);
        values.assign(c["x"].as<float>(), c["x"].as<float>() + rows);
      }};
  bench_.run(op, 1);
  EXPECT_EQ(std::ranges::count(ids, 0x01010101), 2);
  EXPECT_EQ(std::ranges::count(ids, -1), rows - 2);
  EXPECT_EQ(std::ranges::count(values, 0.0f), rows - 3);
}

TEST_F(RowBenchTest, RowsOfAnyWidthAgreeWithTheirLeadingPart) {
  std::set<std::string> seen;
  for (const DType io : {DType::kF32, DType::kF64}) {
    OpBench<RowOps> bench(parts_in(io));
    // Some 16 MB: rows of 3,000 columns become fewer.
    const RowSweep sweep{
        .widths = {1, 33, 3000}, .rows = 400, .most_bytes = int64_t{16} << 20, .io = io};
    for (const RowCase& op : make_row_cases(sweep)) {
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

TEST_F(RowBenchTest, LayersOfImagesAgreeWithTheirLeadingImages) {
  int64_t repeated = 0;
  std::set<std::string> operations;
  for (const RowCase& op : make_channel_cases(2)) {
    operations.insert(op.operation);
    // Two images of the largest layer are more than the reference computes.
    const bool is_largest = op.shape.starts_with("2x64x112x112");
    if (elements(op.tensors.front()) > 300'000 && !is_largest) continue;
    const OpResult result = bench_.run(op, 1);
    EXPECT_LE(result.error, 1) << op.operation << ' ' << op.shape << ", " << result.worst;
    if (is_largest) ++repeated;
  }
  EXPECT_EQ(repeated, 2 * 4);
  EXPECT_THAT(operations,
              ElementsAre("batch_norm_relu_bwd", "batch_norm_relu_fwd", "prelu_bwd", "prelu_fwd"));
}

BenchReport example() {
  BenchReport report{.model = "tiny",
                     .device = "a device",
                     .precision = "bf16",
                     .date = "2026-11-21",
                     .tokens = 256,
                     .peak_flops_per_second = 800e12};
  report.rows.push_back({.operation = "linear_fwd",
                         .shape = "QKV",
                         .times_us = {4, 1, 2, 3, 5},
                         .flops = 1.2e9,
                         .bytes = 6e6,
                         .error = 0.25,
                         .worst = "y",
                         .checked = "y 10/256"});
  report.rows.push_back({.operation = "fill",
                         .shape = "256x64",
                         .times_us = {10},
                         .bytes = 20e6,
                         .copy_us = 8,
                         .error = 0,
                         .worst = "values"});
  return report;
}

TEST(BenchReport, ComparesProductsWithTheLargeOneAndTheRestWithACopy) {
  BenchReport report = example();
  EXPECT_DOUBLE_EQ(share_of_roof(report, report.rows[0]), 0.5);  // 400 TFLOP/s in the median
  EXPECT_DOUBLE_EQ(share_of_roof(report, report.rows[1]), 0.8);
  report.peak_bytes_per_second = 4e12;
  EXPECT_DOUBLE_EQ(share_of_roof(report, report.rows[1]), 0.5);
  report.peak_flops_per_second = 0;
  EXPECT_EQ(share_of_roof(report, report.rows[0]), 0);
}

TEST(BenchReport, TextHasUnitsAndSaysWhatIsWrong) {
  BenchReport report = example();
  report.notes = {"persistent is not measured: it is not there"};
  report.rows[0].kernels = "grouped";
  const std::string text = bench_text(report);
  EXPECT_THAT(text, HasSubstr("operations of tiny, bf16, 256 token rows, a device, 2026-11-21\n"
                              "persistent is not measured: it is not there\n"));
  EXPECT_THAT(text, HasSubstr("QKV, grouped  "));
  EXPECT_THAT(text, HasSubstr("(us)"));
  EXPECT_THAT(text, HasSubstr("400.0 TFLOP/s       50.0\n"));
  EXPECT_THAT(text, HasSubstr("2000.0 GB/s          80.0\n"));
  EXPECT_THAT(text, Not(HasSubstr("WRONG")));
  EXPECT_TRUE(all_verified(report));
  report.rows[0].error = 1.01;
  EXPECT_FALSE(all_verified(report));
  EXPECT_THAT(bench_text(report), HasSubstr("WRONG: y\n"));
}

TEST(BenchReport, NamesChooseOperationsWithOrWithoutTheirEnds) {
  const std::vector<RowCase> all =
      make_row_cases({.widths = {8}, .rows = 4, .most_bytes = int64_t{1} << 20, .io = DType::kF32});
  const auto operations = [&](const std::vector<std::string>& names) {
    std::set<std::string> found;
    for (const RowCase& op : chosen_cases(all, names)) found.insert(op.operation);
    return found;
  };
  EXPECT_THAT(operations({}),
              ElementsAre("layer_norm_bwd", "layer_norm_fwd", "softmax_bwd", "softmax_fwd"));
  EXPECT_THAT(operations({"softmax", "layer_norm_bwd"}),
              ElementsAre("layer_norm_bwd", "softmax_bwd", "softmax_fwd"));
  try {
    operations({"soft"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::kUsage);
    EXPECT_STREQ(error.what(),
                 "--op soft is not an operation; choose from layer_norm_bwd, layer_norm_fwd, "
                 "softmax_bwd, softmax_fwd.");
  }
}

}  // namespace
}  // namespace bertha
