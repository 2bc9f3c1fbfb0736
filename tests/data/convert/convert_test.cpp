#include "data/convert/convert.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "data/format/checksum_list.h"
#include "data/format/manifest.h"
#include "data/format/output_folder.h"
#include "data/format/shard_names.h"
#include "data/format/shard_reader.h"
#include "data/format/verify.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/convert/example_records.h"
#include "tests/data/example_data.h"
#include "tests/data/same_samples.h"
#include "tests/support/files.h"
#include "tests/support/flip_byte.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr SampleLimits kLimits{.max_seq_tokens = 16, .max_masked_per_seq = 3, .vocab_size = 500};
constexpr ShardLayout kVariable = ShardLayout::kVariableLength;

/// A source of three files of 1100, 0 and 1400 sequences in some form.
class Convert : public testing::Test {
 protected:
  Convert() {
    options_.source.path = folder_.path("from");
    options_.source.limits = kLimits;
    options_.source.num_threads = 2;
    options_.output_dir = folder_.path("to");
    fs::create_directory(options_.source.path);
    for (int64_t i = 0; i < samples_.size(); ++i) samples_.ids[static_cast<size_t>(i)] = i;
  }

  SampleSet part(int64_t first, int64_t end) const {
    SampleSet samples;
    for (int64_t i = first; i < end; ++i) samples.append(samples_[i]);
    return samples;
  }
  std::string from(const std::string& name) const { return folder_.path("from/" + name); }
  std::string to(const std::string& name) const { return folder_.path("to/" + name); }

  void write_source(ShardLayout layout) const {
    write_shard(from("part_0.hdf5"), layout, part(0, 1100), kLimits);
    write_shard(from("part_1.hdf5"), layout, {}, kLimits);
    write_shard(from("part_2.hdf"), layout, part(1100, 2500), kLimits);
  }
  void write_record_source() const {
    write_records(from("part-00000-of-00003"), part(0, 1100), kLimits);
    write_records(from("part-00001-of-00003"), {}, kLimits);
    write_records(from("part-00002-of-00003"), part(1100, 2500), kLimits);
  }

  /// The samples of the outcome in file order.
  SampleSet found() const {
    SampleSet all;
    for (const std::string& path : list_shards(options_.output_dir)) {
      const SampleSet shard = read_shard(path, all.size(), kLimits);
      for (int64_t i = 0; i < shard.size(); ++i) all.append(shard[i]);
    }
    return all;
  }
  std::string refusal(ExitCode code = ExitCode::kData) const {
    return error_of([&] { convert_data(options_, {}); }, code);
  }
  void expect_found(const SampleSet& want) const {
    expect_same_contents(found(), want);
    EXPECT_TRUE(verify_data(options_.output_dir).ok());
    EXPECT_FALSE(fs::exists(to("work")));
  }

  TempFolder folder_;
  ConvertOptions options_;
  SampleSet samples_ = example_samples(2500, 7, kLimits);
};

TEST_F(Convert, WhatIsKnownOfTheTokenizerGoesWithTheSequences) {
  write_source(kVariable);
  Manifest manifest = convert_data(options_, {}).manifest;
  EXPECT_EQ(manifest.tokenizer(), "");
  manifest.options[kTokenizerOption] = "as stated";
  write_manifest(to("manifest.json"), manifest);
  options_.source.path = std::exchange(options_.output_dir, folder_.path("again"));
  EXPECT_EQ(convert_data(options_, {}).manifest.tokenizer(), "as stated");
}

TEST_F(Convert, EveryFormBecomesBothLayoutsWithItsOwnFiles) {
  for (const ShardLayout layout : {kVariable, ShardLayout::kFixedLength, ShardLayout::kPacked}) {
    write_source(layout);
    for (const ShardLayout wanted : {kVariable, ShardLayout::kFixedLength}) {
      options_.layout = wanted;
      fs::remove_all(options_.output_dir);
      EXPECT_EQ(convert_data(options_, {}).manifest.num_samples(), 2500);
      EXPECT_EQ(inspect_shard(to("part_2.hdf5")).layout, wanted);
      EXPECT_EQ(inspect_shard(to("part_1.hdf5")).num_samples, 0);
      EXPECT_EQ(inspect_shard(to("part_0.hdf5")).num_samples, 1100);
      expect_found(samples_);
    }
  }
}

