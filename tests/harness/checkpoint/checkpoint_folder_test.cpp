#include "harness/checkpoint/checkpoint_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "data/files/new_file.h"
#include "harness/checkpoint/checkpoint.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/captured_log.h"
#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

namespace fs = std::filesystem;

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

void save_text(const TempFolder& folder, const std::string& name, const std::string& text) {
  seal_folder(write_partial(folder, name, text), folder.path(name));
  remove_old_checkpoints(folder.path(), {.saved = folder.path(name), .newest = 2});
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
  save_text(folder, kEarlier, "earlier");
  save_text(folder, kPath, "old");
  const TempFolder aside;
  save_text(aside, kPath, "new");
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
    save_text(folder, kLater, "later");
    EXPECT_THAT(names_in(folder.path()), ElementsAre(kPath, kLater)) << "progress " << progress;
    EXPECT_EQ(text_of(folder.path(kPath)), text) << "progress " << progress;
  }
}

TEST(InterruptedReplacement, IsClearedUpByTheNextSaveOfTheSameStep) {
  for (const auto& [progress, found, text] : kInterruptions) {
    const TempFolder folder;
    interrupt_replacement(folder, progress);
    save_text(folder, kPath, "again");
    EXPECT_THAT(names_in(folder.path()), ElementsAre(kEarlier, kPath)) << "progress " << progress;
    EXPECT_EQ(text_of(folder.path(kPath)), "again") << "progress " << progress;
  }
}

TEST(InterruptedReplacement, IsSetAsideAsAWhole) {
  const CapturedLog silent;
  for (const auto& [progress, found, text] : kInterruptions) {
    const TempFolder folder;
    interrupt_replacement(folder, progress);
    set_aside_later_checkpoints(folder.path(), 2);
    EXPECT_THAT(names_in(folder.path()), ElementsAre(kEarlier, "step_00000004.superseded1"))
        << "progress " << progress;
    EXPECT_EQ(text_of(folder.path("step_00000004.superseded1")), text) << "progress " << progress;
  }
}

TEST(InterruptedRemoval, IsFinishedByTheNextSave) {
  const TempFolder folder;
  save_text(folder, kEarlier, "earlier");
  fs::rename(folder.path(kEarlier), folder.path(kEarlier) + ".partial");  // as removal begins
  EXPECT_EQ(newest_checkpoint(folder.path()), std::nullopt);
  save_text(folder, kPath, "new");
  EXPECT_THAT(names_in(folder.path()), ElementsAre(kPath));
}

void save_step(const TempFolder& folder, int64_t step) {
  const std::string name = concat("step_", step);
  seal_folder(write_partial(folder, name, "text"), folder.path(name));
}

std::vector<EvalPoint> evaluations(const std::vector<std::pair<int64_t, double>>& accuracies) {
  std::vector<EvalPoint> evals;
  for (const auto& [step, accuracy] : accuracies) {
    evals.push_back({.step = step, .mlm_accuracy = accuracy});
  }
  return evals;
}

TEST(RemoveOldCheckpoints, LeavesTheBestAndMultiples) {
  const TempFolder folder;
  for (int64_t step = 1; step <= 9; ++step) save_step(folder, step);
  remove_old_checkpoints(folder.path(), {.saved = folder.path("step_9"),
                                         .newest = 2,
                                         .every_steps = 4,
                                         .best = folder.path("step_3")});
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step_3", "step_4", "step_8", "step_9"));
  remove_old_checkpoints(folder.path(), {.saved = folder.path("step_9")});
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step_9"));
}

TEST(BestCheckpoint, IsThatOfTheBestEvaluationThatHasOne) {
  const TempFolder folder;
  EXPECT_EQ(best_checkpoint(folder.path(), evaluations({{2, 0.5}})), "");
  for (const int64_t step : {2, 4, 6}) save_step(folder, step);
  write_partial(folder, "step_8", "text");
  EXPECT_EQ(best_checkpoint(folder.path(), {}), "");
  // Step 5 has no checkpoint, that of step 8 is not complete; of equals it is the first.
  const auto evals = evaluations({{2, 0.1}, {4, 0.3}, {5, 0.8}, {6, 0.3}, {8, 0.9}});
  EXPECT_EQ(best_checkpoint(folder.path(), evals), folder.path("step_4"));
}

TEST(BestCheckpoint, OnlyABetterEvaluationIsTheBest) {
  EXPECT_FALSE(is_best_evaluation({}));
  EXPECT_TRUE(is_best_evaluation(evaluations({{1, 0.0}})));
  EXPECT_TRUE(is_best_evaluation(evaluations({{1, 0.2}, {2, 0.3}})));
  EXPECT_FALSE(is_best_evaluation(evaluations({{1, 0.2}, {2, 0.2}})));
}

TEST(BestCheckpoint, TheLinkFollows) {
  const TempFolder folder;
  for (const int64_t step : {2, 4}) {
    save_step(folder, step);
    point_best_to(folder.path(), folder.path(concat("step_", step)));
    EXPECT_EQ(fs::read_symlink(folder.path("best")), concat("step_", step));
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("best", "step_2", "step_4"));
  EXPECT_EQ(newest_checkpoint(folder.path()), folder.path("step_4"));
  set_aside_later_checkpoints(folder.path(), 2);
  EXPECT_FALSE(fs::is_symlink(folder.path("best")));
}

}  // namespace
}  // namespace bertha::testing
