#include "harness/report/run_folder.h"
#include "data/files/new_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/files/text_file.h"
#include "harness/report/files.h"
#include "harness/report/system_facts.h"
#include "harness/report/text_format.h"
#include "kernels/base/log.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/report/fixtures.h"
#include "tests/support/captured_log.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

RunPlace place_in(const TempFolder& folder) {
  return {.run_dir = folder.path("run"), .run_name = "tiny", .parent_dir = folder.path("runs")};
}

std::string record_some_start(const RunFolder& folder,
                              const std::string& yaml = "train:\n  seed: 7\n") {
  return record_start(folder, yaml, 3,
                      {.command_line = {"bertha", "train", "--set", "a=\"b\""},
                       .git_hash = "0123abcd",
                       .versions = {{"bertha", "0.1.0"}, {"HDF5", "1.10.8"}},
                       .environment = {{"OMP_NUM_THREADS", "2"}}});
}

std::string refusal(const RunPlace& place) {
  return error_of([&] { open_run_folder(place); });
}

TEST(RunFolder, HasEveryPartAndWhatTheCallerTold) {
  const TempFolder folder;
  const RunFolder made = open_run_folder(place_in(folder));
  EXPECT_EQ(made.path, folder.path("run"));
  EXPECT_EQ(made.earlier_config, "");
  make_parts(made);
  const auto today = [] { return local_time_text(now_ms()).substr(0, 10); };
  const std::string day_before = today();  // midnight may pass
  EXPECT_EQ(record_some_start(made), folder.path("run/resolved.yaml"));
  for (const char* part : {"mllog", "tb", "logs", "ckpt"}) {
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
  EXPECT_THAT(facts["started"].get<std::string>(),
              AnyOf(StartsWith(day_before), StartsWith(today())));
}

TEST(RunFolder, WithoutAPathTheNameAndTheBatchJobChooseItEveryTime) {
  const TempFolder folder;
  RunPlace place = place_in(folder);
  place.run_dir = "";
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(open_run_folder(place).path, folder.path("runs/tiny"));
  }
  place.job = "4711";
  EXPECT_EQ(open_run_folder(place).path, folder.path("runs/tiny-4711"));
}

TEST(RunFolder, IsOneProcessesAlone) {
  const TempFolder folder;
  {
    const RunFolder held = open_run_folder(place_in(folder));
    EXPECT_THROW(open_run_folder(place_in(folder)), Error);
  }
  EXPECT_NO_THROW(open_run_folder(place_in(folder)));
}

TEST(RunFolder, AFolderThatExistsIsContinuedAndItsFilesStay) {
  const TempFolder folder;
  const auto start = [&](const std::string& yaml) {
    const RunFolder run = open_run_folder(place_in(folder));
    record_some_start(run, yaml);
    return run.earlier_config;
  };
  EXPECT_EQ(start("first"), "");
  write_new_file(folder.path("run/metrics.jsonl"), "{}\n");
  const std::string environment = read_text_file(folder.path("run/env.json"));
  EXPECT_EQ(start("second"), folder.path("run/resolved.yaml"));
  EXPECT_EQ(start("third"), folder.path("run/resolved.resume1.yaml"));
  EXPECT_EQ(read_text_file(folder.path("run/resolved.resume2.yaml")), "third");
  EXPECT_TRUE(fs::exists(folder.path("run/env.resume2.json")));
  EXPECT_EQ(read_text_file(folder.path("run/resolved.yaml")), "first");
  EXPECT_EQ(read_text_file(folder.path("run/env.json")), environment);
  EXPECT_EQ(read_text_file(folder.path("run/metrics.jsonl")), "{}\n");
}

TEST(RunFolder, TheBenchmarksRecordsOfARunThatIsBegunAnewAreSetAside) {
  const TempFolder folder;
  for (int start = 0; start < 3; ++start) {
    const RunFolder run = open_run_folder(place_in(folder));
    set_aside_mlperf_logs(run);
    set_aside_mlperf_logs(run);  // nothing is left to set aside
    make_parts(run);
    write_new_file(folder.path("run/mllog/result_0.txt"), std::to_string(start));
  }
  EXPECT_EQ(read_text_file(folder.path("run/mllog/result_0.txt")), "2");
  EXPECT_EQ(read_text_file(folder.path("run/mllog.superseded1/result_0.txt")), "0");
  EXPECT_EQ(read_text_file(folder.path("run/mllog.superseded2/result_0.txt")), "1");
}

