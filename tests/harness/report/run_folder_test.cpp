#include "harness/report/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/text_file.h"
#include "harness/report/host_facts.h"
#include "harness/report/rank_log.h"
#include "kernels/base/log.h"
#include "tests/harness/report/fixtures.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::TempFolder;
using testing::HasSubstr;

RunFolderRequest request_in(const TempFolder& folder) {
  return {.run_dir = folder.path("run"),
          .run_name = "tiny",
          .parent_dir = folder.path("runs"),
          .start_ms = 1'750'000'000'123,
          .resolved_yaml = "train:\n  seed: 7\n",
          .command_line = {"bertha", "train", "--set", "a=\"b\""},
          .git_hash = "0123abcd",
          .world_size = 3,
          .versions = {{"bertha", "0.1.0"}, {"HDF5", "1.10.8"}},
          .environment = {{"OMP_NUM_THREADS", "2"}}};
}

std::string error_of(const RunFolderRequest& request) {
  try {
    make_run_folder(request);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::kData);
    return error.what();
  }
  return "";
}

TEST(RunFolder, HasEveryPartAndWhatTheCallerTold) {
  const TempFolder folder;
  const RunFolder made = make_run_folder(request_in(folder));
  EXPECT_EQ(made.path, folder.path("run"));
  EXPECT_EQ(made.origin, FolderOrigin::kMade);
  for (const char* part : {"mllog", "tb", "plots", "logs", "ckpt"}) {
    EXPECT_TRUE(fs::is_directory(made.path + "/" + part)) << part;
  }
  EXPECT_EQ(read_text_file(made.path + "/resolved.yaml"), "train:\n  seed: 7\n");
  const json facts = json::parse(read_text_file(made.path + "/env.json"));
  EXPECT_EQ(facts["command_line"], json({"bertha", "train", "--set", "a=\"b\""}));
  EXPECT_EQ(facts["git_hash"], "0123abcd");
  EXPECT_EQ(facts["world_size"], 3);
  EXPECT_EQ(facts["versions"], json({{"bertha", "0.1.0"}, {"HDF5", "1.10.8"}}));
  EXPECT_EQ(facts["environment"], json({{"OMP_NUM_THREADS", "2"}}));
  EXPECT_EQ(facts["host"]["name"], host_name());
  EXPECT_GT(facts["host"]["memory_bytes"].get<int64_t>(), 0);
  EXPECT_GT(facts["host"]["logical_cpus"].get<int64_t>(), 0);
  EXPECT_THAT(facts["started"].get<std::string>(), testing::StartsWith("2025-06-15T"));
}

TEST(RunFolder, AConfiguredPathMakesNoLink) {
  const TempFolder folder;
  make_run_folder(request_in(folder));
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder.path("latest"))));
  EXPECT_FALSE(fs::exists(folder.path("runs")));
}

TEST(RunFolder, WithoutAPathItIsNamedByRunAndDateAndLatestPointsToIt) {
  const TempFolder folder;
  RunFolderRequest request = request_in(folder);
  request.run_dir = "";
  const RunFolder first = make_run_folder(request);
  EXPECT_THAT(fs::path(first.path).filename().string(),
              testing::MatchesRegex("tiny-2025061[45]-[0-9]+"));
  EXPECT_EQ(fs::read_symlink(folder.path("runs/latest")), fs::path(first.path).filename());
  // A second run within the same second gets a folder of its own.
  const RunFolder second = make_run_folder(request);
  EXPECT_EQ(second.path, first.path + "-2");
  EXPECT_EQ(second.origin, FolderOrigin::kMade);
  EXPECT_EQ(fs::read_symlink(folder.path("runs/latest")), fs::path(second.path).filename());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path("runs")), fs::directory_iterator()),
            3);
}

TEST(RunFolder, SomethingElseNamedLatestIsLeftAlone) {
  const TempFolder folder;
  const test::CapturedLog log;
  RunFolderRequest request = request_in(folder);
  request.run_dir = "";
  fs::create_directories(folder.path("runs/latest/mine"));
  make_run_folder(request);
  EXPECT_TRUE(fs::is_directory(folder.path("runs/latest/mine")));
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_THAT(log.lines[0].text, HasSubstr("runs/latest"));
}