TEST_F(Convert, RecordsBecomeShards) {
  write_record_source();
  convert_data(options_, {});
  EXPECT_EQ(inspect_shard(to("part-00002-of-00003.hdf5")).num_samples, 1400);
  expect_found(samples_);
  const std::string alone = folder_.path("eval_10k");
  write_records(alone, part(0, 7), kLimits);
  options_.source.path = alone;
  options_.output_dir = folder_.path("eval");
  convert_data(options_, {});
  EXPECT_EQ(inspect_shard(folder_.path("eval/part_eval_10k.hdf5")).num_samples, 7);
}

TEST_F(Convert, ShardsHaveThePublishedSizes) {
  write_record_source();
  options_.num_shards = 7;
  const ConvertResult result = convert_data(options_, {});
  std::vector<int64_t> sizes;
  for (const ManifestShard& shard : result.manifest.shards) sizes.push_back(shard.samples);
  EXPECT_EQ(sizes, shard_sizes(2500, 7));
  EXPECT_EQ(result.manifest.shards[6].name, "part_00006_of_00007.hdf5");
  expect_found(samples_);
}

TEST_F(Convert, TheShuffleIsThatOfPython) {
  // random.Random(24).shuffle of list(range(12)), CPython 3.11.7
  const std::vector<uint32_t> order{4, 7, 8, 0, 5, 10, 1, 3, 2, 9, 6, 11};
  const std::vector<uint32_t> place_of = published_shuffle(12, 24);
  for (size_t place = 0; place < order.size(); ++place) EXPECT_EQ(place_of[order[place]], place);

  write_source(kVariable);
  options_.shuffle_seed = 24;
  options_.source.memory_bytes = 1;  // as little as it goes: three parts
  const std::vector<uint32_t> where = published_shuffle(2500, 24);
  std::vector<int64_t> order_of_all(2500);
  for (size_t i = 0; i < where.size(); ++i) order_of_all[where[i]] = static_cast<int64_t>(i);
  SampleSet shuffled;
  for (const int64_t i : order_of_all) shuffled.append(samples_[i]);
  for (const int64_t shards : {0, 3}) {
    options_.num_shards = shards;
    fs::remove_all(options_.output_dir);
    convert_data(options_, {});
    expect_found(shuffled);
  }
  EXPECT_EQ(inspect_shard(to("part_00000_of_00003.hdf5")).num_samples, 833);
}

TEST_F(Convert, OnlyTheFirstSequencesAreLookedAt) {
  write_record_source();
  write_bytes(from("part-00002-of-00003"), "damaged");
  options_.source.max_seqs = 1000;
  EXPECT_EQ(convert_data(options_, {}).manifest.num_samples(), 1000);
  expect_found(part(0, 1000));
  options_.output_dir = folder_.path("more");
  options_.source.max_seqs = 1101;
  EXPECT_THAT(refusal(), HasSubstr("part-00002-of-00003"));
}

TEST_F(Convert, MissingFilesAreNamedUnlessAPartIsAccepted) {
  write_record_source();
  fs::remove(from("part-00001-of-00003"));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("1 of 3 files are missing: part-00001-of-00003"),
                               HasSubstr("--partial")));
  EXPECT_FALSE(fs::exists(options_.output_dir));
  options_.source.missing = MissingFiles::kAccept;
  EXPECT_EQ(convert_data(options_, {}).manifest.num_samples(), 2500);
}

TEST_F(Convert, AStoppedRunGoesOnWhereItWas) {
  for (const bool shuffled : {false, true}) {
    options_.output_dir = folder_.path(shuffled ? "to_shuffled" : "to");
    options_.source.num_threads = 1;
    options_.num_shards = 5;
    if (shuffled) options_.shuffle_seed = 24;
    write_record_source();
    ConvertOptions whole = options_;
    whole.output_dir = folder_.path(shuffled ? "whole_shuffled" : "whole");
    const Manifest want = convert_data(whole, {}).manifest;

    const std::string path = from("part-00002-of-00003");
    flip_byte(path, -20);  // the last record
    EXPECT_THAT(refusal(), HasSubstr("record 1399 at byte "));
    EXPECT_TRUE(fs::exists(options_.output_dir + "/work"));
    EXPECT_FALSE(fs::exists(options_.output_dir + "/manifest.json"));
    EXPECT_EQ(fs::exists(options_.output_dir + "/part_00003_of_00005.hdf5"), !shuffled);
    flip_byte(path, -20);
    const ConvertResult result = convert_data(options_, {});
    EXPECT_EQ(result.shards_reused, shuffled ? 0 : 4);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(result.manifest.shards[i].xxh3, want.shards[i].xxh3);
    }
    EXPECT_TRUE(convert_data(options_, {}).already_done);
    EXPECT_TRUE(verify_data(options_.output_dir).ok());
  }
}

