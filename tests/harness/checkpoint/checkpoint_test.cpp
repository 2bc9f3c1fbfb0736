#include "harness/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <new>

#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/load_weights.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/checkpoint/safetensors.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/ops/lamb_state.h"
#include "tests/harness/checkpoint/checkpoint_rig.h"
#include "tests/support/captured_log.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/files.h"
#include "tests/support/flip_byte.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

namespace fs = std::filesystem;

TEST(Checkpoint, LoadsBitForBitAtEveryNumberOfRanks) {
  for (const int saving_ranks : {1, 2, 3}) {
    const TempFolder folder;
    Content saved;
    const std::string path = save(folder.path(), saving_ranks, 40, &saved);
    for (const int loading_ranks : {1, 2, 3, 4}) {
      const Content loaded = load(path, loading_ranks);
      EXPECT_EQ(loaded.master, saved.master) << saving_ranks << " to " << loading_ranks;
      EXPECT_EQ(loaded.m, saved.m);
      EXPECT_EQ(loaded.v, saved.v);
      EXPECT_EQ(loaded.weights, saved.weights);
      EXPECT_EQ(std::memcmp(&loaded.state.lamb, &saved.state.lamb, sizeof(LambState)), 0);
      EXPECT_EQ(loaded.state.step, 40);
      EXPECT_EQ(loaded.state.samples_trained, saved.state.samples_trained);
      EXPECT_EQ(loaded.state.seed, saved.state.seed);
      EXPECT_EQ(loaded.state.data.global_batch_seqs, 448);
      EXPECT_EQ(loaded.state.data.order, SampleOrder::kWindowed);
      EXPECT_EQ(loaded.state.data.window_shards, 5);
      EXPECT_EQ(loaded.state.data.identity, "0123456789abcdef");
      EXPECT_EQ(loaded.state.training_seconds, saved.state.training_seconds);
      ASSERT_EQ(loaded.state.evals.size(), 1u);
      EXPECT_EQ(loaded.state.evals[0].mlm_loss, 7.5);
    }
  }
}

TEST(Checkpoint, KeepsTheRowOfSkipsItLiesInAndForgetsEarlierOnes) {
  TrainingState state = some_state(40);
  state.lamb.skips_in_a_row = 2;
  state.lamb.most_skips_in_a_row = 7;
  const LambState loaded = training_state_from_json(to_json(state), "state.json").lamb;
  EXPECT_EQ(loaded.skips_in_a_row, 2);
  EXPECT_EQ(loaded.most_skips_in_a_row, 0);
}

TEST(Checkpoint, HasTheWeightsUnderHuggingFaceNamesWithoutPaddingRows) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 2, 1);
  const SafeTensorsHeader header = read_safetensors_header(path + "/model.safetensors");
  const auto& word = header.tensors.at("bert.embeddings.word_embeddings.weight");
  EXPECT_EQ(word.shape, (std::vector<int64_t>{37, 16}));
  const auto& query = header.tensors.at("bert.encoder.layer.0.attention.self.query.weight");
  EXPECT_EQ(query.shape, (std::vector<int64_t>{16, 16}));
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.tensors.size(), 5u + 16u + 9u);
}

TEST(Checkpoint, GivesItsWeightsToANewRun) {
  const TempFolder folder;
  Content saved;
  const std::string path = save(folder.path(), 2, 1, &saved);
  const ModelConfig model = small_config().model;
  const ParamTable table = make_param_table(make_dims(model), DecayRule::kReference);
  std::vector<float> flat(static_cast<size_t>(table.elements), 1.0f);
  EXPECT_THAT(load_weights({.path = path}, model, table, flat.data()).notes, IsEmpty());
  EXPECT_EQ(flat, saved.weights);
}

