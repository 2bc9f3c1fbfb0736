#include "harness/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <random>

#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/state_json.h"
#include "kernels/base/log.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_collectives.h"
#include "tests/support/thread_world.h"
#include "tests/support/transport_world.h"

namespace bertha::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Config small_config() {
  Config config;
  config.model = {.layers = 1,
                  .hidden = 16,
                  .heads = 2,
                  .feed_forward = 24,
                  .vocab_size = 37,
                  .max_positions = 16};
  config.checkpoint.keep = 2;
  return config;
}

/// Everything a checkpoint holds, gathered from all ranks.
struct Content {
  std::vector<float> master, m, v, weights;
  TrainingState state;
};

TrainingState some_state(int64_t step) {
  TrainingState state{.step = step,
                      .samples_trained = 448 * step,
                      .next_eval = 3,
                      .seed = 0xFEDCBA9876543210ull,
                      .data = {.global_batch_seqs = 448,
                               .order = "windowed",
                               .window_shards = 5,
                               .identity = "0123456789abcdef"},
                      .lamb = {.successful_steps = step - 2,
                               .skipped_steps = 2,
                               .skips_in_a_row = 1,
                               .steps_since_growth = 7,
                               .loss_scale = 1024.0f,
                               .learning_rate = 1.1e-3f,
                               .gradient_norm = std::numeric_limits<float>::infinity(),
                               .bias_correction_1 = 0.3f,
                               .skip = 1},
                      .evals = {{.step = 5, .samples = 9, .mlm_accuracy = 0.1, .mlm_loss = 7.5}},
                      .training_seconds = 12.25};
  return state;
}

/// Runs `work` as `ranks` ranks, each with an optimizer of the given config.
void as_ranks(int ranks, const Config& config,
              const std::function<void(const CheckpointParts& parts)>& work) {
  ThreadWorld threads(ranks);
  run_ranks(ranks, [&](Device& device, Collectives& collectives) {
    TransportWorld world(threads.transport(collectives.rank()));
    const Dims dims = make_dims(config.model);
    const ParamTable table = make_param_table(dims, DecayRule::kReference);
    const auto stream = device.make_stream();
    const auto ops = make_cpu_ops(device, *stream);
    Optimizer optimizer(
        config.optimizer, 100, table,
        {.device = &device, .stream = stream.get(), .ops = ops.get(), .collectives = &collectives});
    work({.world = &world,
          .device = &device,
          .stream = stream.get(),
          .optimizer = &optimizer,
          .table = &table,
          .dims = dims,
          .config = &config});
  });
}

void fill_randomly(const CheckpointParts& parts) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> flat(static_cast<size_t>(parts.table->elements), 0.0f);
  for (const ParamInfo& param : parts.table->params) {
    // Padding rows of the vocabulary stay zero: they do not travel under foreign names.
    const int64_t rows = param.shape[0] == parts.dims.V ? parts.dims.C : param.shape[0];
    const int64_t filled = param.elements / param.shape[0] * rows;
    for (int64_t i = 0; i < filled; ++i)
      flat[static_cast<size_t>(param.offset + i)] = normal(random);
  }
  parts.optimizer->set_weights(flat.data());
  const int64_t begin = parts.optimizer->shard_begin();
  for (int64_t i = 0; i < parts.optimizer->shard_elements(); ++i) {
    if (begin + i >= parts.table->elements) break;
    parts.optimizer->m().as<float>()[i] = 0.5f * static_cast<float>(begin + i);
    parts.optimizer->v().as<float>()[i] = 1.0f / static_cast<float>(begin + i + 1);
  }
}

void gather(const CheckpointParts& parts, const TrainingState& state, Content& content) {
  const auto count = static_cast<size_t>(parts.table->elements);
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  content.master.resize(count);
  content.m.resize(count);
  content.v.resize(count);
  const Optimizer& o = *parts.optimizer;
  for (int64_t i = 0; i < o.shard_elements() && o.shard_begin() + i < parts.table->elements; ++i) {
    const auto at = static_cast<size_t>(o.shard_begin() + i);
    content.master[at] = o.master().as<float>()[i];
    content.m[at] = o.m().as<float>()[i];
    content.v[at] = o.v().as<float>()[i];
  }
  content.weights.assign(o.weights().as<float>(), o.weights().as<float>() + count);
  content.state = state;
}

std::string save(const std::string& folder, int ranks, int64_t step, Content* content = nullptr) {
  const Config config = small_config();
  std::string path;
  as_ranks(ranks, config, [&](const CheckpointParts& parts) {
    fill_randomly(parts);
    const std::string saved = save_checkpoint(folder, some_state(step), parts);
    if (parts.world->rank() == 0) path = saved;
    if (content != nullptr) gather(parts, some_state(step), *content);
  });
  return path;
}

