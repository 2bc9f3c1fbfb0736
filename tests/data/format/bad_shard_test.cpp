#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "data/files/hashing.h"
#include "data/format/shard_reader.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"
#include "tests/data/format/raw_shard.h"
#include "tests/data/same_samples.h"
#include "tests/support/exit_within.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/source_dir.h"

namespace bertha {
namespace {

constexpr ShardLayout kVariable = ShardLayout::kVariableLength;
constexpr ShardLayout kFixed = ShardLayout::kFixedLength;
constexpr ShardLayout kPacked = ShardLayout::kPacked;

/// What read_shard says of `path`; the path itself must be in it.
std::string complaint(const std::string& path, const SampleLimits& limits = {}) {
  const std::string text = error_of([&] { read_shard(path, 0, limits); });
  EXPECT_THAT(text, HasSubstr(path));
  return text;
}

class EachBadLayout : public testing::TestWithParam<ShardLayout> {
 protected:
  /// The complaint about a shard of 33 rows after `change` has been at its datasets.
  template <class Change>
  std::string after(const Change& change) {
    auto shard = raw_shard(example_samples(33, 4), GetParam());
    change(shard);
    write_raw_shard(path_, shard);
    return complaint(path_);
  }

  TempFolder folder_;
  std::string path_ = folder_.path("part_0.hdf5");
};
INSTANTIATE_TEST_SUITE_P(BadShard, EachBadLayout, testing::Values(kVariable, kFixed, kPacked));

TEST_P(EachBadLayout, UnchangedRowsAreAccepted) {
  EXPECT_EQ(error_of([&] {
              write_raw_shard(path_, raw_shard(example_samples(33, 4), GetParam()));
              read_shard(path_, 0, {});
            }),
            "no error");
}

TEST_P(EachBadLayout, AMissingDatasetIsNamed) {
  const size_t count = raw_shard({}, GetParam()).size();
  for (size_t missing = 0; missing < count; ++missing) {
    std::string name;
    const std::string text = after([&](std::vector<RawDataset>& shard) {
      name = shard[missing].name;
      shard.erase(shard.begin() + static_cast<int64_t>(missing));
    });
    if (name == dataset_names::kInputMask) {
      // Without a mask it is a variable-length shard with the wrong types.
      EXPECT_THAT(text, HasSubstr("input_ids contains int16, want variable-length int16"));
    } else {
      EXPECT_THAT(text, HasSubstr("no dataset " + name));
    }
  }
}

TEST_P(EachBadLayout, AWrongElementTypeIsNamedWithTheWantedOne) {
  EXPECT_THAT(
      after([](auto& shard) { dataset_of(shard, "masked_lm_ids").element = Hdf5Element::kI8; }),
      AllOf(HasSubstr("dataset masked_lm_ids contains "), HasSubstr("int8, want "),
            HasSubstr("int16")));
  EXPECT_THAT(after([](auto& shard) {
                dataset_of(shard, "next_sentence_labels").element = Hdf5Element::kI16;
              }),
              ContainsRegex("dataset next_sentence_labels contains (variable-length )?int16, want "
                            "(variable-length )?int8"));
}

void widen(std::vector<RawDataset>& shard) {
  for (RawDataset& dataset : shard) {
    if (dataset.element == Hdf5Element::kI16) dataset.element = Hdf5Element::kI32;
  }
}

TEST_P(EachBadLayout, WhereInt16IsWantedInt32IsReadAndLargeValuesDoNotWrapAround) {
  const SampleSet samples = example_samples(33, 4);
  auto shard = raw_shard(samples, GetParam());
  widen(shard);
  write_raw_shard(path_, shard);
  expect_same_contents(read_shard(path_, 0, {}), samples);
  const auto with_value = [&](const char* dataset, int value) {
    return after([&](auto& raw) {
      widen(raw);
      dataset_of(raw, dataset).values[0][0] = value;
    });
  };
  EXPECT_THAT(with_value("input_ids", 65536 + 101), HasSubstr("element 0 is id 65637"));
  EXPECT_THAT(with_value("masked_lm_positions", 65536 + 1),
              HasSubstr("dataset masked_lm_positions, row 0: element 0 is 32767"));
}

TEST_P(EachBadLayout, AWrongRankIsNamed) {
  EXPECT_THAT(after([](auto& shard) { dataset_of(shard, "next_sentence_labels").columns = 1; }),
              HasSubstr("dataset next_sentence_labels has rank 2, want 1"));
}

TEST_P(EachBadLayout, DatasetsOfDifferentRowCountsAreNamed) {
  EXPECT_THAT(after([](auto& shard) { dataset_of(shard, "segment_ids").values.pop_back(); }),
              HasSubstr("dataset segment_ids has 32 rows, but input_ids has 33"));
  EXPECT_THAT(after([](auto& shard) { dataset_of(shard, "next_sentence_labels").values.clear(); }),
              HasSubstr("dataset next_sentence_labels has 0 rows, but input_ids has 33"));
}

TEST_P(EachBadLayout, AWrongValueIsNamedWithDatasetRowAndLimits) {
  const struct {
    const char* dataset;
    size_t row, element;
    int value;
    const char* text;
  } cases[] = {
      {"input_ids", 7, 2, 30522, "row 7: element 2 is id 30522, want 0 to 30521"},
      {"input_ids", 32, 0, -1, "row 32: element 0 is id -1, want 0 to 30521"},
      {"segment_ids", 3, 0, 1, "row 3: element"},
      {"segment_ids", 3, 4, 2, "row 3: element 4 is 2 after"},
      {"segment_ids", 3, 0, -1, "row 3: element 0 is -1 after 0, want zeros, then ones"},
      {"masked_lm_ids", 9, 0, 32000, "row 9: element 0 is id 32000, want 0 to 30521"},
      {"next_sentence_labels", 12, 0, 2, "row 12: label 2, want 0 or 1"},
      {"next_sentence_labels", 12, 0, -1, "row 12: label -1, want 0 or 1"},
      // Row 14 is one of the shortest: 5 tokens.
      {"masked_lm_positions", 14, 0, 5,
       "row 14: element 0 is 5 after 0, want ascending positions from 1 to 4"},
      {"masked_lm_positions", 14, 0, -3, "row 14: element 0 is -3 after 0"},
  };
  for (const auto& one : cases) {
    EXPECT_THAT(after([&](auto& shard) {
                  dataset_of(shard, one.dataset).values[one.row][one.element] = one.value;
                }),
                AllOf(HasSubstr(concat("dataset ", one.dataset)), HasSubstr(one.text)));
  }
}

TEST_P(EachBadLayout, UnsortedOrRepeatedMaskedPositionsAreNamed) {
  // Row 1 is one of the longest and has several positions.
  EXPECT_THAT(after([](auto& shard) {
                auto& row = dataset_of(shard, "masked_lm_positions").values[1];
                std::swap(row[0], row[1]);
              }),
              HasSubstr("row 1: element 1 is "));
  EXPECT_THAT(after([](auto& shard) {
                auto& row = dataset_of(shard, "masked_lm_positions").values[1];
                row[1] = row[0];
              }),
              HasSubstr("want ascending positions from 1 to 511"));
}

TEST_P(EachBadLayout, ASampleWithoutTokensIsNamed) {
  EXPECT_THAT(after([](auto& shard) {
                for (const char* name :
                     {"input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids"}) {
                  auto& dataset = dataset_of(shard, name);
                  dataset.values[5].assign(static_cast<size_t>(dataset.columns), 0);
                }
                if (GetParam() == kFixed) dataset_of(shard, "input_mask").values[5].assign(512, 0);
              }),
              HasSubstr("dataset input_ids, row 5: 0 tokens, want 1 to 512"));
}

TEST_P(EachBadLayout, RowsBeyondTheLimitsOfTheRunAreNamed) {
  write_shard(path_, GetParam(), example_samples(33, 4));
  EXPECT_THAT(complaint(path_, {.max_seq_tokens = 128}),
              HasSubstr("row 1: 512 tokens, want 1 to 128"));
  EXPECT_THAT(complaint(path_, {.max_masked_per_seq = 1}),
              HasSubstr("masked positions, want at most 1"));
  EXPECT_THAT(complaint(path_, {.vocab_size = 200}), HasSubstr("want 0 to 199"));
}

TEST_P(EachBadLayout, TheWriterRefusesWhatTheReaderWould) {
  SampleSet samples = example_samples(8, 4);
  samples.token_ids[1] = 30522;
  EXPECT_THAT(
      error_of([&] { write_shard(path_, GetParam(), samples); }),
      AllOf(HasSubstr(path_), HasSubstr("row 0, dataset input_ids: element 1 is id 30522")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_P(EachBadLayout, MissingEmptyAndForeignFilesAreNamed) {
  EXPECT_THAT(complaint(path_), HasSubstr("cannot open: No such file"));
  EXPECT_THAT(complaint(folder_.path()), HasSubstr("not a regular file"));
  write_bytes(path_, "");
  EXPECT_THAT(complaint(path_), HasSubstr("empty file (0 bytes)"));
  write_bytes(path_, std::string(5000, 'x'));
  EXPECT_THAT(complaint(path_), HasSubstr("not a readable HDF5 file"));
}

TEST_P(EachBadLayout, AFileCutAnywhereIsADataError) {
  write_shard(path_, GetParam(), example_samples(33, 4));
  const std::string whole = bytes_of(path_);
  const auto size = std::ssize(whole);
  for (const int64_t length : {int64_t{1}, int64_t{8}, int64_t{95}, int64_t{96}, int64_t{800},
                               int64_t{2048}, size / 3, size / 2, size - 4096, size - 1}) {
    write_bytes(path_, whole.substr(0, static_cast<size_t>(length)));
    EXPECT_THAT(complaint(path_), HasSubstr("not a readable HDF5 file")) << length;
  }
}

TEST(BadShard, ListsOfDifferentLengthsInOneRowAreNamed) {
  const TempFolder folder;
  const std::string path = folder.path("part_0.hdf5");
  auto shard = raw_shard(example_samples(9, 4), kVariable);
  dataset_of(shard, "segment_ids").values[7].push_back(1);
  write_raw_shard(path, shard);
  EXPECT_THAT(complaint(path),
              HasSubstr("dataset segment_ids, row 7: 6 elements, but input_ids has 5"));
  shard = raw_shard(example_samples(9, 4), kVariable);
  dataset_of(shard, "masked_lm_ids").values[8].clear();
  write_raw_shard(path, shard);
  EXPECT_THAT(complaint(path),
              HasSubstr("dataset masked_lm_ids, row 8: 0 elements, but masked_lm_positions"));
}

TEST(BadShard, APackWhoseLengthsDoNotAddUpIsNamed) {
  const TempFolder folder;
  const std::string path = folder.path("part_00000_of_00001");
  const SampleSet samples = example_samples(9, 4);
  const auto after = [&](const char* dataset, const auto& change) {
    auto shard = raw_shard(samples, kPacked);
    change(dataset_of(shard, dataset).values[7]);  // a pack of one sample of 5 tokens
    write_raw_shard(path, shard);
    return complaint(path);
  };
  EXPECT_THAT(
      after("packed_input_len", [](auto& row) { row[0] = 4; }),
      HasSubstr("dataset packed_input_len, row 7: adds up to 4 tokens, but input_ids has 5"));
  EXPECT_THAT(after("packed_input_len",
                    [](auto& row) {
                      row = {5, 0};
                    }),
              HasSubstr("dataset packed_input_len, row 7: element 1 is 0, want 1 or more"));
  EXPECT_THAT(after("packed_input_len",
                    [](auto& row) {
                      row = {3, 2};
                    }),
              HasSubstr("dataset packed_masked_lm_len, row 7: 1 elements, but packed_input_len has "
                        "2; want as many"));
  EXPECT_THAT(after("packed_masked_lm_len", [](auto& row) { row[0] += 1; }),
              HasSubstr("dataset packed_masked_lm_len, row 7: adds up to "));
  EXPECT_THAT(after("packed_masked_lm_len", [](auto& row) { row[0] = -1; }),
              HasSubstr("dataset packed_masked_lm_len, row 7: element 0 is -1, want 0 or more"));
  EXPECT_THAT(after("next_sentence_labels",
                    [](auto& row) {
                      row = {0, 1};
                    }),
              HasSubstr("dataset next_sentence_labels, row 7: 2 elements, but packed_input_len has "
                        "1; want as many"));
}

/// Two sequences in a pack, of 5 and 6 tokens.
std::vector<RawDataset> shard_of_one_pack() {
  return {{.name = "input_ids",
           .rows = Hdf5Rows::kRagged,
           .values = {{101, 103, 102, 9, 102, 101, 8, 102, 103, 7, 102}}},
          {.name = "segment_ids",
           .element = Hdf5Element::kI8,
           .rows = Hdf5Rows::kRagged,
           .values = {{0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1}}},
          {.name = "packed_input_len", .rows = Hdf5Rows::kRagged, .values = {{5, 6}}},
          {.name = "masked_lm_positions", .rows = Hdf5Rows::kRagged, .values = {{1, 8}}},
          {.name = "masked_lm_ids", .rows = Hdf5Rows::kRagged, .values = {{500, 600}}},
          {.name = "packed_masked_lm_len", .rows = Hdf5Rows::kRagged, .values = {{1, 1}}},
          {.name = "next_sentence_labels",
           .element = Hdf5Element::kI8,
           .rows = Hdf5Rows::kRagged,
           .values = {{0, 1}}}};
}

TEST(BadShard, AWrongValueInsideOfAPackIsNamedWithItsSequence) {
  const TempFolder folder;
  const std::string path = folder.path("part_00000");
  auto shard = shard_of_one_pack();
  write_raw_shard(path, shard);
  const SampleSet samples = read_shard(path, 40, {});
  ASSERT_EQ(samples.size(), 2);
  EXPECT_EQ(samples[1].id, 41);
  EXPECT_THAT(samples[1].masked_positions, ElementsAre(3));
  const auto after = [&](const char* dataset, size_t element, int value) {
    shard = shard_of_one_pack();
    dataset_of(shard, dataset).values[0][element] = value;
    write_raw_shard(path, shard);
    return complaint(path);
  };
  EXPECT_THAT(
      after("input_ids", 6, 30522),
      HasSubstr("dataset input_ids, row 0: in sequence 1 of the pack, element 1 is id 30522"));
  EXPECT_THAT(after("segment_ids", 5, 2), HasSubstr("in sequence 1 of the pack, element 0 is 2"));
  // Position 4 belongs to the first sequence.
  EXPECT_THAT(after("masked_lm_positions", 1, 4),
              HasSubstr("row 0: in sequence 1 of the pack, element 0 is -1 after 0"));
  EXPECT_THAT(after("masked_lm_positions", 1, -32768), HasSubstr("element 0 is -32768 after 0"));
  EXPECT_THAT(after("next_sentence_labels", 1, 3), HasSubstr("in sequence 1 of the pack, label 3"));
  write_raw_shard(path, shard_of_one_pack());
  EXPECT_THAT(complaint(path, {.max_seq_tokens = 10}),
              HasSubstr("dataset input_ids, row 0: 11 tokens, want 1 to 10"));
}

TEST(BadShard, AMaskThatIsNoPrefixOfOnesIsNamed) {
  const TempFolder folder;
  const std::string path = folder.path("part_0.hdf5");
  auto shard = raw_shard(example_samples(9, 4), kFixed);
  dataset_of(shard, "input_mask").values[7][511] = 1;
  write_raw_shard(path, shard);
  EXPECT_THAT(complaint(path),
              HasSubstr("dataset input_mask, row 7: element 511 is 1 after a zero"));
  shard = raw_shard(example_samples(9, 4), kFixed);
  dataset_of(shard, "input_mask").values[7][2] = 3;
  write_raw_shard(path, shard);
  EXPECT_THAT(complaint(path), HasSubstr("dataset input_mask, row 7: element 2 is 3, want 0 or 1"));
}

TEST(BadShard, TypesThatH5pyUsersChooseAreNamed) {
  const std::string folder = concat(kSourceDir, "/tests/golden/");
  EXPECT_THAT(
      complaint(folder + "h5py_int64.hdf5"),
      HasSubstr("dataset input_ids contains variable-length int64, want variable-length int16"));
  const std::string refused = folder + "h5py_refused/";
  EXPECT_THAT(complaint(refused + "other_filter.hdf5"),
              HasSubstr("dataset input_ids is stored with the filter 32008, want none or those "
                        "that come with HDF5 and h5py; rewrite the file with `h5repack -f NONE`"));
  EXPECT_THAT(complaint(refused + "never_written.hdf5"),
              HasSubstr("dataset input_ids: its rows were never written"));
}

TEST(BadShard, ADriverInformationBlockIsRefusedBeforeTheLibraryReadsIt) {
  constexpr size_t kDriverAddress[] = {48, 52};  // in superblocks of version 0 and 1
  for (const int version : {0, 1}) {
    for (const size_t front : {0, 512, 1024}) {
      const TempFolder folder;
      const std::string path = folder.path("old.hdf5");
      std::string file(front + 96, '\0');
      file.replace(front, 8, "\x89HDF\r\n\x1a\n", 8);
      file[front + 8] = static_cast<char>(version);
      file[front + 13] = file[front + 14] = 8;  // bytes of addresses and lengths
      file[front + kDriverAddress[version]] = 96;
      write_bytes(path, file);
      EXPECT_THAT(complaint(path), HasSubstr("driver information block"));
      file.replace(front + kDriverAddress[version], 8, 8, '\xff');
      write_bytes(path, file);
      EXPECT_THAT(complaint(path), HasSubstr("not a readable HDF5 file"));
    }
  }
}

TEST(BadShard, ValuesInOtherFilesAreRefused) {
  const std::string refused = concat(kSourceDir, "/tests/golden/h5py_refused/");
  for (const char* link : {"external_link.hdf5", "soft_link.hdf5"}) {
    EXPECT_THAT(complaint(refused + link),
                HasSubstr("dataset input_ids is a soft or external link, want the dataset itself"));
  }
  EXPECT_THAT(complaint(refused + "external_storage.hdf5"),
              HasSubstr("dataset input_ids has its values in other files"));
  EXPECT_THAT(complaint(refused + "virtual.hdf5"), HasSubstr("dataset input_ids is virtual"));
}

TEST(BadShard, MoreRowsThanTheFileCanHoldAreRefusedBeforeTheyAreRead) {
  const std::string path =
      concat(kSourceDir, "/tests/golden/h5py_refused/a_million_million_rows.hdf5");
  EXPECT_THAT(complaint(path), HasSubstr("dataset input_ids states 1000000000000 rows"));
  EXPECT_THAT(error_of([&] { inspect_shard(path); }), HasSubstr(" bytes can hold at most "));
}

TEST(BadShard, APipeIsRefusedAndNotWaitedFor) {
  const TempFolder folder;
  const std::string path = folder.path("part_0.hdf5");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(complaint(path), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] { xxh3_of_file(path); }), HasSubstr("not a regular file"));
}

/// Flips one random bit per round, of `part` of the file, and reads: the answer must be samples or
/// Error(kData), never a crash, another error, or much time.
int64_t flips_that_go_unnoticed(const std::string& path, int64_t rounds, double part) {
  const std::string good = bytes_of(path);
  std::mt19937_64 random(2024);
  int64_t unnoticed = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    std::string bad = good;
    const auto span = static_cast<uint64_t>(static_cast<double>(good.size()) * part);
    const auto at = static_cast<size_t>(random() % span);
    const auto bit = static_cast<int>(random() % 8);
    bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
    write_bytes(path, bad);
    const std::string text = error_of([&] { read_shard(path, 0, {}); });
    if (text == "no error") {
      ++unnoticed;
    } else {
      EXPECT_THAT(text, HasSubstr(path)) << "byte " << at << " bit " << bit;
    }
  }
  return unnoticed;
}

TEST_P(EachBadLayout, AFlippedBitAnywhereNeverCrashes) {
  write_shard(path_, GetParam(), example_samples(33, 4));
  // Most flips change one token into another or hit unused space: the manifest's hash finds those.
  EXPECT_LT(flips_that_go_unnoticed(path_, 200, 1.0), 200);
}

TEST_P(EachBadLayout, AFlippedBitInTheStructuresAtTheStartNeverCrashes) {
  write_shard(path_, GetParam(), example_samples(33, 4));
  EXPECT_LT(
      flips_that_go_unnoticed(path_, 200, 4096.0 / static_cast<double>(bytes_of(path_).size())),
      200);
}

TEST_P(EachBadLayout, AFullDiskIsOneSentenceAndLeavesTheEarlierFile) {
  write_shard(path_, GetParam(), example_samples(7, 1));
  const std::string before = bytes_of(path_);
  const SampleSet many = example_samples(3000, 2);
  for (const int64_t room : {0, 100, 5000, 100'000, 1'000'000, 2'000'000}) {
    const std::string text = [&] {
      const FileSizeLimit limit(room);
      return error_of([&] { write_shard(path_, GetParam(), many); });
    }();
    EXPECT_THAT(text, AllOf(HasSubstr(path_), HasSubstr("cannot "), HasSubstr("File too large")))
        << room;
    EXPECT_EQ(bytes_of(path_), before);
    EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
  }
  write_shard(path_, GetParam(), many);  // and the library is usable afterwards
  EXPECT_EQ(read_shard(path_, 0, {}).token_ids, many.token_ids);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_P(EachBadLayout, NoMemoryIsOneSentenceAndLeavesTheEarlierFile) {
  write_shard(path_, GetParam(), example_samples(7, 1));
  const std::string before = bytes_of(path_);
  const auto write = [&, many = example_samples(20'000, 2)] {
    write_shard(path_, GetParam(), many);
  };
  // Here our own vectors find no memory, there the library.
  for (const int64_t room : {0, 500'000, 2'000'000, 5'000'000}) {
    EXPECT_EXIT(exit_within(room, write), testing::ExitedWithCode(6), "out of host memory") << room;
    EXPECT_TRUE(bytes_of(path_) == before);
    EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
  }
  EXPECT_EXIT(exit_within(1'000'000'000, write), testing::ExitedWithCode(0), "");
}
#endif

TEST_P(EachBadLayout, AFolderThatCannotBeWrittenIsNamed) {
  EXPECT_THAT(error_of([&] {
                write_shard(folder_.path("nowhere/part_0.hdf5"), GetParam(), example_samples(1, 1));
              }),
              AllOf(HasSubstr("nowhere/part_0.hdf5"), HasSubstr("No such file or directory")));
}

}  // namespace
}  // namespace bertha
