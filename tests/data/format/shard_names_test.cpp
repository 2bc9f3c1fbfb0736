#include "data/format/shard_names.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

std::vector<std::string> missing(const std::vector<std::string>& names) {
  return missing_of_numbered(names);
}

TEST(ShardNames, SizesAreThePublishedOnes) {
  EXPECT_THAT(shard_sizes(10, 4), ElementsAre(2, 2, 3, 3));
  EXPECT_THAT(shard_sizes(8, 4), ElementsAre(2, 2, 2, 2));
  const auto published = shard_sizes(156'726'829, 4320);
  EXPECT_EQ(published.front(), 36'279);
  EXPECT_EQ(published[2770], 36'279);
  EXPECT_EQ(published[2771], 36'280);
  EXPECT_EQ(std::accumulate(published.begin(), published.end(), int64_t{0}), 156'726'829);
  EXPECT_THAT(shard_sizes(1, 1), ElementsAre(1));
  EXPECT_THAT(error_of([] { shard_sizes(3, 4); }),
              HasSubstr("found only 3 samples, want at least one for each of 4 shards"));
}

TEST(ShardNames, NumbersAreFoundInNames) {
  const auto parts = [](const std::string& name) {
    const auto found = numbered_name(name);
    if (!found) return std::string("none");
    return concat(found->before, '|', found->number, '|', found->of, '|', found->count, '|',
                  found->after);
  };
  EXPECT_EQ(parts("part_00007_of_04320.hdf5"), "part_|00007|_of_|04320|.hdf5");
  EXPECT_EQ(parts("part-00007-of-00500"), "part-|00007|-of-|00500|");
  EXPECT_EQ(parts("7_of_9"), "|7|_of_|9|");
  EXPECT_EQ(parts("part_00007"), "part_|00007|||");
  for (const char* name : {"", "part", "part_", "part_7.hdf5", "part_x", "part__of_3", "part_1_of_",
                           "part_1_of_3x", "part_1234567", "1_of_1234567", "_of_", "-of-"}) {
    EXPECT_EQ(parts(name), "none") << name;
  }
}

TEST(ShardNames, MissingOnesAreToldFromTheNamesOfTheOthers) {
  EXPECT_THAT(missing({"part_00000_of_00003.hdf5", "part_00002_of_00003.hdf5"}),
              ElementsAre("part_00001_of_00003.hdf5"));
  EXPECT_THAT(missing({"part-00001-of-00003"}),
              ElementsAre("part-00000-of-00003", "part-00002-of-00003"));
  EXPECT_THAT(missing({"part_00003", "part_00000", "part_00001"}), ElementsAre("part_00002"));
  std::vector<std::string> unpadded, counted;
  for (int number = 0; number < 12; ++number) {
    unpadded.push_back(concat("part_", number));
    counted.push_back(concat("part-", number, "-of-12"));
  }
  EXPECT_THAT(missing(unpadded), IsEmpty());
  EXPECT_THAT(missing(counted), IsEmpty());
  unpadded.erase(unpadded.begin() + 3);
  counted.erase(counted.begin() + 10);
  EXPECT_THAT(missing(unpadded), ElementsAre("part_3"));
  EXPECT_THAT(missing(counted), ElementsAre("part-10-of-12"));
  EXPECT_THAT(
      missing({"part_00000_of_00001.hdf5", "part_eval_10k.hdf5", "my-part.hdf", "part_7.hdf5"}),
      IsEmpty());
  EXPECT_THAT(missing({}), IsEmpty());
}

TEST(ShardNames, GapsInPlainNumbersAreToldUnlessTheNumbersAreNoSeries) {
  const auto gaps = [](const std::vector<std::string>& names) { return gaps_in_series(names); };
  EXPECT_THAT(gaps({"wiki_01.txt", "wiki_02.txt", "wiki_04.txt", "wiki_05.txt"}),
              ElementsAre("wiki_03.txt"));
  EXPECT_THAT(gaps({"9.txt", "11.txt", "8.txt", "7.txt"}), ElementsAre("10.txt"));
  EXPECT_THAT(gaps({"book1.txt", "book2.txt", "tale7.txt"}), IsEmpty());
  EXPECT_THAT(gaps({"1851.txt", "1862.txt", "1913.txt"}), IsEmpty()) << "years";
  EXPECT_THAT(gaps({"part-00001-of-00500", "part-00003-of-00500"}), IsEmpty())
      << "tells how many there are itself";
  EXPECT_THAT(gaps({"a.txt", "99999999999999999999.txt", ""}), IsEmpty());
}

TEST(ShardNames, ManyNamesAreCutShort) {
  const std::vector<std::string> many{"a", "b", "c"};
  EXPECT_EQ(first_names(many), "a, b, c");
  EXPECT_EQ(first_names(many, 2), "a, b and 1 more");
}

TEST(ListShards, TakesPartsOfEveryPublishedNameSortedByName) {
  const TempFolder folder;
  for (const char* name :
       {"part_2.hdf5", "part_1.hdf", "other.hdf5", "part_0.txt", "my-part.hdf5", "part_00003",
        "part_00075_of_04320", "part-00000-of-00500", "part_1.hdf5.tmp", "part_"}) {
    write_bytes(folder.path(name), "x");
  }
  EXPECT_EQ(list_shards(folder.path()),
            (std::vector<std::string>{folder.path("my-part.hdf5"), folder.path("part_00003"),
                                      folder.path("part_00075_of_04320"), folder.path("part_1.hdf"),
                                      folder.path("part_2.hdf5")}));
  EXPECT_EQ(list_shards(folder.path("other.hdf5")),
            std::vector<std::string>{folder.path("other.hdf5")});
}

TEST(ListShards, WithoutPartsTrainingFilesOrElseTestFilesAreShards) {
  const TempFolder folder;
  for (const char* name : {"wiki_test_0.hdf5", "wiki_test_1.hdf5", "vocab_test.txt", "x.hdf5"}) {
    write_bytes(folder.path(name), "x");
  }
  EXPECT_EQ(
      list_shards(folder.path()),
      (std::vector<std::string>{folder.path("wiki_test_0.hdf5"), folder.path("wiki_test_1.hdf5")}));
  write_bytes(folder.path("wiki_training_0.hdf5"), "x");
  EXPECT_EQ(list_shards(folder.path()),
            std::vector<std::string>{folder.path("wiki_training_0.hdf5")});
  write_bytes(folder.path("part_0.hdf5"), "x");
  EXPECT_EQ(list_shards(folder.path()), std::vector<std::string>{folder.path("part_0.hdf5")});
}

TEST(ListShards, MissingAndEmptyFoldersAreDataErrors) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { list_shards(folder.path()); }), HasSubstr("no shard"));
  EXPECT_THAT(error_of([&] { list_shards(folder.path("gone")); }), HasSubstr("gone"));
  for (const char* name : {"wiki_1.hdf5", "wiki_0.h5"}) write_bytes(folder.path(name), "");
  EXPECT_THAT(error_of([&] { list_shards(folder.path()); }),
              HasSubstr("but wiki_0.h5; put \"part_\" before such names"));
}

}  // namespace
}  // namespace bertha
