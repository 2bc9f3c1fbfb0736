#include "harness/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "data/files/new_file.h"
#include "harness/checkpoint/checkpoint.h"
#include "kernels/base/log.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

constexpr const char* kEarlier = "step_00000002";
constexpr const char* kPath = "step_00000004";
constexpr const char* kLater = "step_00000006";

/// A checkpoint of one file under <name>.partial; without DONE.
std::string write_partial(const TempFolder& folder, const std::string& name,
                          const std::string& text) {
  const std::string partial = make_partial_folder(folder.path(name));
  write_new_file(partial + "/state.json", text);
  return partial;
}

void save(const TempFolder& folder, const std::string& name, const std::string& text) {
  seal_folder(write_partial(folder, name, text), folder.path(name));
  remove_old_checkpoints(folder.path(), 2, folder.path(name));
}

TEST(CheckpointFolder, FilesWhoseLinesAreKnownAreNotHashedAgain) {
  const TempFolder folder;
  const std::string partial = write_partial(folder, kPath, "text");
  write_new_file(partial + "/vocab.txt", "words");
  const std::string line = done_line(partial + "/vocab.txt");
  EXPECT_TRUE(line.ends_with(" 5 vocab.txt\n")) << line;
  write_new_file(partial + "/vocab.txt", "sword");  // after it was hashed
  seal_folder(partial, folder.path(kPath), {line});
  verify_folder(folder.path(kPath), {"state.json"});
  EXPECT_THROW(verify_folder(folder.path(kPath), {"vocab.txt"}), Error);
}

/// The steps of replacing kPath, by which a killed process may have come.
enum Progress {
  kWriting,
  kSealed,
  kOldRenamed,
  kNewRenamed,
  kOldHalfRemoved,
};

/// Leaves kEarlier ("earlier") and kPath ("old", being replaced by "new").
void interrupt_replacement(const TempFolder& folder, Progress progress) {
  save(folder, kEarlier, "earlier");
  save(folder, kPath, "old");
  const TempFolder aside;
  save(aside, kPath, "new");
  const std::string path = folder.path(kPath);
  fs::copy(aside.path(kPath), path + ".partial");
  if (progress == kWriting) fs::remove(path + ".partial/DONE");
  if (progress >= kOldRenamed) fs::rename(path, path + ".replaced");
  if (progress >= kNewRenamed) fs::rename(path + ".partial", path);
  if (progress >= kOldHalfRemoved) fs::remove(path + ".replaced/state.json");
}

struct Interruption {
  Progress progress;
  const char* found;
  const char* text;
};

constexpr Interruption kInterruptions[] = {
    {kWriting, "step_00000004", "old"},
    {kSealed, "step_00000004", "old"},
    {kOldRenamed, "step_00000004.replaced", "old"},
    {kNewRenamed, "step_00000004", "new"},
    {kOldHalfRemoved, "step_00000004", "new"},
};

std::string text_of(const std::string& checkpoint) {
  verify_folder(checkpoint);
  std::string text;
  std::ifstream(checkpoint + "/state.json") >> text;
  return text;
}

std::vector<std::string> names_in(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(InterruptedReplacement, LeavesACompleteCheckpointThatIsFound) {
  for (const auto& [progress, found, text] : kInterruptions) {
    const TempFolder folder;
    interrupt_replacement(folder, progress);
    const std::string newest = newest_checkpoint(folder.path()).value_or("none");
    EXPECT_EQ(newest, folder.path(found)) << "progress " << progress;
    EXPECT_EQ(text_of(newest), text) << "progress " << progress;
  }
}

TEST(InterruptedReplacement, IsClearedUpByTheNextSave) {
  for (const auto& [progress, found, text] : kInterruptions) {
    const TempFolder folder;
    interrupt_replacement(folder, progress);
    save(folder, kLater, "later");
    EXPECT_THAT(names_in(folder), ElementsAre(kPath, kLater)) << "progress " << progress;
    EXPECT_EQ(text_of(folder.path(kPath)), text) << "progress " << progress;
  }
}

TEST(InterruptedReplacement, IsClearedUpByTheNextSaveOfTheSameStep) {
  for (const auto& [progress, found, text] : kInterruptions) {
    const TempFolder folder;
    interrupt_replacement(folder, progress);
    save(folder, kPath, "again");
    EXPECT_THAT(names_in(folder), ElementsAre(kEarlier, kPath)) << "progress " << progress;
    EXPECT_EQ(text_of(folder.path(kPath)), "again") << "progress " << progress;
  }
}

TEST(InterruptedReplacement, IsSetAsideAsAWhole) {
  set_log_sink([](LogLevel, const std::string&) {});
  for (const auto& [progress, found, text] : kInterruptions) {
    const TempFolder folder;
    interrupt_replacement(folder, progress);
    set_aside_later_checkpoints(folder.path(), 2);
    EXPECT_THAT(names_in(folder), ElementsAre(kEarlier, "step_00000004.superseded"))
        << "progress " << progress;
    EXPECT_EQ(text_of(folder.path("step_00000004.superseded")), text) << "progress " << progress;
  }
  set_log_sink({});
}

TEST(InterruptedRemoval, IsFinishedByTheNextSave) {
  const TempFolder folder;
  save(folder, kEarlier, "earlier");
  fs::rename(folder.path(kEarlier), folder.path(kEarlier) + ".partial");  // as removal begins
  EXPECT_EQ(newest_checkpoint(folder.path()), std::nullopt);
  save(folder, kPath, "new");
  EXPECT_THAT(names_in(folder), ElementsAre(kPath));
}

}  // namespace
}  // namespace bertha::testing
