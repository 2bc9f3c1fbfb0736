#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "data/format/output_folder.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/prepare/prepare_folder.h"
#include "tests/support/file_size_limit.h"

namespace bertha {
namespace {

/// What a run without any failure leaves behind. Its time differs: the files must not tell it.
std::map<std::string, std::string> files_of_uninterrupted_run(const PrepareOptions& options) {
  const PrepareFolder folder;
  PrepareOptions elsewhere = options;
  elsewhere.output_dir = folder.output();
  prepare_data(elsewhere, {});
  return folder.files();
}

/// Of finished parts.
int64_t num_records(const std::string& output_dir) {
  std::error_code missing;
  return std::ranges::count_if(
      std::filesystem::directory_iterator(output_dir + "/work", missing),
      [](const auto& entry) { return entry.path().extension() == ".json"; });
}

/// Runs the preparation in a process that is killed once this many parts are done.
void prepare_and_die(const PrepareOptions& options, int64_t num_parts) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prepare_data(options, [&](const std::string&, const std::string&, int64_t, int64_t) {
      if (num_records(options.output_dir) == num_parts) raise(SIGKILL);
    });
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the preparation ended before it was killed";
}

TEST(PrepareFailureTest, AKilledRunLosesOnlyThePartInWork) {
  const PrepareFolder folder;
  for (const int64_t num_shards : {0, 3}) {
    std::filesystem::remove_all(folder.output());
    PrepareOptions options = folder.options();
    options.num_shards = num_shards;
    prepare_and_die(options, 3);
    EXPECT_FALSE(folder.files().contains("manifest.json"));
    const PrepareSummary summary = prepare_data(options, {});
    EXPECT_EQ(summary.parts_reused, 3);
    EXPECT_EQ(folder.files(), files_of_uninterrupted_run(options));
  }
}

TEST(PrepareFailureTest, AFinishedRunIsNotRepeated) {
  const PrepareFolder folder;
  EXPECT_FALSE(prepare_data(folder.options(), {}).already_done);
  const auto before = folder.files();
  const auto written = std::filesystem::last_write_time(folder.output("manifest.json"));
  const PrepareSummary again = prepare_data(folder.options(), {});
  EXPECT_TRUE(again.already_done);
  EXPECT_EQ(again.manifest.num_samples(), folder.generated().size());
  EXPECT_EQ(std::filesystem::last_write_time(folder.output("manifest.json")), written);
  EXPECT_EQ(folder.files(), before);

  PrepareOptions anew = folder.options();
  anew.resume = false;
  const PrepareSummary repeated = prepare_data(anew, {});
  EXPECT_FALSE(repeated.already_done);
  EXPECT_EQ(repeated.parts_reused, 0);
  EXPECT_EQ(folder.files(), before);
}

TEST(PrepareFailureTest, AFinishedManifestWithoutACountIsRefused) {
  const PrepareFolder folder;
  const Manifest finished = prepare_data(folder.options(), {}).manifest;
  const std::string path = folder.output("manifest.json");
  Manifest damaged = finished;
  damaged.counts.erase("documents");
  write_manifest(path, damaged);
  EXPECT_EQ(message_of_preparing(folder.options()),
            path +
                ": counts.documents is missing, want the number of documents; "
                "prepare the data again with --no-resume");
  damaged.counts.clear();
  write_manifest(path, damaged);
  EXPECT_THAT(message_of_preparing(folder.options()), HasSubstr("is missing, want the number of"));
  PrepareOptions anew = folder.options();
  anew.resume = false;
  EXPECT_EQ(prepare_data(anew, {}).manifest.counts, finished.counts);
}

TEST(PrepareFailureTest, ADamagedPartIsMadeAgainAndOnlyThat) {
  const PrepareFolder folder;
  prepare_data(folder.options(), {});
  const auto before = folder.files();
  const std::string shard = folder.output("part_00002_of_00005.hdf5");
  std::string damaged = bytes_of(shard);
  damaged[damaged.size() / 2] ^= 1;
  write_bytes(shard, damaged);
  const PrepareSummary summary = prepare_data(folder.options(), {});
  EXPECT_FALSE(summary.already_done);
  EXPECT_EQ(summary.parts_reused, 4);
  EXPECT_EQ(folder.files(), before);

  write_bytes(folder.output("work/part_00001_of_00005.json"), "{\"key\":");
  std::filesystem::remove(folder.output("manifest.json"));
  EXPECT_EQ(prepare_data(folder.options(), {}).parts_reused, 4) << "a torn record";
  EXPECT_EQ(folder.files(), before);
}

TEST(PrepareFailureTest, OtherOptionsOrTextDoNotTouchFinishedResults) {
  const PrepareFolder folder;
  prepare_data(folder.options(), {});
  const auto before = folder.files();

  PrepareOptions other_seed = folder.options();
  other_seed.generator.seed = 7;
  EXPECT_THAT(
      message_of_preparing(other_seed),
      AllOf(HasSubstr("manifest.json"), HasSubstr("--seed = 12345"), HasSubstr("it is now 7")));
  PrepareOptions other_shards = folder.options();
  other_shards.num_shards = 2;
  EXPECT_THAT(message_of_preparing(other_shards), HasSubstr("--shards = 0"));
  write_bytes(folder.text(1), "Another text.\n");
  EXPECT_THAT(message_of_preparing(folder.options()), HasSubstr("SHA-256 of text file 2"));
  EXPECT_EQ(folder.files(), before);
}

TEST(PrepareFailureTest, NothingOfTheUserIsWrittenOverOrRemoved) {
  const PrepareFolder folder;
  for (const int64_t num_shards : {0, 3}) {
    PrepareOptions options = folder.options();
    options.num_shards = num_shards;
    std::filesystem::remove_all(folder.output());
    std::filesystem::create_directories(folder.output("work"));
    write_bytes(folder.output("work/thesis"), "years");
    EXPECT_THAT(message_of_preparing(options),
                HasSubstr("out/work: bertha uses this name for unfinished work"));
    EXPECT_EQ(bytes_of(folder.output("work/thesis")), "years");
    EXPECT_EQ(folder.files().size(), 1u);
  }
  std::filesystem::remove_all(folder.output("work"));
  write_bytes(folder.output("part_00000_of_00005.hdf5"), "from elsewhere");
  EXPECT_THAT(message_of_preparing(folder.options()),
              HasSubstr("part_00000_of_00005.hdf5: was not written by this command"));
  EXPECT_EQ(bytes_of(folder.output("part_00000_of_00005.hdf5")), "from elsewhere");
}

TEST(PrepareFailureTest, WorkThatARunStoppedAtItsEndLeftIsRemoved) {
  const PrepareFolder folder;
  PrepareOptions options = folder.options();
  options.num_shards = 3;
  prepare_data(options, {});
  EXPECT_FALSE(std::filesystem::exists(folder.output("work"))) << "no second copy of all samples";
  const auto before = folder.files();
  make_work_folder(folder.output());
  write_bytes(folder.output("work/part_00000_of_00005.hdf5"), "");
  EXPECT_TRUE(prepare_data(options, {}).already_done);
  EXPECT_EQ(folder.files(), before);
}

TEST(PrepareFailureTest, AFullDiskLeavesNothingHalfWrittenAndFinishedPartsIntact) {
  const PrepareFolder folder;
  PrepareOptions options = folder.options();
  options.num_shards = 2;
  const auto message_with_little_room = [&](rlim_t most_bytes) {
    const FileSizeLimit limit(most_bytes);
    return message_of_preparing(options);
  };
  EXPECT_THAT(message_with_little_room(60'000), HasSubstr("work/part_00000_of_00005.hdf5"));
  EXPECT_EQ(folder.files().size(), 1u) << "the marker of work/";
  // Room for each part, not for half of all samples.
  EXPECT_THAT(message_with_little_room(140'000), HasSubstr("out/part_00000_of_00002.hdf5"));
  EXPECT_EQ(folder.files().size(), 1 + 2 * 5u) << "marker, parts with their records";

  EXPECT_EQ(prepare_data(options, {}).parts_reused, 5);
  EXPECT_EQ(folder.files(), files_of_uninterrupted_run(options));
}

TEST(PrepareFailureTest, BadTextEndsTheRunNamingFileAndLine) {
  const PrepareFolder folder;
  write_bytes(folder.text(3), "Fine.\nCaf\xe9.\n");
  PrepareOptions options = folder.options();
  options.workers = 2;
  EXPECT_THAT(message_of_preparing(options),
              AllOf(HasSubstr("part-00003, line 2"), HasSubstr("UTF-8")));
  EXPECT_FALSE(folder.files().contains("manifest.json"));
  write_bytes(folder.text(3), "\n\n\n");
  EXPECT_THAT(message_of_preparing(options),
              AllOf(HasSubstr("part-00003"), HasSubstr("no document")));
  write_bytes(folder.text(3), "Fine.\n");
  EXPECT_EQ(message_of_preparing(options), "no error");
}

TEST(PrepareFailureTest, MissingInputsAreNamed) {
  const PrepareFolder folder;
  PrepareOptions options = folder.options();
  options.inputs = {folder.output("missing.txt")};
  EXPECT_THAT(message_of_preparing(options), HasSubstr("missing.txt"));
  options = folder.options();
  options.vocab_file = folder.output("no-vocab.txt");
  EXPECT_THAT(message_of_preparing(options), HasSubstr("no-vocab.txt"));
  options = folder.options();
  options.output_dir = folder.text(0) + "/out";
  EXPECT_THAT(message_of_preparing(options), HasSubstr("part-00000/out"));
  options = folder.options();
  options.num_shards = 99'999;
  EXPECT_THAT(message_of_preparing(options), HasSubstr("99999"));
}

TEST(PrepareFailureTest, AnEmptyTextFileIsNamed) {
  const TempFolder folder;
  write_bytes(folder.path("empty.txt"), "");
  const PrepareFolder other;
  PrepareOptions options = other.options();
  options.inputs = {folder.path()};
  EXPECT_THAT(message_of_preparing(options), AllOf(HasSubstr("empty.txt"), HasSubstr("empty")));
  EXPECT_TRUE(other.files().empty());
}

}  // namespace
}  // namespace bertha
