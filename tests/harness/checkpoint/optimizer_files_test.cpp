#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/safetensors.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/checkpoint/checkpoint_rig.h"
#include "tests/support/recording_device.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

namespace fs = std::filesystem;

TEST(OptimizerFiles, LoadsBitForBitWithBucketsOfEverySize) {
  // The whole buffer, of about a tensor, and the least: many ranges that lie across each other.
  const std::vector<double> sizes_mib = {100, 0.004, 1e-6};
  for (const int saving_ranks : {1, 2, 3}) {
    for (const double saved_mib : sizes_mib) {
      const TempFolder folder;
      Content saved;
      const std::string path =
          save(folder.path(), saving_ranks, 40, &saved, config_with_buckets(saved_mib));
      for (const int loading_ranks : {1, 2, 4}) {
        for (const double loaded_mib : sizes_mib) {
          const Content loaded = load(path, loading_ranks, config_with_buckets(loaded_mib));
          const std::string what = concat(saving_ranks, " ranks, ", saved_mib, " MiB to ",
                                          loading_ranks, ", ", loaded_mib);
          EXPECT_EQ(loaded.master, saved.master) << what;
          EXPECT_EQ(loaded.m, saved.m) << what;
          EXPECT_EQ(loaded.v, saved.v) << what;
          EXPECT_EQ(loaded.weights, saved.weights) << what;
        }
      }
    }
  }
}

/// Pinned memory as a device may hand it out again: full of what was there before.
class UsedDevice final : public RecordingDevice {
 public:
  using RecordingDevice::RecordingDevice;
  Buffer allocate_pinned(int64_t bytes) override {
    Buffer buffer = RecordingDevice::allocate_pinned(bytes);
    if (bytes > 0) std::memset(buffer.data(), 0xFF, static_cast<size_t>(bytes));  // NaN
    return buffer;
  }
};

TEST(OptimizerFiles, LeaveThePaddingBehindTheTableZero) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, 40);
  as_ranks(3, small_config(), [&](const CheckpointParts& parts) {
    UsedDevice device(*parts.device);
    CheckpointParts used = parts;
    used.device = &device;
    load_checkpoint(path, used);
    const Optimizer& optimizer = *parts.optimizer;
    int64_t padding = optimizer.shard_elements();
    for_each_element(parts, [&](int64_t, int64_t) { --padding; });
    const bool is_last = optimizer.shard() == optimizer.shard_count() - 1;
    EXPECT_EQ(padding > 0, is_last);
    for (const View& values : {optimizer.master(), optimizer.m(), optimizer.v()}) {
      for (int64_t i = optimizer.shard_elements() - padding; i < optimizer.shard_elements(); ++i) {
        EXPECT_EQ(values.as<float>()[i], 0.0f);
      }
    }
    save_checkpoint(folder.path(), some_state(41), used);  // which refuses what is not finite
  });
}

/// Replaces a file of a checkpoint, and seals it again.
void replace_file(const std::string& path, const std::string& name,
                  const std::function<void(const std::string& file)>& write) {
  const std::string partial = path + ".partial";
  fs::remove(path + "/DONE");
  fs::rename(path, partial);
  write(partial + "/" + name);
  seal_folder(partial, path);
}

TEST(OptimizerFiles, ARankOpensItsOwnFileAloneWhereAsManyHaveSaved) {
  const TempFolder folder;
  Content saved;
  const std::string path = save(folder.path(), 3, 40, &saved);
  replace_file(path, "optimizer-00003-of-00003.safetensors",
               [](const std::string& file) { std::ofstream(file) << "no tensors"; });
  EXPECT_EQ(load(path, 3).master, saved.master);
  EXPECT_THAT(error_of([&] { load(path, 4); }), HasSubstr("optimizer-00003-of-00003"));
}

TEST(OptimizerFiles, LoadsFilesThatNameTheirFirstElement) {
  const TempFolder folder;
  Content saved;
  const std::string path = save(folder.path(), 2, 40, &saved);
  const auto elements = static_cast<int64_t>(saved.master.size());
  const int64_t first_half = elements / 2 + 3;
  for (const int64_t first : {int64_t{0}, first_half}) {
    const int64_t count = first == 0 ? first_half : elements - first_half;
    const std::string name = concat("optimizer-0000", first == 0 ? 0 : 1, "-of-00002.safetensors");
    replace_file(path, name, [&](const std::string& file) {
      SafeTensorsWriter writer(
          file, {{"master", {count}}, {"m", {count}}, {"v", {count}}},
          {{"first_element", std::to_string(first)}, {"table_elements", std::to_string(elements)}});
      for (const auto* values : {&saved.master, &saved.m, &saved.v}) {
        writer.append(values->data() + first, count);
      }
      writer.finish();
    });
  }
  for (const int ranks : {1, 3}) {
    const Content loaded = load(path, ranks, config_with_buckets(0.004));
    EXPECT_EQ(loaded.master, saved.master);
    EXPECT_EQ(loaded.m, saved.m);
    EXPECT_EQ(loaded.v, saved.v);
  }
}

TEST(OptimizerFiles, RefusesNegativeMeansOfSquares) {
  const TempFolder folder;
  Content saved;
  const std::string path = save(folder.path(), 1, 3, &saved);
  const auto elements = static_cast<int64_t>(saved.master.size());
  saved.v[7] = -1e-30f;
  replace_file(path, "optimizer-00000-of-00001.safetensors", [&](const std::string& file) {
    SafeTensorsWriter writer(
        file, {{"master", {elements}}, {"m", {elements}}, {"v", {elements}}},
        {{"first_element", "0"}, {"table_elements", std::to_string(elements)}});
    for (const auto* values : {&saved.master, &saved.m, &saved.v}) {
      writer.append(values->data(), elements);
    }
    writer.finish();
  });
  EXPECT_THAT(error_of([&] { load(path, 1); }), HasSubstr("v has negative numbers"));
}

TEST(OptimizerFiles, RefusesAnOptimizerFileOfAnotherProgram) {
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
      {{{"ranges", ""}, {"table_elements", all}}, three},
      {{{"ranges", "0-1"}, {"table_elements", all}}, three},
      {{{"ranges", "0-1 64-66"}, {"table_elements", all}}, three},
      {{{"ranges", "2-0 5-9"}, {"table_elements", all}}, three},
      {{{"ranges", "0-1 7"}, {"table_elements", all}}, three},
      {{{"ranges", "0-1,5-6"}, {"table_elements", all}}, three},
      {{{"ranges", "0-99999999999999999999"}, {"table_elements", all}}, three},
      {{{"ranges", "-1-1"}, {"table_elements", all}}, three},
      {{{"first_element", "0"}, {"table_elements", all}}, {{"m", {4}}, {"v", {2}}}},
      {{{"first_element", "0"}, {"table_elements", all}},
       {{"m", {1}}, {"master", {3}}, {"v", {2}}}}};
  for (const auto& [metadata, entries] : cases) {
    const TempFolder folder;
    const std::string path = save(folder.path(), 1, 1);
    const std::string file = "optimizer-00000-of-00001.safetensors";
    replace_file(path, file, [&](const std::string& name) {
      SafeTensorsWriter writer(name, entries, metadata);
      const std::vector<float> values(6, 1.0f);
      writer.append(values.data(), 6);
      writer.finish();
    });
    EXPECT_THAT(error_of([&] { load(path, 1); }),
                AllOf(HasSubstr(path + "/" + file), HasSubstr("not an optimizer file of Bertha")));
  }
}

}  // namespace
}  // namespace bertha::testing
