#include "harness/train/evaluate.h"

#include <gtest/gtest.h>

#include "harness/train/probe.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/base/tests/tolerance.h"
#include "tests/harness/train/training_rig.h"
#include "tests/support/thread_world.h"

namespace bertha::testing {
namespace {

/// All ranks evaluate; [rank] lists of batches of sequences. The result of the last rank.
EvalResult evaluate_over(const std::vector<std::vector<std::vector<TinySequence>>>& ranks,
                         double dropout = 0) {
  EvalResult result;
  run_ranks(static_cast<int>(ranks.size()), [&](Device& device, Collectives& collectives) {
    TrainingRig rig(device, collectives, rig_model(dropout));
    std::vector<HostBatch> batches;
    for (const auto& sequences : ranks[static_cast<size_t>(collectives.rank())]) {
      batches.push_back(make_batch(sequences));
    }
    const EvalResult mine = evaluate(rig.model, batches, rig.parts(), collectives);
    if (collectives.rank() == collectives.size() - 1) result = mine;
  });
  return result;
}

void expect_same(const EvalResult& one, const EvalResult& other) {
  EXPECT_EQ(one.mlm_accuracy, other.mlm_accuracy);
  EXPECT_EQ(one.nsp_accuracy, other.nsp_accuracy);
  EXPECT_EQ(one.masked_tokens, other.masked_tokens);
  EXPECT_EQ(one.seqs, other.seqs);
  EXPECT_NEAR(one.mlm_loss, other.mlm_loss, tolerance::kModelLossF32 * one.mlm_loss);
}

TEST(Evaluate, DoesNotDependOnBatchesRanksOrDropout) {
  const auto all = rig_sequences(11);
  const EvalResult alone = evaluate_over({{all}});
  EXPECT_EQ(alone.seqs, 11);
  EXPECT_EQ(alone.masked_tokens, num_masked(all));
  EXPECT_GT(alone.mlm_loss, 1);
  expect_same(alone, evaluate_over({{part_of(all, 0, 4), part_of(all, 4, 4), part_of(all, 8, 3)}}));
  expect_same(alone,
              evaluate_over({{part_of(all, 0, 4)}, {part_of(all, 4, 6), part_of(all, 10, 1)}}));
  expect_same(alone, evaluate_over({{all}, {}, {}}));
  expect_same(alone, evaluate_over({{all}}, 0.5));
}

TEST(Evaluate, SaysAfterEachBatchThatItGetsOn) {
  run_ranks(1, [&](Device& device, Collectives& collectives) {
    TrainingRig rig(device, collectives, rig_model(0));
    const auto all = rig_sequences(6);
    std::vector<HostBatch> batches;
    for (const int64_t begin : {0, 2, 4}) batches.push_back(make_batch(part_of(all, begin, 2)));
    int calls = 0;
    evaluate(rig.model, batches, rig.parts(), collectives, [&] { ++calls; });
    EXPECT_EQ(calls, 3);
  });
}

TEST(Evaluate, IsAMeanOverTokensNotOverBatches) {
  // A batch of one sequence with one masked token, and one of ten sequences with many.
  const auto all = rig_sequences(13);
  const auto one = part_of(all, 0, 1);
  const auto rest = part_of(all, 1, 12);
  const EvalResult a = evaluate_over({{one}});
  const EvalResult b = evaluate_over({{rest}});
  const EvalResult both = evaluate_over({{one, rest}});
  ASSERT_NE(a.masked_tokens, b.masked_tokens);
  const double weighted = (a.mlm_loss * static_cast<double>(a.masked_tokens) +
                           b.mlm_loss * static_cast<double>(b.masked_tokens)) /
                          static_cast<double>(a.masked_tokens + b.masked_tokens);
  EXPECT_NEAR(both.mlm_loss, weighted, tolerance::kModelLossF32 * weighted);
  EXPECT_GT(std::abs(both.mlm_loss - (a.mlm_loss + b.mlm_loss) / 2), 1e-3);
}

TEST(Evaluate, NothingToEvaluateIsZero) {
  const EvalResult result = evaluate_over({{}, {}});
  EXPECT_EQ(result.seqs, 0);
  EXPECT_EQ(result.mlm_accuracy, 0);
  EXPECT_EQ(result.mlm_loss, 0);
}

TEST(EvalSet, TheConstantAnswerIsTheMostFrequentTokenOfAllRanks) {
  // Token 7: two on rank 0, two on rank 1; token 9: three on rank 0.
  const auto labelled = [](const std::vector<int32_t>& labels, int64_t id) {
    TinySequence sequence{.word_ids = std::vector<int32_t>(12, 1),
                          .segment_ids = std::vector<int32_t>(12, 0),
                          .masked_positions = {},
                          .masked_labels = labels};
    for (size_t i = 0; i < labels.size(); ++i) {
      sequence.masked_positions.push_back(static_cast<int32_t>(i + 1));
    }
    HostBatch batch = make_batch({sequence});
    batch.sample_ids = {id};
    return batch;
  };
  run_thread_ranks(2, [&](Transport& transport) {
    std::vector<HostBatch> batches;
    if (transport.rank() == 0) {
      batches.push_back(labelled({7, 9, 9}, 0));
      batches.push_back(labelled({9, 7}, 1));
    } else {
      batches.push_back(labelled({7, 7, 36}, 2));
    }
    const EvalSetFacts facts = describe_eval_set(batches, 37, transport, "eval");
    EXPECT_EQ(facts.num_seqs, 3);
    EXPECT_EQ(facts.num_masked, 8);
    EXPECT_EQ(facts.constant_answer_accuracy, 4.0 / 8.0);
  });
}

TEST(EvalSet, ASetWithoutAMaskedTokenIsRefusedOnAllRanks) {
  run_thread_ranks(2, [&](Transport& transport) {
    HostBatch batch;
    std::vector<int32_t> labels{5};
    batch.sample_ids = {transport.rank()};
    batch.num_seqs = 1;
    const auto describe = [&] { describe_eval_set({&batch, 1}, 37, transport, "some/eval"); };
    EXPECT_THAT(error_of(describe, ExitCode::kData),
                HasSubstr("some/eval): none of its 2 sequences has a masked token"));
    if (transport.rank() == 1) batch.masked_labels = labels;
    EXPECT_EQ(error_of(describe), "no error");
  });
}

// Of 11 sequences on one node and 7 on another: the first half of these, the second of those.
TEST(EvalSet, PartsOfDifferentSetsAreRefusedOnAllRanks) {
  const auto error_of_parts = [](std::vector<int64_t> first, std::vector<int64_t> second) {
    std::vector<std::string> errors(2);
    run_thread_ranks(2, [&](Transport& transport) {
      HostBatch batch;
      std::vector<int32_t> labels{5};
      batch.sample_ids = transport.rank() == 0 ? first : second;
      batch.num_seqs = std::ssize(batch.sample_ids);
      batch.masked_labels = labels;
      errors[static_cast<size_t>(transport.rank())] = error_of([&] {
        describe_eval_set({&batch, 1}, 37, transport, "eval");
      });
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  EXPECT_EQ(error_of_parts({0, 1, 2, 3}, {4, 5, 6}), "no error");
  EXPECT_THAT(error_of_parts({0, 1, 2, 3, 4, 5}, {4, 5, 6}), HasSubstr("data.eval"));
  EXPECT_THAT(error_of_parts({0, 1, 2, 3}, {6, 7, 8, 9, 10}), HasSubstr("their 9 "));
}

TEST(EvalSet, ASetTooSmallToTellAnAccuracyIsWarnedOf) {
  EXPECT_EQ(warning_of_small_set({.num_seqs = 10, .num_masked = 100}, "eval"), "");
  EXPECT_EQ(warning_of_small_set({.num_seqs = 1, .num_masked = 4}, "eval"),
            "data.eval (eval) contains only 4 masked tokens: the accuracy is uncertain by up to "
            "25.0 percentage points; give more evaluation text");
  EXPECT_NE(warning_of_small_set({}, "eval"), "");
}

TEST(StepProbe, HandsOverTheSumsOfTheStepThatItCaptured) {
  const auto all = rig_sequences(12);
  run_ranks(2, [&](Device& device, Collectives& collectives) {
    TrainingRig rig(device, collectives, rig_model());
    StepProbe probe(rig.parts(), collectives);
    EXPECT_FALSE(probe.is_pending());
    EXPECT_FALSE(probe.poll().has_value());
    const auto step = [&](int64_t first) {
      train_step(rig_step({part_of(all, first + 3 * collectives.rank(), 3)}, 6,
                          num_masked(part_of(all, first, 6))),
                 {.num_ranks = 2}, rig.step_parts());
    };
    step(0);
    probe.capture(
        rig.model, rig.optimizer,
        RankTimes{.compute_ms = 10.0f + static_cast<float>(collectives.rank()), .sm_mhz = 1980});
    EXPECT_TRUE(probe.is_pending());
    step(6);  // begins new sums and counts another update
    const StepScalars scalars = probe.wait();
    EXPECT_FALSE(probe.is_pending());
    EXPECT_EQ(scalars.stats.nsp_count, 6);
    EXPECT_EQ(scalars.stats.mlm_count, num_masked(part_of(all, 0, 6)));
    EXPECT_GT(scalars.stats.mlm_loss_sum, 0);
    EXPECT_EQ(scalars.lamb.successful_steps, 1);
    EXPECT_EQ(rig.state().successful_steps, 2);
    ASSERT_EQ(scalars.ranks.size(), 2u);
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(scalars.ranks[rank].compute_ms, 10.0f + static_cast<float>(rank));
      EXPECT_EQ(scalars.ranks[rank].sm_mhz, 1980.0f);
    }

    probe.capture(rig.model, rig.optimizer);
    const std::optional<StepScalars> polled = probe.poll();  // the CPU backend is always done
    ASSERT_TRUE(polled.has_value());
    EXPECT_EQ(polled->lamb.successful_steps, 2);
    EXPECT_EQ(polled->stats.mlm_count, num_masked(part_of(all, 6, 6)));
    EXPECT_TRUE(polled->ranks.empty());
  });
}

TEST(StepProbe, HandsOverTheSumsOfAllStepsSinceTheLastCapture) {
  const auto all = rig_sequences(12);
  run_ranks(2, [&](Device& device, Collectives& collectives) {
    TrainingRig rig(device, collectives, rig_model());
    StepProbe probe(rig.parts(), collectives);
    for (const int64_t first : {0, 6}) {
      train_step(rig_step({part_of(all, first + 3 * collectives.rank(), 3)}, 6,
                          num_masked(part_of(all, first, 6))),
                 {.num_ranks = 2}, rig.step_parts());
    }
    probe.capture(rig.model, rig.optimizer);
    const StepScalars scalars = probe.wait();
    EXPECT_EQ(scalars.stats.nsp_count, 12);
    EXPECT_EQ(scalars.stats.mlm_count, num_masked(all));
    probe.capture(rig.model, rig.optimizer);
    EXPECT_EQ(probe.wait().stats.mlm_count, 0);
  });
}

TEST(Evaluation, LeavesNothingInTheSumsOfTraining) {
  run_ranks(1, [&](Device& device, Collectives& collectives) {
    TrainingRig rig(device, collectives, rig_model());
    const std::vector<HostBatch> batches{make_batch(rig_sequences(4))};
    evaluate(rig.model, batches, rig.parts(), collectives);
    StepProbe probe(rig.parts(), collectives);
    probe.capture(rig.model, rig.optimizer);
    EXPECT_EQ(probe.wait().stats.mlm_count, 0);
  });
}

}  // namespace
}  // namespace bertha::testing
