#include "harness/train/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/train/training_rig.h"

namespace bertha::testing {
namespace {

using ::testing::HasSubstr;

std::vector<TensorFigures> three_tensors() {
  return {{.name = "first", .elements = 100, .largest = 3, .mean = 0.5, .rms = 1},
          {.name = "second", .elements = 100, .largest = 3, .mean = 0.5, .rms = 1},
          {.name = "third", .elements = 100, .largest = 3, .mean = 0.5, .rms = 1}};
}

std::optional<Finding> finding(const std::vector<TensorFigures>& run, DType io = DType::kBF16) {
  return first_finding(run, three_tensors(), io, false, 1000);
}

TEST(FirstFinding, IsNoneWithinTheTolerance) {
  auto run = three_tensors();
  const double tolerance = figure_tolerance(DType::kBF16, false, 1, 1000);
  run[1].rms *= 1 + 0.9 * tolerance;
  run[1].largest *= 1 - 0.9 * tolerance;
  EXPECT_FALSE(finding(run));
  EXPECT_TRUE(finding(run, DType::kF32)) << "a coarser format does not excuse a finer one";
}

TEST(FirstFinding, IsTheFirstTensorBeyondTheTolerance) {
  const double beyond = 1.1 * figure_tolerance(DType::kBF16, false, 1, 1000);
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
  auto reference = three_tensors();
  reference[2].not_finite = 5;
  found = first_finding(run, reference, DType::kBF16, false, 1000);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("5 are not either"));
}

TEST(FigureTolerance, GrowsWithTheRootOfTheTensorsBefore) {
  EXPECT_DOUBLE_EQ(figure_tolerance(DType::kF16, false, 3, 1),
                   2 * figure_tolerance(DType::kF16, false, 0, 1));
  EXPECT_GT(figure_tolerance(DType::kF32, false, 0, 100),
            7 * figure_tolerance(DType::kF32, false, 0, 1));
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
    EXPECT_FALSE(first_finding(first, again, DType::kF32, false, 24));
    EXPECT_EQ(rig.weights(), weights);
  });
}

}  // namespace
}  // namespace bertha::testing