TEST(RunFolder, ATrailingSlashMakesTheSameFolder) {
  const TempFolder folder;
  RunPlace place = place_in(folder);
  record_some_start(open_run_folder(place));
  place.run_dir += "/";
  EXPECT_NE(open_run_folder(place).earlier_config, "");
}

TEST(Latest, PointsToTheFolderHoweverDeepBelowTheParent) {
  const TempFolder folder;
  for (const char* run : {"first", "quick/train", "first"}) {
    fs::create_directories(folder.path("runs/") + run);
    point_latest_to(folder.path("runs/") + run, folder.path("runs"));
    EXPECT_EQ(fs::read_symlink(folder.path("runs/latest")), fs::path(run));
  }
  // By its own name: the folder behind it, not itself.
  point_latest_to(folder.path("runs/latest"), folder.path("runs"));
  EXPECT_EQ(fs::read_symlink(folder.path("runs/latest")), fs::path("first"));
}

TEST(Latest, AFolderElsewhereLeavesItAsItIs) {
  const TempFolder folder;
  const CapturedLog log;
  fs::create_directories(folder.path("elsewhere"));
  point_latest_to(folder.path("elsewhere"), folder.path("runs"));
  EXPECT_FALSE(fs::exists(folder.path("runs")));
  EXPECT_TRUE(log.lines.empty());
}

TEST(Latest, SomethingElseOfThatNameIsLeftAlone) {
  const TempFolder folder;
  const CapturedLog log;
  fs::create_directories(folder.path("runs/latest/mine"));
  fs::create_directories(folder.path("runs/tiny"));
  point_latest_to(folder.path("runs/tiny"), folder.path("runs"));
  EXPECT_TRUE(fs::is_directory(folder.path("runs/latest/mine")));
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_THAT(log.lines[0].text, HasSubstr("runs/latest"));
}

TEST(RunFolder, AFileInTheWayIsNamedWithTheReason) {
  const TempFolder folder;
  write_new_file(folder.path("file"), "x");
  RunPlace place = place_in(folder);
  for (const char* path : {"file", "file/run"}) {
    place.run_dir = folder.path(path);
    EXPECT_THAT(refusal(place), AllOf(HasSubstr(folder.path(path)), HasSubstr("Not a directory"),
                                      HasSubstr("log.run_dir")));
  }
  EXPECT_EQ(read_text_file(folder.path("file")), "x");
}

TEST(RunFolder, APlaceThatCannotBeWrittenIsNamedWithTheReason) {
  RunPlace place;
  place.run_dir = "/proc/bertha-run";  // not even root may make a folder there
  EXPECT_THAT(refusal(place), AllOf(HasSubstr("/proc/bertha-run: cannot create"),
                                    HasSubstr("No such file or directory")));
}

TEST(RunFolder, PathsOfItsPartsAreFixed) { EXPECT_EQ(checkpoint_dir("runs/x"), "runs/x/ckpt"); }

TEST(NodeLog, EveryLineOfARankIsInTheFileOfItsNode) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path("logs"));
  const CapturedLog console;
  start_node_log(folder.path(), "node3", 7);
  log_line(LogLevel::kDebug, "cores 0 to 3");
  log_line(LogLevel::kWarning, "slow disk");
  record_line(LogLevel::kError, "said already");
  set_log_record({});
  log_line(LogLevel::kInfo, "later");
  EXPECT_THAT(console.texts(), ElementsAre("cores 0 to 3", "slow disk", "later"));
  const std::string day = "20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[+-][0-9]{4} \\[rank 7\\] ";
  EXPECT_THAT(test::lines_of(folder.path("logs/node3.log")),
              ElementsAre(MatchesRegex(day + "debug: cores 0 to 3"),
                          MatchesRegex(day + "warning: slow disk"),
                          MatchesRegex(day + "error: said already")));
}

TEST(NodeLog, AFileThatCannotBeOpenedIsNamed) {
  EXPECT_THROW(start_node_log("/proc/nowhere", "node3", 0), Error);
}

}  // namespace
}  // namespace bertha
