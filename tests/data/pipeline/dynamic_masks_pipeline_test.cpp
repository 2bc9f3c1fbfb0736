#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/tests/matchers.h"
#include "tests/data/pipeline/pipeline_fixture.h"

namespace bertha {
namespace {

/// Tokens, masked positions and labels of every sample, by step and id.
std::map<std::pair<size_t, int64_t>, std::string> masks_of(const RanksSteps& ranks) {
  std::map<std::pair<size_t, int64_t>, std::string> found;
  for (const auto& steps : ranks) {
    for (size_t step = 0; step < steps.size(); ++step) {
      for (const HostBatch& batch : steps[step].micro_batches) {
        for (size_t seq = 0; seq < batch.sample_ids.size(); ++seq) {
          std::string& text = found[{step, batch.sample_ids[seq]}];
          const int32_t begin = batch.cu_seqlens[seq], end = batch.cu_seqlens[seq + 1];
          for (int32_t at = begin; at < end; ++at) {
            text += concat(batch.word_ids[static_cast<size_t>(at)], ' ');
          }
          for (size_t m = 0; m < batch.masked_positions.size(); ++m) {
            const int32_t at = batch.masked_positions[m];
            if (at < begin || at >= end) continue;
            text += concat('[', at - begin, ' ', batch.masked_labels[m], ']');
          }
        }
      }
    }
  }
  return found;
}

class DynamicMasks : public PipelineTest {
 protected:
  DynamicMasks() {
    options_.masks = MaskRule{.fraction = 0.2,
                              .special = {.classify = kExampleCls, .separator = kExampleSep},
                              .vocab_size = kLimits.vocab_size};
    options_.num_steps = 18;  // two epochs and a quarter
  }
};

TEST_F(DynamicMasks, AreTheSameForEveryWorldSizeAndExchangeMode) {
  const auto want = masks_of(run_pipelines(options_, 1));
  ASSERT_EQ(want.size(), 180u);
  for (const auto mode : kModes) {
    options_.exchange = mode;
    for (const int num_ranks : {1, 2, 4}) {
      options_.micro_batches_per_step = 1 + num_ranks % 3;
      EXPECT_EQ(masks_of(run_pipelines(options_, num_ranks)), want) << num_ranks;
    }
  }
}

TEST_F(DynamicMasks, DifferFromEpochToEpochAndFromTheStoredOnes) {
  std::map<int64_t, std::set<std::string>> by_id;
  for (const auto& [place, text] : masks_of(run_pipelines(options_, 2))) {
    by_id[place.second].insert(text);
  }
  options_.masks.reset();
  for (const auto& [place, text] : masks_of(run_pipelines(options_, 2))) {
    by_id[place.second].insert(text);
  }
  int64_t different = 0;
  for (const auto& [id, texts] : by_id) different += texts.size() >= 3 ? 1 : 0;
  EXPECT_GT(different, kEpochSeqs - 5);  // the shortest samples have few choices
}

TEST_F(DynamicMasks, AreCountedInTheStepAndResumedExactly) {
  for (const auto order : {SampleOrder::kWindowed, SampleOrder::kPublished}) {
    options_.order = order;
    options_.first_step = 0;
    options_.num_steps = 18;
    const RanksSteps whole = run_pipelines(options_, 2);
    for (size_t step = 0; step < 18; ++step) {
      int64_t masked = 0, wanted = 0;
      for (const auto& steps : whole) {
        for (const HostBatch& batch : steps[step].micro_batches) {
          masked += batch.num_masked;
          for (size_t seq = 1; seq < batch.cu_seqlens.size(); ++seq) {
            wanted += num_masks(batch.cu_seqlens[seq] - batch.cu_seqlens[seq - 1], 0.2);
          }
        }
      }
      EXPECT_EQ(masked, wanted);
      for (const auto& steps : whole) EXPECT_EQ(steps[step].num_masked_global, masked);
    }
    for (const int64_t first_step : {1, 7, 8, 17}) {
      options_.first_step = first_step;
      options_.num_steps = 18 - first_step;
      expect_same_steps(run_pipelines(options_, 2), whole, 18 - first_step, first_step);
    }
  }
}

TEST_F(DynamicMasks, OfAnotherVocabularyAreRefusedOnAllRanks) {
  options_.masks->special.classify = 7;
  const auto plain = [](int) { return plain_host_allocator(); };
  for (const Ending& ending : run_to_the_error(options_, 3, plain)) {
    EXPECT_THAT(ending.message, HasSubstr("does not begin with [CLS], id 7"));
  }
}

}  // namespace
}  // namespace bertha
