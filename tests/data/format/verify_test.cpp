#include "data/format/verify.h"

#include <gtest/gtest.h>

#include "data/format/manifest.h"
#include "data/format/stats.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"
#include "tests/data/format/raw_shard.h"
#include "tests/support/source_dir.h"

namespace bertha {
namespace {

/// A prepared folder: three shards of different sizes and layouts, and their manifest.
class Verify : public testing::Test {
 protected:
  Verify() {
    add("part_0.hdf5", ShardLayout::kVariableLength, example_samples(33, 1));
    add("part_1.hdf5", ShardLayout::kVariableLength, example_samples(7, 2));
    add("part_2.hdf5", ShardLayout::kFixedLength, example_samples(11, 3));
    update_manifest();
  }

  void add(const std::string& name, ShardLayout layout, const SampleSet& samples) {
    write_shard(folder_.path(name), layout, samples);
  }

  /// Describes the folder as it is now.
  void update_manifest() {
    const DataStats stats = stats_of_data(folder_.path(), {});
    manifest_ = Manifest();
    manifest_.counts["samples"] = stats.num_samples;
    manifest_.token_length_histogram = stats.token_length_histogram;
    manifest_.token_length_histogram.resize(513);  // as prepare writes it: up to the limit
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (entry.path().extension() != ".hdf5") continue;
      manifest_.shards.push_back(describe_shard(entry.path(), {}).shard);
    }
    write_manifest(folder_.path(kManifestName), manifest_);
  }

  /// Writes part_1 anew with some of its numbers changed, and no manifest to tell.
  template <class Change>
  void change_part_1(const Change& change) {
    auto shard = raw_shard(example_samples(7, 2), ShardLayout::kVariableLength);
    change(shard);
    write_raw_shard(folder_.path("part_1.hdf5"), shard);
    std::filesystem::remove(folder_.path(kManifestName));
  }

  std::vector<std::string> findings(const VerifyOptions& options = {}) const {
    std::vector<std::string> texts;
    for (const Finding& finding : verify_data(folder_.path(), options).findings) {
      texts.push_back(finding.text());
    }
    return texts;
  }

  TempFolder folder_;
  Manifest manifest_;
};

TEST_F(Verify, AnUntouchedFolderHasNoFindings) {
  std::vector<int64_t> progress;
  const VerifyReport report =
      verify_data(folder_.path(), {}, [&](int64_t done, int64_t) { progress.push_back(done); });
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(report.has_manifest);
  EXPECT_EQ(report.num_shards, 3);
  EXPECT_EQ(report.num_samples, 51);
  EXPECT_EQ(report.num_bytes,
            manifest_.shards[0].bytes + manifest_.shards[1].bytes + manifest_.shards[2].bytes);
  EXPECT_THAT(progress, ElementsAre(1, 2, 3));
}

TEST_F(Verify, WithoutAManifestTheSamplesAreStillChecked) {
  std::filesystem::remove(folder_.path(kManifestName));
  const VerifyReport report = verify_data(folder_.path());
  EXPECT_TRUE(report.ok());
  EXPECT_FALSE(report.has_manifest);
  EXPECT_THAT(findings({.limits = SampleLimits{.vocab_size = 110}}),
              testing::SizeIs(testing::Ge(51u)));
}

TEST_F(Verify, OneShardIsComparedWithItsOwnEntryOnly) {
  EXPECT_TRUE(verify_data(folder_.path("part_1.hdf5")).ok());
  std::filesystem::remove(folder_.path("part_0.hdf5"));
  EXPECT_TRUE(verify_data(folder_.path("part_1.hdf5")).ok());
  add("part_1.hdf5", ShardLayout::kVariableLength, example_samples(8, 2));
  EXPECT_FALSE(verify_data(folder_.path("part_1.hdf5")).ok());
}

TEST_F(Verify, MissingAndExtraShardsAreFindings) {
  std::filesystem::rename(folder_.path("part_1.hdf5"), folder_.path("part_9.hdf5"));
  EXPECT_THAT(findings(), ElementsAre("part_9.hdf5: not in the manifest",
                                      "part_1.hdf5: missing, but in the manifest"));
}

TEST_F(Verify, AShardOfAnotherHashIsNamedAndNotRead) {
  add("part_1.hdf5", ShardLayout::kVariableLength, example_samples(1100, 77));
  const auto found = findings();
  EXPECT_THAT(found, ElementsAre(StartsWith("part_1.hdf5: size in bytes is "),
                                 StartsWith("part_1.hdf5: XXH3 of the file is "),
                                 "manifest.json: counts.samples is 51, but the shards contain 44",
                                 StartsWith("manifest.json: token_length_histogram[")));
}

TEST_F(Verify, TheSameTokensInTwoShardsAreAFindingInAnyLayout) {
  add("part_3.hdf5", ShardLayout::kFixedLength, example_samples(7, 2));
  update_manifest();
  EXPECT_THAT(findings(), ElementsAre("part_3.hdf5: contains the same token ids as part_1.hdf5"));
}

TEST_F(Verify, EveryFlippedBitOfAListedShardIsFound) {
  const std::string path = folder_.path("part_1.hdf5");
  const std::string good = bytes_of(path);
  std::mt19937_64 random(5);
  for (int round = 0; round < 100; ++round) {
    std::string bad = good;
    const size_t at = random() % bad.size();
    bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
    write_bytes(path, bad);
    const VerifyReport report = verify_data(path);
    ASSERT_FALSE(report.ok()) << "byte " << at;
    EXPECT_THAT(report.findings[0].text(), StartsWith("part_1.hdf5: XXH3 of the file is "));
  }
}

TEST_F(Verify, UnreadableShardsDoNotHideTheOthers) {
  write_bytes(folder_.path("part_0.hdf5"), "");
  write_bytes(folder_.path("part_2.hdf5"), bytes_of(folder_.path("part_2.hdf5")).substr(0, 5000));
  std::filesystem::remove(folder_.path(kManifestName));
  const auto found = findings();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0], HasSubstr("empty file"));
  EXPECT_THAT(found[1], HasSubstr("not a readable HDF5 file"));
}