TEST_F(Convert, APartThatIsScatteredIsNotReadAgain) {
  write_record_source();
  options_.source.num_threads = 1;
  options_.source.memory_bytes = 1;  // as little as it goes: parts of 1024 sequences
  options_.shuffle_seed = 24;
  flip_byte(from("part-00002-of-00003"), 40);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("part-00002-of-00003"), HasSubstr("record 0 at byte 0")));
  flip_byte(from("part-00002-of-00003"), 40);  // well again; now one of the part that is done
  flip_byte(from("part-00000-of-00003"), 40);
  convert_data(options_, {});
  EXPECT_TRUE(verify_data(options_.output_dir).ok());
}

TEST_F(Convert, AStoppedShuffleGoesOnWithOtherMemory) {
  write_record_source();
  options_.source.num_threads = 1;
  options_.source.memory_bytes = 1;  // as little as it goes: parts of 1024 sequences
  options_.shuffle_seed = 24;
  flip_byte(from("part-00002-of-00003"), -20);  // the last of three parts
  EXPECT_THAT(refusal(), HasSubstr("record 1399 at byte "));
  flip_byte(from("part-00002-of-00003"), -20);
  // As seqs_per_spill() counts: also three parts, of 1200 sequences.
  options_.source.memory_bytes =
      1200 * 2 * (3 * kLimits.max_seq_tokens + 4 * kLimits.max_masked_per_seq + 64);
  EXPECT_EQ(convert_data(options_, {}).manifest.num_samples(), 2500);
  EXPECT_TRUE(verify_data(options_.output_dir).ok());
}

TEST_F(Convert, RecordFilesMayHaveAnyNumberedName) {
  write_record_source();
  fs::rename(from("part-00000-of-00003"), from("-00000-of-3"));
  fs::rename(from("part-00001-of-00003"), from("wiki.tfrecord-00001-of-00003"));
  options_.source.missing = MissingFiles::kAccept;
  EXPECT_EQ(convert_data(options_, {}).manifest.num_samples(), 2500);
}

TEST_F(Convert, Hdf5FilesOfAnyNameBesideRecordsAreRefused) {
  write_record_source();
  for (const char* name : {"part_0.hdf5", "eval.hdf5", "eval.h5", "eval"}) {
    write_shard(from(name), kVariable, part(0, 3), kLimits);
    EXPECT_THAT(refusal(), HasSubstr(concat("contains HDF5 files (", name,
                                            ") and TFRecord files (part-00000-of-00003)")));
    fs::remove(from(name));
  }
  write_bytes(from("README"), "Three files.");
  EXPECT_EQ(convert_data(options_, {}).manifest.num_samples(), 2500);
}

TEST_F(Convert, AFinishedShardThatWasDamagedSinceIsMadeAgain) {
  write_source(kVariable);
  const Manifest want = convert_data(options_, {}).manifest;
  flip_byte(to("part_0.hdf5"), static_cast<int64_t>(fs::file_size(to("part_0.hdf5"))) / 2);
  const ConvertResult result = convert_data(options_, {});
  EXPECT_FALSE(result.already_done);
  EXPECT_EQ(result.manifest.shards[0].xxh3, want.shards[0].xxh3);
  EXPECT_TRUE(verify_data(options_.output_dir).ok());
}

TEST_F(Convert, AFolderThatHoldsSomethingElseIsRefused) {
  write_source(kVariable);
  convert_data(options_, {});
  options_.layout = ShardLayout::kFixedLength;
  EXPECT_THAT(
      refusal(),
      HasSubstr(
          "contains data prepared with --layout = variable_length, but it is now fixed_length"));
  make_work_folder(folder_.path("other"));
  write_bytes(folder_.path("other/work/key.txt"), "another");
  options_.output_dir = folder_.path("other");
  EXPECT_THAT(refusal(), HasSubstr("unfinished work of another conversion"));
}