TEST(Checkpoint, KeepsThePaddingRowsThatTheSoftmaxTrained) {
  const TempFolder folder;
  Config config = small_config();
  config.model.padded_vocab_in_softmax = true;
  std::string path;
  std::vector<float> weights;
  as_ranks(1, config, [&](const CheckpointParts& parts) {
    weights.resize(static_cast<size_t>(parts.table->elements));
    for (const ParamInfo& param : parts.table->params) {  // padding rows too
      for (int64_t i = 0; i < param.elements; ++i) {
        weights[static_cast<size_t>(param.offset + i)] = 0.25f + static_cast<float>(i);
      }
    }
    parts.optimizer->set_weights(weights.data());
    path = save_checkpoint(folder.path(), some_state(1), parts);
  });
  const ParamTable table = make_param_table(make_dims(config.model), DecayRule::kReference);
  std::vector<float> flat(weights.size(), 1.0f);
  EXPECT_THAT(load_weights({.path = path}, config.model, table, flat.data()).notes, IsEmpty());
  EXPECT_EQ(flat, weights);

  // A softmax without them has zeros there, and says that it leaves something out.
  config.model.padded_vocab_in_softmax = false;
  const auto notes = load_weights({.path = path}, config.model, table, flat.data()).notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("padding rows"));
  const ParamInfo& words = table.find("embeddings.word.weight");
  EXPECT_EQ(flat[static_cast<size_t>(words.offset + 37 * 16)], 0.0f);
  EXPECT_EQ(flat[static_cast<size_t>(words.offset + 37 * 16 - 1)], 0.25f + 37 * 16 - 1);
}

TEST(Checkpoint, SavedWithoutTheirPaddingRowsAreReadAndSaySo) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, 1);
  ModelConfig model = small_config().model;
  model.padded_vocab_in_softmax = true;
  const ParamTable table = make_param_table(make_dims(model), DecayRule::kReference);
  std::vector<float> flat(static_cast<size_t>(table.elements), 1.0f);
  const auto notes = load_weights({.path = path}, model, table, flat.data()).notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("without the padding rows"));
}

TEST(Checkpoint, WithNumbersThatAreNotFiniteIsNotSavedAndRemovesNoOther) {
  using Poison = std::function<void(const CheckpointParts&)>;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<const char*, Poison> poisons[] = {
      {"bert.embeddings.word_embeddings.weight",
       [&](const CheckpointParts& parts) { parts.optimizer->weights().as<float>()[3] = nan; }},
      {"master (first in nsp.weight)",
       [&](const CheckpointParts& parts) {
         const int64_t at = parts.table->find("nsp.weight").offset;
         for_each_element(parts, [&](int64_t in_shard, int64_t in_flat) {
           if (in_flat == at) parts.optimizer->master().as<float>()[in_shard] = nan;
         });
       }},
      {"v (first in pooler.weight)", [&](const CheckpointParts& parts) {
         const int64_t at = parts.table->find("pooler.weight").offset + 5;
         for_each_element(parts, [&](int64_t in_shard, int64_t in_flat) {
           if (in_flat == at) parts.optimizer->v().as<float>()[in_shard] = INFINITY;
         });
       }}};
  for (const auto& [name, poison] : poisons) {
    const TempFolder folder;
    for (const int64_t step : {1, 2}) save(folder.path(), 2, step);
    as_ranks(2, small_config(), [&](const CheckpointParts& parts) {
      fill_randomly(parts);
      poison(parts);
      const std::string message = error_of(
          [&] { save_checkpoint(folder.path(), some_state(3), parts); }, ExitCode::kNumeric);
      EXPECT_THAT(message, AllOf(HasSubstr(name), HasSubstr("nothing is saved")));
    });
    EXPECT_THAT(names_in(folder.path()), ElementsAre("step_00000001", "step_00000002"));
  }
}

