#include "data/format/output_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

TEST(OutputFolder, WorkOfOursIsMadeFoundAndRemoved) {
  const TempFolder folder;
  const std::string output = folder.path("a/b");
  EXPECT_FALSE(has_work_folder(output));
  EXPECT_EQ(make_work_folder(output), output + "/work");
  EXPECT_TRUE(has_work_folder(output));
  fs::create_directory(output + "/work/deep");
  write_bytes(output + "/work/deep/file", "x");
  make_work_folder(output);
  EXPECT_EQ(bytes_of(output + "/work/deep/file"), "x") << "what is there is kept";
  remove_work_folder(output);
  EXPECT_FALSE(fs::exists(output + "/work"));
  EXPECT_TRUE(fs::exists(output));
  remove_work_folder(output);
}

TEST(OutputFolder, IsOneProcessesAlone) {
  const TempFolder folder;
  const std::string output = folder.path("a/b");
  {
    const FileLock lock = lock_output_folder(output);
    EXPECT_THAT(error_of([&] { lock_output_folder(output); }, ExitCode::kEnvironment),
                AllOf(HasSubstr(output), HasSubstr(concat("process ", ::getpid())),
                      HasSubstr("is writing data to this folder")));
  }
  EXPECT_TRUE(fs::is_empty(output)) << "the lock leaves no file";
  const FileLock again = lock_output_folder(output);
  write_bytes(folder.path("file"), "");
  EXPECT_THAT(error_of([&] { lock_output_folder(folder.path("file/out")); }),
              HasSubstr("file/out: cannot create the folder"));
}

TEST(OutputFolder, AFolderWorkOfAUserIsNeitherUsedNorRemoved) {
  const TempFolder folder;
  fs::create_directory(folder.path("work"));
  write_bytes(folder.path("work/thesis"), "years");
  EXPECT_THAT(error_of([&] { make_work_folder(folder.path()); }),
              AllOf(HasSubstr("/work: "), HasSubstr("did not create this folder"),
                    HasSubstr("choose another output folder")));
  remove_work_folder(folder.path());
  EXPECT_EQ(bytes_of(folder.path("work/thesis")), "years");
}

TEST(OutputFolder, AFileInPlaceOfAFolderIsNamed) {
  const TempFolder folder;
  write_bytes(folder.path("file"), "");
  EXPECT_THAT(error_of([&] { make_work_folder(folder.path("file/out")); }),
              HasSubstr("file/out/work: cannot create the folder"));
  write_bytes(folder.path("work"), "mine");
  EXPECT_THAT(error_of([&] { make_work_folder(folder.path()); }), HasSubstr("/work: "));
  EXPECT_EQ(bytes_of(folder.path("work")), "mine");
}

TEST(OutputFolder, AnEmptyWorkFolderIsOfARunThatWasStoppedAtOnce) {
  const TempFolder folder;
  fs::create_directory(folder.path("work"));
  make_work_folder(folder.path());
  EXPECT_TRUE(has_work_folder(folder.path()));
}

TEST(OutputFolder, AnUnfinishedMarkerIsOfARunThatWasStoppedAtOnce) {
  const TempFolder folder;
  fs::create_directory(folder.path("work"));
  write_bytes(folder.path("work/made_by_bertha.txt.tmp"), "Unfin");
  make_work_folder(folder.path());
  EXPECT_TRUE(has_work_folder(folder.path()));
}

TEST(OutputFolder, ShardsAndListsOfOthersAreForeign) {
  const TempFolder folder;
  const auto complaint = [&] {
    return error_of([&] { check_nothing_foreign(folder.path(), {"part_0.hdf5"}); });
  };
  check_nothing_foreign(folder.path("none"), {});
  write_bytes(folder.path("notes.txt"), "");
  check_nothing_foreign(folder.path(), {"part_0.hdf5"});
  write_bytes(folder.path("part_0.hdf5"), "");
  EXPECT_THAT(complaint(), HasSubstr("part_0.hdf5: was not written by this command"))
      << "no earlier run has left its work or a manifest";
  make_work_folder(folder.path());
  check_nothing_foreign(folder.path(), {"part_0.hdf5"});
  write_bytes(folder.path("part_1.hdf5"), "");
  EXPECT_THAT(complaint(), HasSubstr("part_1.hdf5: was not written by this command"));
  fs::remove(folder.path("part_1.hdf5"));
  write_bytes(folder.path("checksums.chk"), "");
  check_nothing_foreign(folder.path(), {"part_0.hdf5"});
  remove_work_folder(folder.path());
  fs::remove(folder.path("part_0.hdf5"));
  EXPECT_THAT(complaint(), HasSubstr("checksums.chk: was not written by this command"));
}

TEST(OutputFolder, OtherFactsAreNamedAsTheirOptionsAreTyped) {
  const auto complaint = [](const DataFacts& found, const DataFacts& wanted) {
    return error_of([&] { check_same_facts("d/manifest.json", found, wanted); });
  };
  check_same_facts("d/manifest.json", {{"seed", "1"}, {"more", "x"}}, {{"seed", "1"}});
  EXPECT_THAT(
      complaint({{"max_seq_tokens", "512"}}, {{"max_seq_tokens", "64"}}),
      HasSubstr("d/manifest.json: the folder contains data prepared with --max-seq-tokens = 512, "
                "but it is now 64"));
  EXPECT_THAT(complaint({}, {{"num_shards", "4"}}),
              HasSubstr("--shards = (nothing), but it is now 4"));
  EXPECT_THAT(complaint({{"SHA-256 of text file 1", "a"}}, {{"SHA-256 of text file 1", "b"}}),
              HasSubstr("prepared with SHA-256 of text file 1 = a"));
  EXPECT_THAT(
      complaint({{"a", "1"}, {"b", "1"}, {"c", "1"}, {"d", "1"}},
                {{"a", "2"}, {"b", "1"}, {"c", "2"}, {"d", "2"}, {"e", "2"}}),
      AllOf(HasSubstr("a = 1, but it is now 2, and with c = 1, but it is now 2, and with d = 1"),
            Not(HasSubstr("e = "))));
}

}  // namespace
}  // namespace bertha