TEST(RunFolder, AFolderThatExistsIsContinuedAndItsFilesStay) {
  const TempFolder folder;
  RunFolderRequest request = request_in(folder);
  make_run_folder(request);
  write_text_file(folder.path("run/metrics.jsonl"), "{}\n");
  const std::string environment = read_text_file(folder.path("run/env.json"));
  for (const char* resume : {"resume1", "resume2"}) {
    request.resolved_yaml = resume;
    EXPECT_EQ(make_run_folder(request).origin, FolderOrigin::kExisted);
    EXPECT_EQ(read_text_file(folder.path(concat("run/resolved.", resume, ".yaml"))), resume);
    EXPECT_TRUE(fs::exists(folder.path(concat("run/env.", resume, ".json"))));
  }
  EXPECT_EQ(read_text_file(folder.path("run/resolved.yaml")), "train:\n  seed: 7\n");
  EXPECT_EQ(read_text_file(folder.path("run/env.json")), environment);
  EXPECT_EQ(read_text_file(folder.path("run/metrics.jsonl")), "{}\n");
}

TEST(RunFolder, ATrailingSlashMakesTheSameFolder) {
  const TempFolder folder;
  RunFolderRequest request = request_in(folder);
  request.run_dir += "/";
  EXPECT_EQ(make_run_folder(request).origin, FolderOrigin::kMade);
  EXPECT_EQ(make_run_folder(request).origin, FolderOrigin::kExisted);
}

TEST(RunFolder, AFileInTheWayIsNamedWithTheReason) {
  const TempFolder folder;
  write_text_file(folder.path("file"), "x");
  RunFolderRequest request = request_in(folder);
  for (const char* path : {"file", "file/run"}) {
    request.run_dir = folder.path(path);
    EXPECT_THAT(error_of(request),
                testing::AllOf(HasSubstr(folder.path(path)), HasSubstr("Not a directory"),
                               HasSubstr("log.run_dir")));
  }
  EXPECT_EQ(read_text_file(folder.path("file")), "x");
}

TEST(RunFolder, APlaceThatCannotBeWrittenIsNamedWithTheReason) {
  RunFolderRequest request;
  request.run_dir = "/proc/bertha-run";  // not even root may make a folder there
  EXPECT_THAT(error_of(request), testing::AllOf(HasSubstr("/proc/bertha-run: cannot make"),
                                                HasSubstr("No such file or directory")));
}

TEST(RunFolder, PathsOfItsPartsAreFixed) { EXPECT_EQ(checkpoint_dir("runs/x"), "runs/x/ckpt"); }

TEST(RankLog, EveryLineOfARankIsInItsFileWithItsLevel) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path("logs"));
  std::vector<std::string> console;
  set_log_sink([&](LogLevel, const std::string& text) { console.push_back(text); });
  start_rank_log(folder.path(), 7);
  log_line(LogLevel::kDebug, "cores 0 to 3");
  log_line(LogLevel::kWarning, "slow disk");
  record_line(LogLevel::kError, "said already");
  set_log_record({});
  log_line(LogLevel::kInfo, "later");
  set_log_sink({});
  EXPECT_THAT(console, testing::ElementsAre("cores 0 to 3", "slow disk", "later"));
  const std::string day = "20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[+-][0-9]{4} ";
  EXPECT_THAT(test::lines_of(folder.path("logs/rank_0007.log")),
              testing::ElementsAre(testing::MatchesRegex(day + "debug: cores 0 to 3"),
                                   testing::MatchesRegex(day + "warning: slow disk"),
                                   testing::MatchesRegex(day + "error: said already")));
}

TEST(RankLog, AFileThatCannotBeOpenedIsNamed) {
  EXPECT_THROW(start_rank_log("/proc/nowhere", 0), Error);
  EXPECT_EQ(rank_log_path("runs/x", 12345), "runs/x/logs/rank_12345.log");
}

}  // namespace
}  // namespace bertha