TEST(Checkpoint, KeepsTheNewestOnesOnly) {
  const TempFolder folder;
  for (const int64_t step : {1, 2, 3, 10}) save(folder.path(), 1, step);
  const std::vector<std::string> left = list_checkpoints(folder.path());
  ASSERT_EQ(left.size(), 2u);
  EXPECT_THAT(left[0], HasSubstr("step_00000003"));
  EXPECT_THAT(left[1], HasSubstr("step_00000010"));
  EXPECT_EQ(newest_checkpoint(folder.path()), left[1]);
}

TEST(Checkpoint, PassesOverDamagedOnesAndSaysSo) {
  const TempFolder folder;
  const std::string good = save(folder.path(), 1, 1);
  const std::string torn = save(folder.path(), 1, 2);
  const CapturedLog log;
  fs::remove(torn + "/DONE");
  EXPECT_EQ(newest_checkpoint(folder.path()), good);
  EXPECT_EQ(log.warnings().size(), 1u);
  flip_byte(good + "/model.safetensors", -5);
  EXPECT_THAT(error_of([&] { newest_checkpoint(folder.path()); }),
              AllOf(HasSubstr("none of the 1 checkpoints in " + folder.path()),
                    HasSubstr("model.safetensors: has the hash"), HasSubstr("never")));
  ASSERT_EQ(log.warnings().size(), 3u);
  EXPECT_THAT(log.warnings()[2], AllOf(HasSubstr("model.safetensors"), HasSubstr("hash")));
  fs::remove(good + "/DONE");
  EXPECT_EQ(newest_checkpoint(folder.path()), std::nullopt);  // only torn ones: nothing is lost
}

TEST(Checkpoint, IsLookedForAgainWhereARunReplacedItMeanwhile) {
  const TempFolder folder;
  const std::string first = save(folder.path(), 1, 1);
  fs::remove(save(folder.path(), 1, 2) + "/DONE");
  const std::string later = folder.path("step_00000003");
  // The warning of the torn one comes after the folder was listed and before the first is read.
  set_log_sink([&](LogLevel, const std::string&) {
    if (fs::exists(first)) fs::rename(first, later);
  });
  EXPECT_EQ(newest_checkpoint(folder.path()), later);
  set_log_sink({});
}

TEST(Checkpoint, SavedAtALowerStepIsKept) {
  const TempFolder folder;
  for (const int64_t step : {10, 20, 5}) save(folder.path(), 1, step);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step_00000005", "step_00000020"));
  const std::string newest = save(folder.path(), 1, 3);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step_00000003", "step_00000020"));
  EXPECT_TRUE(is_complete(newest));
}

TEST(Checkpoint, OfALaterStepIsSetAsideAndNoLongerFound) {
  const TempFolder folder;
  const std::string first = save(folder.path(), 1, 4);
  save(folder.path(), 1, 7);
  const CapturedLog log;
  set_aside_later_checkpoints(folder.path(), 7);
  EXPECT_EQ(log.lines.size(), 0u);
  set_aside_later_checkpoints(folder.path(), 4);
  EXPECT_EQ(newest_checkpoint(folder.path()), first);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step_00000004", "step_00000007.superseded1"));
  set_aside_later_checkpoints(folder.path(), -1);
  EXPECT_EQ(newest_checkpoint(folder.path()), std::nullopt);
  save(folder.path(), 1, 4);
  const std::string model = "/model.safetensors";
  const std::string earlier = read_text_file(folder.path("step_00000004.superseded1") + model);
  set_aside_later_checkpoints(folder.path(), 0);  // once more under the same name
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("step_00000004.superseded1", "step_00000004.superseded2",
                          "step_00000007.superseded1"));
  EXPECT_EQ(read_text_file(folder.path("step_00000004.superseded1") + model), earlier);
  ASSERT_EQ(log.lines.size(), 3u);
  EXPECT_THAT(log.lines[0].text, AllOf(HasSubstr("step_00000007"), HasSubstr(".superseded")));
}