// Names and sizes stay: shards of fixed lengths.
TEST_F(Convert, ASourceThatWasMadeAgainIsAnotherSource) {
  write_source(kVariable);
  options_.layout = ShardLayout::kFixedLength;
  convert_data(options_, {});
  ConvertOptions again = options_;
  again.source.path = options_.output_dir;
  again.output_dir = folder_.path("again");
  Manifest manifest = convert_data(again, {}).manifest;
  EXPECT_TRUE(convert_data(again, {}).already_done);

  samples_ = example_samples(2500, 8, kLimits);
  write_source(kVariable);
  fs::remove_all(options_.output_dir);
  convert_data(options_, {});
  EXPECT_THAT(error_of([&] { convert_data(again, {}); }),
              AllOf(HasSubstr("source_hashes_md5 = "), HasSubstr("another output folder")));
  manifest.options.erase("source_hashes_md5");  // as in folders of before
  write_manifest(folder_.path("again/manifest.json"), manifest);
  EXPECT_TRUE(convert_data(again, {}).already_done);
}

TEST_F(Convert, NothingOfTheUserIsWrittenOverOrRemoved) {
  write_source(kVariable);
  fs::create_directories(to("work"));
  write_bytes(to("work/thesis"), "years");
  EXPECT_THAT(refusal(), HasSubstr("to/work: bertha uses this name for unfinished work"));
  EXPECT_EQ(bytes_of(to("work/thesis")), "years");
  EXPECT_FALSE(fs::exists(to("part_0.hdf5")));
  fs::remove_all(to("work"));
  write_bytes(to("part_0.hdf5"), "a shard from elsewhere");
  EXPECT_THAT(refusal(), HasSubstr("to/part_0.hdf5: was not written by this command"));
  EXPECT_EQ(bytes_of(to("part_0.hdf5")), "a shard from elsewhere");
}

TEST_F(Convert, WorkThatARunStoppedAtItsEndLeftIsRemoved) {
  write_source(kVariable);
  convert_data(options_, {});
  make_work_folder(options_.output_dir);
  EXPECT_TRUE(convert_data(options_, {}).already_done);
  EXPECT_FALSE(fs::exists(to("work")));
}

TEST_F(Convert, AManifestThatListsOtherShardsIsRefused) {
  write_source(kVariable);
  Manifest manifest = convert_data(options_, {}).manifest;
  manifest.shards.clear();
  write_manifest(to("manifest.json"), manifest);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("manifest.json: lists 0 shards"),
                               HasSubstr("writes 3 (part_0.hdf5"), HasSubstr("remove it")));
  fs::remove(to("manifest.json"));
}

TEST_F(Convert, AListOfOtherShardsIsRefusedBeforeTheWork) {
  write_source(kVariable);
  options_.checksum_list = folder_.path("list.chk");
  write_bytes(options_.checksum_list,
              concat("part_00000_of_00007.hdf5\t", std::string(32, '1'),
                     "\npart_00001_of_00007.hdf5\t", std::string(32, '2'), "\n"));
  EXPECT_THAT(refusal(ExitCode::kUsage),
              AllOf(HasSubstr("list.chk: is the list of 2 other shards (part_00000_of_00007"),
                    HasSubstr("none of these 3 (part_0 "), HasSubstr("--shards 2")));
  EXPECT_FALSE(fs::exists(options_.output_dir));
}

TEST_F(Convert, TheSourceItselfIsNoOutput) {
  write_source(kVariable);
  options_.output_dir = options_.source.path;
  EXPECT_THAT(refusal(ExitCode::kUsage),
              HasSubstr("is the input itself; choose another output folder"));
}

TEST_F(Convert, FilesThatWouldShareANameAreRefused) {
  write_source(kVariable);
  fs::rename(from("part_1.hdf5"), from("part_0.hdf"));
  EXPECT_THAT(refusal(), HasSubstr("another file would also be written as part_0.hdf5"));
}

TEST_F(Convert, TheOutcomeIsComparedWithAPublishedList) {
  write_source(kVariable);
  options_.checksum_list = folder_.path("list.chk");
  write_bytes(options_.checksum_list,
              concat("part_0.hdf5\t", md5_of_lists(part(0, 1100)), "\npart_1.hdf5\t",
                     md5_of_lists({}), "\npart_2.hdf5\t", std::string(32, '0'), "\n"));
  const ConvertResult result = convert_data(options_, {});
  ASSERT_EQ(result.checksum_differences.size(), 1u);
  EXPECT_THAT(result.checksum_differences[0].text(),
              AllOf(HasSubstr("part_2.hdf5: checksum of the token ids is "),
                    HasSubstr(md5_of_lists(part(1100, 2500)))));
  options_.checksum_list = to("checksums.chk");
  EXPECT_TRUE(convert_data(options_, {}).checksum_differences.empty());
}

}  // namespace
}  // namespace bertha