Content load(const std::string& path, int ranks, const Config& config = small_config()) {
  Content content;
  as_ranks(ranks, config, [&](const CheckpointParts& parts) {
    const TrainingState state = load_checkpoint(path, parts);
    gather(parts, state, content);
  });
  return content;
}

std::string message_of(const std::function<void()>& work, ExitCode code = ExitCode::kData) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, code) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

void flip_byte(const std::string& path, int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const char byte = static_cast<char>(file.get());
  file.seekp(-from_end, std::ios::end);
  file.put(static_cast<char>(byte ^ 0x10));
}

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
      EXPECT_EQ(loaded.state.next_eval, saved.state.next_eval);
      EXPECT_EQ(loaded.state.seed, saved.state.seed);
      EXPECT_EQ(loaded.state.data.global_batch_seqs, 448);
      EXPECT_EQ(loaded.state.data.order, "windowed");
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
  const Dims dims = make_dims(small_config().model);
  const ParamTable table = make_param_table(dims, DecayRule::kReference);
  std::vector<float> flat(static_cast<size_t>(table.elements), 1.0f);
  load_weights(path, table, dims, flat.data());
  EXPECT_EQ(flat, saved.weights);
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
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  fs::remove(torn + "/DONE");
  EXPECT_EQ(newest_checkpoint(folder.path()), good);
  EXPECT_EQ(warnings.size(), 1u);
  flip_byte(good + "/model.safetensors", 5);
  EXPECT_THAT(message_of([&] { newest_checkpoint(folder.path()); }),
              AllOf(HasSubstr("none of the 1 checkpoints in " + folder.path()),
                    HasSubstr("model.safetensors: has the hash"), HasSubstr("never")));
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_THAT(warnings[2], AllOf(HasSubstr("model.safetensors"), HasSubstr("hash")));
  fs::remove(good + "/DONE");
  EXPECT_EQ(newest_checkpoint(folder.path()), std::nullopt);  // only torn ones: nothing is lost
  set_log_sink({});
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
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
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& text) { lines.push_back(text); });
  set_aside_later_checkpoints(folder.path(), 7);
  EXPECT_EQ(lines.size(), 0u);
  set_aside_later_checkpoints(folder.path(), 4);
  EXPECT_EQ(newest_checkpoint(folder.path()), first);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step_00000004", "step_00000007.superseded"));
  set_aside_later_checkpoints(folder.path(), -1);
  EXPECT_EQ(newest_checkpoint(folder.path()), std::nullopt);
  save(folder.path(), 1, 4);
  set_aside_later_checkpoints(folder.path(), 0);  // once more under the same name
  set_log_sink({});
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("step_00000004.superseded", "step_00000007.superseded"));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("step_00000007"), HasSubstr(".superseded")));
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
  write_synced_file(partial + "/state.json", "{}");
  fs::create_directory(path + ".replaced");
  seal_folder(partial, path);
  EXPECT_THAT(names_in(path), ElementsAre("DONE", "state.json"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step_00000004"));
}

TEST(Checkpoint, RefusesAFlippedByteAnywhereInAHeaderNamingTheFile) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, 1);
  const std::string file = path + "/optimizer-00000-of-00001.safetensors";
  const auto bytes = static_cast<int64_t>(fs::file_size(file));
  const SafeTensorsHeader header = read_safetensors_header(file);
  ASSERT_LT(header.data_offset_bytes, 400);
  as_ranks(1, small_config(), [&](const CheckpointParts& parts) {
    for (int64_t at = 0; at < 400; ++at) {
      flip_byte(file, bytes - at);
      EXPECT_THAT(message_of([&] { load_checkpoint(path, parts); }), HasSubstr(file)) << at;
      flip_byte(file, bytes - at);
    }
    EXPECT_EQ(load_checkpoint(path, parts).step, 1);
  });
}

TEST(Checkpoint, RefusesAnOptimizerFileOfAnotherProgram) {
  using Metadata = std::map<std::string, std::string>;
  using Entries = std::vector<SafeTensorsWriter::Entry>;
  const std::string all = std::to_string(
      make_param_table(make_dims(small_config().model), DecayRule::kReference).elements);
  const Entries three = {{"m", {2}}, {"master", {2}}, {"v", {2}}};
  const std::vector<std::pair<Metadata, Entries>> cases = {
      {{{"first_element", "0"}}, three},
      {{{"first_element", "x"}, {"table_elements", all}}, three},
      {{{"first_element", "-1"}, {"table_elements", all}}, three},
      {{{"first_element", "99999999999999999999"}, {"table_elements", all}}, three},
      {{{"first_element", "0"}, {"table_elements", all}}, {{"m", {4}}, {"v", {2}}}},
      {{{"first_element", "0"}, {"table_elements", all}},
       {{"m", {1}}, {"master", {3}}, {"v", {2}}}}};
  for (const auto& [metadata, entries] : cases) {
    const TempFolder folder;
    const std::string path = save(folder.path(), 1, 1);
    const std::string file = "/optimizer-00000-of-00001.safetensors";
    fs::remove(path + "/DONE");
    fs::rename(path, path + ".partial");
    SafeTensorsWriter writer(path + ".partial" + file, entries, metadata);
    const std::vector<float> values(6, 1.0f);
    writer.append(values.data(), 6);
    writer.finish();
    seal_folder(path + ".partial", path);
    EXPECT_THAT(message_of([&] { load(path, 1); }),
                AllOf(HasSubstr(path + file), HasSubstr("no optimizer file of this program")));
  }
}