TEST(Checkpoint, OfTheSameStepIsReplacedByTheNewOne) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 2, 4);
  EXPECT_EQ(save(folder.path(), 1, 4), path);  // other files than before
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step_00000004"));
  EXPECT_TRUE(fs::exists(path + "/optimizer-00000-of-00001.safetensors"));
  EXPECT_FALSE(fs::exists(path + "/optimizer-00000-of-00002.safetensors"));
  verify_folder(path);
}

TEST(Checkpoint, SealingRemovesWhatAnInterruptedReplacementLeft) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, 4);
  const std::string partial = make_partial_folder(path);
  write_new_file(partial + "/state.json", "{}");
  fs::create_directory(path + ".replaced");
  seal_folder(partial, path);
  EXPECT_THAT(names_in(path), ElementsAre("DONE", "state.json"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step_00000004"));
}

TEST(Checkpoint, RefusesAFlippedByteAnywhereInAHeaderNamingTheFile) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, 1);
  const std::string file = path + "/optimizer-00000-of-00001.safetensors";
  const SafeTensorsHeader header = read_safetensors_header(file);
  ASSERT_LT(header.data_offset_bytes, 400);
  as_ranks(1, small_config(), [&](const CheckpointParts& parts) {
    for (int64_t at = 0; at < 400; ++at) {
      flip_byte(file, at);
      EXPECT_THAT(error_of([&] { load_checkpoint(path, parts); }), HasSubstr(file)) << at;
      flip_byte(file, at);
    }
    EXPECT_EQ(load_checkpoint(path, parts).step, 1);
  });
}

TEST(OnAllRanks, AnExceptionOfTheStandardLibraryOnOneRankIsAnErrorOnAll) {
  int throwing_ranks = 0;
  std::mutex mutex;
  as_ranks(3, small_config(), [&](const CheckpointParts& parts) {
    const std::string message = error_of(
        [&] {
          on_all_ranks(*parts.world, [&] {
            if (parts.world->rank() == 1) throw std::out_of_range("no such key");
          });
        },
        ExitCode::kInternal);
    const std::lock_guard<std::mutex> lock(mutex);
    EXPECT_THAT(message, StartsWith("unexpected error: no such key (rank 1 of 3 on "));
    ++throwing_ranks;
  });
  EXPECT_EQ(throwing_ranks, 3);
}

TEST(OnAllRanks, AFailedAllocationOnOneRankIsOutOfMemoryOnAll) {
  as_ranks(2, small_config(), [&](const CheckpointParts& parts) {
    const std::string message = error_of(
        [&] {
          on_all_ranks(*parts.world, [&] {
            if (parts.world->rank() == 0) throw std::bad_alloc();
          });
        },
        ExitCode::kMemory);
    EXPECT_THAT(message, HasSubstr("out of host memory"));
  });
}

TEST(Checkpoint, OfAnotherShapeNamesTensorFoundAndWanted) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, 1);
  Config config = small_config();
  config.model.feed_forward = 32;
  EXPECT_THAT(error_of([&] { load(path, 1, config); }),
              AllOf(HasSubstr("intermediate.dense.weight is [24,16], want [32,16]"),
                    HasSubstr("model.safetensors")));
  config = small_config();
  config.model.layers = 2;
  EXPECT_THAT(error_of([&] { load(path, 1, config); }),
              HasSubstr("bert.encoder.layer.1.attention.self.query.weight is missing"));
}

TEST(Checkpoint, OnAFullDiskFailsWithASentenceAndLeavesTheEarlierOnes) {
  const TempFolder folder;
  const std::string earlier = save(folder.path(), 2, 1);
  const std::string message = [&] {
    const FileSizeLimit limit(4096);
    return error_of([&] { save(folder.path(), 2, 2); });
  }();
  EXPECT_THAT(message, AllOf(HasSubstr(".safetensors"), HasSubstr("cannot write")));
  EXPECT_EQ(newest_checkpoint(folder.path()), earlier);
  EXPECT_FALSE(fs::exists(folder.path() + "/step_00000002.partial"));
}

}  // namespace
}  // namespace bertha::testing
