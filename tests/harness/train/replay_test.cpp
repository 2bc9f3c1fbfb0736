#include "harness/train/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/harness/train/training_rig.h"

namespace bertha::testing {
namespace {

using ::testing::HasSubstr;

std::vector<TensorFigures> three_tensors() {
  return {{.name = "first", .elements = 100, .largest = 3, .mean = 0.5, .rms = 1},
          {.name = "second", .elements = 100, .largest = 3, .mean = 0.5, .rms = 1},
          {.name = "third", .elements = 100, .largest = 3, .mean = 0.5, .rms = 1}};
}

/// Of weights that errors change nothing of.
Reference steady() { return {.figures = three_tensors(), .with_errors = three_tensors()}; }

std::optional<Finding> finding(const std::vector<TensorFigures>& run, DType io = DType::kBF16,
                               const Reference& reference = steady()) {
  return first_finding(run, reference, io, rounding_error(io, false, 1000));
}

double tolerance_of_second(const Reference& reference) {
  return figure_tolerance(reference, 1, rounding_error(DType::kBF16, false, 1000));
}

TEST(FirstFinding, IsNoneWithinTheTolerance) {
  auto run = three_tensors();
  const double tolerance = tolerance_of_second(steady());
  run[1].rms *= 1 + 0.9 * tolerance;
  run[1].largest *= 1 - 0.9 * tolerance;
  EXPECT_FALSE(finding(run));
  EXPECT_TRUE(finding(run, DType::kF32)) << "a coarser format does not excuse a finer one";
}

TEST(FirstFinding, IsTheFirstTensorBeyondTheTolerance) {
  const double beyond = 1.1 * tolerance_of_second(steady());
  for (const auto change : {&TensorFigures::rms, &TensorFigures::largest, &TensorFigures::mean}) {
    auto run = three_tensors();
    run[1].*change += beyond * (change == &TensorFigures::largest ? 3 : 1);
    run[2].rms = 100;
    const auto found = finding(run);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->tensor, "second");
  }
}

TEST(FirstFinding, TellsAnOverflowFromNumbersThatAreTooLargeAnyway) {
  auto run = three_tensors();
  run[2].not_finite = 7;
  auto found = finding(run);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tensor, "third");
  EXPECT_THAT(found->text, HasSubstr("7 of 100 elements are not finite"));
  EXPECT_THAT(found->text, HasSubstr("it overflows"));
  Reference reference = steady();
  reference.figures[2].not_finite = 5;
  found = finding(run, DType::kBF16, reference);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("5 are not either"));
}

TEST(FigureTolerance, GrowsWithTheRootOfTheTensorsBefore) {
  EXPECT_DOUBLE_EQ(figure_tolerance(steady(), 1, 0.1),
                   std::sqrt(2) * figure_tolerance(steady(), 0, 0.1));
  EXPECT_GT(rounding_error(DType::kF32, false, 100), 7 * rounding_error(DType::kF32, false, 1));
}

TEST(FigureTolerance, AllowsWhatErrorsOfTheWeightsBecome) {
  Reference reference = steady();
  reference.with_errors[1].signed_sums[5] = 4;  // the 100 elements differ by 0.4 on average
  EXPECT_DOUBLE_EQ(tolerance_of_second(reference), 8 * 0.4);
  auto run = three_tensors();
  run[1].rms += 3.1;
  EXPECT_FALSE(finding(run, DType::kBF16, reference));
  run[1].rms += 0.2;
  EXPECT_TRUE(finding(run, DType::kBF16, reference));
  reference.with_errors[1].not_finite = 1;
  EXPECT_FALSE(finding(run, DType::kBF16, reference)) << "errors overflow; nothing can be said";
  run[1].not_finite = 1;
  EXPECT_TRUE(finding(run, DType::kBF16, reference));
}

TEST(FigureTolerance, MeasuresWhatElementsDifferBy) {
  run_ranks(1, [](Device& device, Collectives&) {
    const auto stream = device.make_stream();
    HostPieces pieces(device, *stream);
    std::vector<float> values(10'000, 1.0F);
    const View view(values.data(), DType::kF32, {std::ssize(values)});
    Reference reference{.figures = {figures_of("x", view, pieces)}, .with_errors = {}};
    for (float& value : values) value += 0.01F;  // no average hides it
    reference.with_errors = {figures_of("x", view, pieces)};
    // 64 sums measure a root of the mean square to about 1 / sqrt(2 * 64).
    EXPECT_NEAR(figure_tolerance(reference, 0, 0) / 8, 0.01, 0.01 * 0.3);
  });
}

// Nothing is left behind: the step that follows has the bits of one without a trace.
TEST(TraceStep, NamesEveryTensorOnceAndLeavesTheWeightsAlone) {
  run_ranks(1, [](Device& device, Collectives& collectives) {
    TrainingRig rig(device, collectives, rig_model(0.1));
    const std::vector<float> weights = rig.weights();
    const StepBatch batch = rig_step({rig_sequences(4)}, 4, num_masked(rig_sequences(4)));
    const TracedStep step{
        .micro_batches = {{.batch = batch.micro_batches[0],
                           .mean = {.masked = batch.num_masked_global, .seqs = 4}}},
        .dropout_seed = 3,
        .loss_scale = 2};
    const auto trace = [&] {
      return trace_step(step, rig.model, rig.parts(), rig.table, rig.optimizer.gradients());
    };
    const std::vector<TensorFigures> first = trace(), again = trace();
    ASSERT_EQ(first.size(), again.size());
    EXPECT_EQ(std::ssize(first), 2 + 8 + 7 + std::ssize(rig.table.params));
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i].name, again[i].name);
      EXPECT_EQ(first[i].rms, again[i].rms) << first[i].name;
      EXPECT_EQ(first[i].not_finite, 0) << first[i].name;
      EXPECT_GT(first[i].largest, 0) << first[i].name;
    }
    EXPECT_FALSE(first_finding(first, {.figures = again, .with_errors = again}, DType::kF32,
                               rounding_error(DType::kF32, false, 24)));
    EXPECT_EQ(rig.weights(), weights);
  });
}

}  // namespace
}  // namespace bertha::testing