TEST(OnAllRanks, AnExceptionOfTheStandardLibraryOnOneRankIsAnErrorOnAll) {
  int throwing_ranks = 0;
  std::mutex mutex;
  as_ranks(3, small_config(), [&](const CheckpointParts& parts) {
    const std::string message = message_of(
        [&] {
          on_all_ranks(*parts.world, [&] {
            if (parts.world->rank() == 1) throw std::out_of_range("no such key");
          });
        },
        ExitCode::kInternal);
    const std::lock_guard<std::mutex> lock(mutex);
    EXPECT_EQ(message, "no such key");
    ++throwing_ranks;
  });
  EXPECT_EQ(throwing_ranks, 3);
}

TEST(OnAllRanks, AFailedAllocationOnOneRankIsOutOfMemoryOnAll) {
  as_ranks(2, small_config(), [&](const CheckpointParts& parts) {
    const std::string message = message_of(
        [&] {
          on_all_ranks(*parts.world, [&] {
            if (parts.world->rank() == 0) throw std::bad_alloc();
          });
        },
        ExitCode::kMemory);
    EXPECT_THAT(message, HasSubstr("out of host memory"));
  });
}

TEST(Checkpoint, RefusesAFlippedByteInEveryFileOnAllRanks) {
  for (const char* name :
       {"model.safetensors", "state.json", "optimizer-00000-of-00002.safetensors",
        "optimizer-00001-of-00002.safetensors"}) {
    const TempFolder folder;
    const std::string path = save(folder.path(), 2, 1);
    flip_byte(path + "/" + name, 9);
    int throwing_ranks = 0;
    std::mutex mutex;
    as_ranks(2, small_config(), [&](const CheckpointParts& parts) {
      const std::string message = message_of([&] { load_checkpoint(path, parts); });
      const std::lock_guard<std::mutex> lock(mutex);
      EXPECT_THAT(message, HasSubstr(name));
      ++throwing_ranks;
    });
    EXPECT_EQ(throwing_ranks, 2);
  }
}

TEST(Checkpoint, RefusesTruncatedAndMissingFiles) {
  for (const char* name : {"model.safetensors", "optimizer-00000-of-00001.safetensors"}) {
    for (const bool truncate : {true, false}) {
      const TempFolder folder;
      const std::string path = save(folder.path(), 1, 1);
      const std::string file = path + "/" + name;
      if (truncate) {
        fs::resize_file(file, fs::file_size(file) / 2);
      } else {
        fs::remove(file);
      }
      const std::string message = message_of([&] { load(path, 1); });
      EXPECT_THAT(message, HasSubstr(truncate ? name : "")) << name;
      EXPECT_THAT(message, HasSubstr(".")) << name;
    }
  }
}

TEST(Checkpoint, OfAnotherShapeNamesTensorFoundAndWanted) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, 1);
  Config config = small_config();
  config.model.feed_forward = 32;
  EXPECT_THAT(message_of([&] { load(path, 1, config); }),
              AllOf(HasSubstr("intermediate.dense.weight is [24,16], want [32,16]"),
                    HasSubstr("model.safetensors")));
  config = small_config();
  config.model.layers = 2;
  EXPECT_THAT(message_of([&] { load(path, 1, config); }),
              HasSubstr("bert.encoder.layer.1.attention.self.query.weight is missing"));
}

TEST(Checkpoint, OnAFullDiskFailsWithASentenceAndLeavesTheEarlierOnes) {
  const TempFolder folder;
  const std::string earlier = save(folder.path(), 2, 1);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit tight{.rlim_cur = 4096, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  const std::string message = message_of([&] { save(folder.path(), 2, 2); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_THAT(message, AllOf(HasSubstr(".safetensors"), HasSubstr("writing failed")));
  EXPECT_EQ(newest_checkpoint(folder.path()), earlier);
  EXPECT_FALSE(fs::exists(folder.path() + "/step_00000002.partial"));
}

}  // namespace
}  // namespace bertha::testing
