#include "data/format/shard_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "data/format/checksum_list.h"
#include "data/format/manifest.h"
#include "data/format/shard_reader.h"
#include "data/format/shard_writer.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"
#include "tests/data/same_samples.h"
#include "tests/support/source_dir.h"

namespace bertha {
namespace {

std::string golden(const std::string& name) { return concat(kSourceDir, "/tests/golden/", name); }

class EachLayout : public testing::TestWithParam<ShardLayout> {};
INSTANTIATE_TEST_SUITE_P(Shard, EachLayout,
                         testing::Values(ShardLayout::kVariableLength, ShardLayout::kFixedLength,
                                         ShardLayout::kPacked));

TEST_P(EachLayout, ReadsBackWhatWasWrittenAtAnyNumberOfRows) {
  const TempFolder folder;
  for (const int64_t rows : {0, 1, 7, 33, 1023, 1024, 1025, 2500}) {
    const SampleSet samples = example_samples(rows, 17 + static_cast<uint64_t>(rows));
    const std::string path = folder.path(concat("part_", rows, ".hdf5"));
    write_shard(path, GetParam(), samples);
    const ShardInfo info = inspect_shard(path);
    EXPECT_EQ(info.layout, GetParam());
    EXPECT_EQ(info.num_samples, rows);
    const SampleSet found = read_shard(path, 1000, {});
    expect_same_contents(found, samples);
    for (int64_t i = 0; i < rows; ++i) ASSERT_EQ(found[i].id, 1000 + i);
  }
}

TEST_P(EachLayout, EqualSamplesGiveEqualBytes) {
  const TempFolder folder;
  const SampleSet samples = example_samples(1100, 3);
  write_shard(folder.path("part_a.hdf5"), GetParam(), samples);
  write_shard(folder.path("part_b.hdf5"), GetParam(), samples);
  EXPECT_EQ(bytes_of(folder.path("part_a.hdf5")), bytes_of(folder.path("part_b.hdf5")));
}

/// The element types of the datasets with ids.
std::vector<Hdf5Element> id_elements(const std::string& path) {
  Hdf5Input file(path);
  return {file.describe("input_ids").element, file.describe("masked_lm_ids").element};
}

TEST_P(EachLayout, IdsThatFitAreStoredIn16BitsAndOthersIn32) {
  const TempFolder folder;
  const std::string path = folder.path("part_a.hdf5");
  const std::vector<Hdf5Element> narrow(2, Hdf5Element::kI16), wide(2, Hdf5Element::kI32);
  const SampleSet samples = example_samples(1100, 3);
  write_shard(path, GetParam(), samples);
  EXPECT_EQ(id_elements(path), narrow);
  const std::string bytes = bytes_of(path);
  write_shard(path, GetParam(), samples, {.vocab_size = 32768});
  EXPECT_EQ(bytes_of(path), bytes);
  write_shard(path, GetParam(), samples, {.vocab_size = 32769});
  EXPECT_EQ(id_elements(path), wide);
  expect_same_contents(read_shard(path, 0, {}), samples);

  const SampleLimits multilingual{.vocab_size = 119547};
  const SampleSet many = example_samples(1100, 4, multilingual);
  EXPECT_GT(std::ranges::max(many.token_ids), 100'000);
  EXPECT_GT(std::ranges::max(many.masked_ids), 100'000);
  write_shard(path, GetParam(), many, multilingual);
  EXPECT_EQ(id_elements(path), wide);
  expect_same_contents(read_shard(path, 0, multilingual), many);
  EXPECT_EQ(describe_shard(path, multilingual).shard.md5_of_lists,
            describe_shard(path, {.vocab_size = kMaxVocabEntries}).shard.md5_of_lists);
}

TEST_P(EachLayout, HasNoTimeStamps) {
  const TempFolder folder;
  write_shard(folder.path("part_a.hdf5"), GetParam(), example_samples(3, 3));
  const std::string bytes = bytes_of(folder.path("part_a.hdf5"));
  int64_t headers = 0;
  // "OHDR", version 2, flags, of which 0x20 stores times.
  for (size_t at = 0; (at = bytes.find("OHDR\2", at)) != std::string::npos; ++at, ++headers) {
    EXPECT_EQ(bytes.at(at + 5) & 0x20, 0) << at;
  }
  EXPECT_GE(headers, 6);  // the root group and each dataset
}

TEST_P(EachLayout, AppearsOnlyWhenFinished) {
  const TempFolder folder;
  const std::string path = folder.path("part.hdf5");
  {
    ShardWriter writer(path, GetParam(), {});
    writer.append(example_samples(1, 5)[0]);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

/// The rows that tests/golden/make_h5py_shards.py put into both files, from its text file.
struct GoldenRows {
  std::string md5_of_lists;
  std::string md5_of_packs;
  SampleSet samples;
};

GoldenRows golden_rows() {
  std::ifstream in(golden("h5py_rows.txt"));
  GoldenRows rows;
  std::getline(in, rows.md5_of_lists);
  std::getline(in, rows.md5_of_packs);
  const auto read_line = [&]<class T>(std::vector<T>& values) {
    std::string line;
    if (!std::getline(in, line)) return false;
    std::istringstream words(line);
    for (int value = 0; words >> value;) values.push_back(static_cast<T>(value));
    return true;
  };
  for (;;) {
    std::vector<TokenId> ids, labels;
    std::vector<int16_t> positions, next;
    std::vector<int8_t> segments;
    if (!read_line(ids)) return rows;
    BERTHA_CHECK(read_line(segments) && read_line(positions) && read_line(labels) &&
                     read_line(next) && next.size() == 1,
                 "h5py_rows.txt");
    rows.samples.append({.id = rows.samples.size(),
                         .token_ids = ids,
                         .segment_ids = segments,
                         .masked_positions = positions,
                         .masked_ids = labels,
                         .next_sentence_label = static_cast<int8_t>(next[0])});
  }
}

TEST(Shard, FilesOfH5pyReadAsTheRowsThatWentIn) {
  const GoldenRows want = golden_rows();
  ASSERT_EQ(want.samples.size(), 6);
  for (const char* name :
       {"h5py_fixed.hdf5", "h5py_varlen.hdf5", "h5py_latest.hdf5", "h5py_packed.hdf5"}) {
    SCOPED_TRACE(name);
    const SampleSet found = read_shard(golden(name), 0, {});
    expect_same_contents(found, want.samples);
    EXPECT_EQ(md5_of_lists(found), want.md5_of_lists);
  }
  EXPECT_EQ(describe_shard(golden("h5py_varlen.hdf5"), {}).shard.md5_of_lists, want.md5_of_lists);
  EXPECT_EQ(describe_shard(golden("h5py_packed.hdf5"), {}).shard.md5_of_lists, want.md5_of_packs);
  EXPECT_EQ(inspect_shard(golden("h5py_fixed.hdf5")).layout, ShardLayout::kFixedLength);
  EXPECT_EQ(inspect_shard(golden("h5py_varlen.hdf5")).layout, ShardLayout::kVariableLength);
  const ShardInfo packed = inspect_shard(golden("h5py_packed.hdf5"));
  EXPECT_EQ(packed.layout, ShardLayout::kPacked);
  EXPECT_EQ(packed.num_rows, 4);
  EXPECT_EQ(packed.num_samples, 6);
}

/// The shards of a folder of golden files, in order of their names; each must be there.
std::vector<std::string> golden_shards(const std::string& folder, size_t count) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(golden(folder))) {
    paths.push_back(entry.path());
  }
  EXPECT_EQ(paths.size(), count) << folder;
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(Shard, EveryFormOfStorageReadsAsTheRowsThatWentIn) {
  const GoldenRows want = golden_rows();
  for (const std::string& path : golden_shards("h5py_forms", 35)) {
    SCOPED_TRACE(path);
    const std::string name = std::filesystem::path(path).filename();
    const bool packed = name.starts_with("packed");
    const ShardInfo info = inspect_shard(path);
    EXPECT_EQ(info.layout, packed                       ? ShardLayout::kPacked
                           : name.starts_with("varlen") ? ShardLayout::kVariableLength
                                                        : ShardLayout::kFixedLength);
    EXPECT_EQ(info.num_samples, 6);
    expect_same_contents(read_shard(path, 0, {}), want.samples);
    EXPECT_EQ(describe_shard(path, {}).shard.md5_of_lists,
              packed ? want.md5_of_packs : want.md5_of_lists);
  }
}

TEST(Shard, RowsAreReadFromTheMiddleOfEveryForm) {
  const GoldenRows want = golden_rows();
  for (const std::string& path : golden_shards("h5py_forms", 35)) {
    SCOPED_TRACE(path);
    ShardRows rows(path);
    const ShardContents last = rows.read(rows.num_rows() - 1, 1, {}, stop_at_violation(path));
    const ShardContents first = rows.read(0, 1, {}, stop_at_violation(path));
    ASSERT_EQ(last.samples.size(), 1);
    EXPECT_THAT(last.samples[0].token_ids, ElementsAreArray(want.samples[5].token_ids));
    EXPECT_THAT(first.samples[0].token_ids, ElementsAreArray(want.samples[0].token_ids));
    EXPECT_EQ(first.samples[0].next_sentence_label, want.samples[0].next_sentence_label);
    EXPECT_EQ(last.samples[0].next_sentence_label, want.samples[5].next_sentence_label);
  }
}

/// The two rows of the worked example in data/FORMAT.md.
SampleSet worked_example() {
  const std::vector<TokenId> ids[] = {{101, 2023, 103, 102, 2054, 102}, {101, 103, 102, 2129, 102}};
  const std::vector<int8_t> segments[] = {{0, 0, 0, 0, 1, 1}, {0, 0, 0, 1, 1}};
  const std::vector<int16_t> positions[] = {{2}, {1}};
  const std::vector<TokenId> labels[] = {{2003}, {2748}};
  SampleSet samples;
  for (size_t row = 0; row < 2; ++row) {
    samples.append({.token_ids = ids[row],
                    .segment_ids = segments[row],
                    .masked_positions = positions[row],
                    .masked_ids = labels[row],
                    .next_sentence_label = static_cast<int8_t>(row == 0 ? 1 : 0)});
  }
  return samples;
}

/// Bytes from hexadecimal digits; blanks between them are passed over.
std::string bytes_of_hex(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string bytes;
  for (int byte = 0; words >> std::hex >> byte;) bytes += static_cast<char>(byte);
  return bytes;
}

TEST(Shard, TheWorkedExampleOfThePageIsWhatIsWritten) {
  const TempFolder folder;
  const std::string path = folder.path("part_0.hdf5");
  const SampleSet samples = worked_example();
  write_shard(path, ShardLayout::kFixedLength, samples,
              {.max_seq_tokens = 8, .max_masked_per_seq = 2});
  expect_same_contents(read_shard(path, 0, {}), samples);
  EXPECT_EQ(describe_shard(path, {}).shard.md5_of_lists, "68a02576d4a7faf0cb0c4101c013f1a1");
  write_shard(path, ShardLayout::kPacked, samples);
  EXPECT_EQ(inspect_shard(path).num_rows, 1);
  expect_same_contents(read_shard(path, 0, {}), samples);
  write_shard(path, ShardLayout::kVariableLength, samples);
  EXPECT_EQ(describe_shard(path, {}).shard.md5_of_lists, "68a02576d4a7faf0cb0c4101c013f1a1");

  const std::string bytes = bytes_of(path);
  const size_t collection =
      bytes.find(bytes_of_hex("47 43 4f 4c 01 00 00 00  00 10 00 00 00 00 00 00 "
                              "01 00 00 00 00 00 00 00  0c 00 00 00 00 00 00 00 "
                              "65 00 e7 07 67 00 66 00  06 08 66 00 00 00 00 00 "
                              "02 00 00 00 00 00 00 00  0a 00 00 00 00 00 00 00 "
                              "65 00 67 00 66 00 51 08  66 00 00 00 00 00 00 00 "
                              "03 00 00 00 00 00 00 00  06 00 00 00 00 00 00 00 "
                              "00 00 00 00 01 01 00 00"));
  ASSERT_NE(collection, std::string::npos);
  std::string address(8, '\0');
  for (size_t i = 0; i < 8; ++i) address[i] = static_cast<char>(collection >> (8 * i));
  EXPECT_NE(bytes.find(bytes_of_hex("06 00 00 00") + address + bytes_of_hex("01 00 00 00") +
                       bytes_of_hex("05 00 00 00") + address + bytes_of_hex("02 00 00 00")),
            std::string::npos);
}

TEST(PackedShard, PacksHoldConsecutiveSamplesAsFarAsTheyFit) {
  const TempFolder folder;
  const std::string path = folder.path("part_00000");
  const SampleLimits limits{.max_seq_tokens = 64, .max_masked_per_seq = 10, .vocab_size = 500};
  const SampleSet samples = example_samples(100, 3, limits);
  for (const int64_t most : {1, 2, 3, 8}) {
    ShardWriter writer(path, ShardLayout::kPacked, limits, most);
    for (int64_t i = 0; i < samples.size(); ++i) {
      if (i == 50) writer.end_pack();
      writer.append(samples[i]);
    }
    writer.finish();
    const ShardContents found = read_shard_reporting(path, 0, limits, stop_at_violation(path));
    expect_same_contents(found.samples, samples);
    EXPECT_EQ(inspect_shard(path).num_rows, std::ssize(found.row_offsets) - 1);
    const auto tokens = [&](int64_t first, int64_t end) {
      return samples.token_offsets[static_cast<size_t>(end)] -
             samples.token_offsets[static_cast<size_t>(first)];
    };
    bool one_starts_at_50 = false;
    for (size_t row = 0; row + 1 < found.row_offsets.size(); ++row) {
      const int64_t first = found.row_offsets[row], end = found.row_offsets[row + 1];
      one_starts_at_50 = one_starts_at_50 || first == 50;
      EXPECT_LE(end - first, most);
      EXPECT_LE(tokens(first, end), 64);
      for (int64_t i = first; i < end; ++i) EXPECT_EQ(found.row_of(i), static_cast<int64_t>(row));
      if (end - first == most || end == 50 || end == 100) continue;
      EXPECT_GT(tokens(first, end + 1), 64) << "sample " << end << " had room in pack " << row;
    }
    EXPECT_TRUE(one_starts_at_50);
  }
}

}  // namespace
}  // namespace bertha