TEST_F(Verify, ShardsThatEndOrStopTheHdf5LibraryAreNamed) {
  // Found by tests/fuzz/; other versions of the library may refuse them instead.
  std::filesystem::remove(folder_.path(kManifestName));
  const std::filesystem::path corpus(std::string(kSourceDir) + "/tests/fuzz/corpus/foreign_shard");
  std::vector<testing::Matcher<std::string>> wanted;
  for (const char* name : {"bent_local_heap", "chunk_without_rows", "loop_in_virtual_layout"}) {
    const std::string shard = concat("part_", 3 + wanted.size(), ".hdf5");
    std::filesystem::copy_file(corpus / name, folder_.path(shard));
    wanted.push_back(StartsWith(shard + ": "));
  }
  EXPECT_THAT(findings(), ElementsAreArray(wanted));
}

TEST_F(Verify, AllWrongValuesOfAShardAreListedNotOnlyTheFirst) {
  change_part_1([](auto& shard) {
    dataset_of(shard, "input_ids").values[0][1] = 31000;
    dataset_of(shard, "input_ids").values[5][1] = -2;
    dataset_of(shard, "next_sentence_labels").values[2] = {3};
    dataset_of(shard, "segment_ids").values[6].pop_back();
  });
  EXPECT_THAT(findings(), UnorderedElementsAre(
                              StartsWith("part_1.hdf5, row 0, input_ids: element 1 is id 31000"),
                              StartsWith("part_1.hdf5, row 5, input_ids: element 1 is id -2"),
                              StartsWith("part_1.hdf5, row 2, next_sentence_labels: label 3"),
                              StartsWith("part_1.hdf5, row 6, segment_ids: "),
                              // The element that is missing counts as a zero after ones.
                              StartsWith("part_1.hdf5, row 6, segment_ids: element ")));
}

TEST_F(Verify, WhatTheGeneratorNeverDoesIsAFinding) {
  // Row 0 is the shortest: 5 tokens, [CLS] and [SEP] at both ends.
  change_part_1([](auto& shard) { dataset_of(shard, "input_ids").values[0][0] = 2000; });
  EXPECT_THAT(findings(),
              ElementsAre("part_1.hdf5, row 0, input_ids: starts with id 2000, want [CLS] 101"));
  change_part_1([](auto& shard) { dataset_of(shard, "input_ids").values[0][4] = 2000; });
  EXPECT_THAT(findings(),
              ElementsAre("part_1.hdf5, row 0, input_ids: element 4 ends a segment with "
                          "id 2000, want [SEP] 102"));
  change_part_1([](auto& shard) { dataset_of(shard, "masked_lm_positions").values[0] = {4}; });
  EXPECT_THAT(findings(),
              ElementsAre(StartsWith("part_1.hdf5, row 0, masked_lm_positions: position "
                                     "4 is [SEP]")));
  change_part_1([](auto& shard) { dataset_of(shard, "masked_lm_ids").values[0] = {102}; });
  EXPECT_THAT(findings(),
              ElementsAre(StartsWith("part_1.hdf5, row 0, masked_lm_ids: label 102 is [CLS] or")));
  change_part_1([](auto& shard) {
    dataset_of(shard, "masked_lm_ids").values[0].clear();
    dataset_of(shard, "masked_lm_positions").values[0].clear();
  });
  EXPECT_THAT(findings(),
              ElementsAre("part_1.hdf5, row 0, masked_lm_positions: no masked position"));
}

TEST_F(Verify, FindingsBeyondTheMostAreCounted) {
  std::filesystem::remove(folder_.path("part_1.hdf5"));
  std::filesystem::remove(folder_.path("part_2.hdf5"));
  std::filesystem::remove(folder_.path(kManifestName));
  const VerifyOptions options{.limits = SampleLimits{.max_seq_tokens = 4},
                              .max_findings_per_shard = 5};
  const auto found = findings(options);
  ASSERT_EQ(found.size(), 6u);
  EXPECT_EQ(found[0],
            "part_0.hdf5, row 0, input_ids: 5 tokens, want 1 to 4 (check whether the data was "
            "prepared for longer sequences)");
  EXPECT_EQ(found[5], "part_0.hdf5: 28 more findings, not listed");
}

TEST_F(Verify, AWrongHistogramIsNamedWithItsEntry) {
  manifest_.token_length_histogram[5] += 1;
  write_manifest(folder_.path(kManifestName), manifest_);
  EXPECT_THAT(findings(), ElementsAre(StartsWith("manifest.json: token_length_histogram[5] is ")));
}

TEST_F(Verify, NothingToCheckIsADataError) {
  EXPECT_THAT(error_of([] { verify_data("/nowhere/at/all"); }), HasSubstr("/nowhere/at/all"));
  write_bytes(folder_.path(kManifestName), "{");
  EXPECT_THAT(error_of([&] { verify_data(folder_.path()); }), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace bertha
