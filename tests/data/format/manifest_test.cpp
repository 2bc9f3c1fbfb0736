#include "data/format/manifest.h"

#include <gtest/gtest.h>

#include "data/files/hashing.h"
#include "data/format/checksum_list.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

Manifest example_manifest() {
  Manifest manifest;
  manifest.tool_version = "0.1.0";
  manifest.unicode_version = "15.0.0";
  manifest.seed = UINT64_MAX;
  manifest.limits = {.max_seq_tokens = 128, .max_masked_per_seq = 20, .vocab_size = 8000};
  manifest.special_ids = {.pad = 0, .unknown = 4, .classify = 5, .separator = 6, .mask = 7};
  manifest.options = {{"duplications", "10"}, {"short_seq_prob", "0.1"}};
  manifest.counts = {{"documents", 12}, {"samples", 42}};
  manifest.sources = {{.path = "a \"quoted\" n\u00e4me.txt",
                       .bytes = int64_t{1} << 40,
                       .sha256 = std::string(64, 'a')}};
  manifest.token_length_histogram = {0, 0, 0, 40, 2};
  manifest.shards = {{.name = "part_0.hdf5",
                      .samples = 40,
                      .bytes = 4096,
                      .xxh3 = std::string(32, '1'),
                      .md5_of_lists = std::string(32, 'f')},
                     {.name = "part_1.hdf5",
                      .samples = 2,
                      .bytes = 100,
                      .xxh3 = std::string(32, '2'),
                      .md5_of_lists = std::string(32, 'e')}};
  return manifest;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  BERTHA_CHECK(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}

TEST(Manifest, ReadsBackEveryField) {
  const TempFolder folder;
  const std::string path = folder.path("manifest.json");
  const Manifest want = example_manifest();
  write_manifest(path, want);
  const Manifest found = read_manifest(path);
  EXPECT_EQ(found.tool_version, want.tool_version);
  EXPECT_EQ(found.unicode_version, want.unicode_version);
  EXPECT_EQ(found.seed, want.seed);
  EXPECT_EQ(found.limits.max_seq_tokens, 128);
  EXPECT_EQ(found.limits.max_masked_per_seq, 20);
  EXPECT_EQ(found.limits.vocab_size, 8000);
  EXPECT_EQ(found.special_ids, want.special_ids);
  EXPECT_EQ(found.options, want.options);
  EXPECT_EQ(found.counts, want.counts);
  ASSERT_EQ(found.sources.size(), 1u);
  EXPECT_EQ(found.sources[0].path, want.sources[0].path);
  EXPECT_EQ(found.sources[0].bytes, want.sources[0].bytes);
  EXPECT_EQ(found.sources[0].sha256, want.sources[0].sha256);
  EXPECT_EQ(found.token_length_histogram, want.token_length_histogram);
  ASSERT_EQ(found.shards.size(), 2u);
  EXPECT_EQ(found.shards[1].name, "part_1.hdf5");
  EXPECT_EQ(found.shards[1].samples, 2);
  EXPECT_EQ(found.shards[1].bytes, 100);
  EXPECT_EQ(found.shards[1].xxh3, want.shards[1].xxh3);
  EXPECT_EQ(found.shards[1].md5_of_lists, want.shards[1].md5_of_lists);
  EXPECT_EQ(found.num_samples(), 42);
}

TEST(Manifest, EveryComplaintNamesTheFileAndTheField) {
  const TempFolder folder;
  const std::string path = folder.path("manifest.json");
  write_manifest(path, example_manifest());
  const std::string good = bytes_of(path);
  const struct {
    const char* from;
    const char* to;
    const char* complaint;
  } cases[] = {
      {"\"mask\": 7", "\"mask\": 8000", "field special_ids.mask is 8000, want a whole number"},
      {"\"samples\": 40", "\"samples\": -40",
       "field shards[0].samples is -40, want a whole number from 0 to"},
      {"\"samples\": 40", "\"samples\": 4.5",
       "field shards[0].samples is 4.5, want a whole number from 0 to"},
      {"\"samples\": 40", "\"sample\": 40", "field shards[0].samples is missing"},
      {"\"seed\": 18446744073709551615", "\"seed\": \"x\"",
       "field seed is \"x\", want an unsigned integer"},
      {"\"format_version\": 1", "\"format_version\": 2", "field format_version is 2, want 1"},
      {"22222222222222222222222222222222", "2222",
       "field shards[1].xxh3 is \"2222\", want 32 hex digits"},
      {"\"vocab_size\": 8000", "\"vocab_size\": null",
       "field limits.vocab_size is null, want a whole number from 1 to"},
      {"\"documents\": 12", "\"documents\": []", "field counts.documents is [], want a count"},
      {"\"max_seq_tokens\": 128", "\"max_seq_tokens\": 1000000000000",
       "field limits.max_seq_tokens is 1000000000000, want a whole number from 1 to 32767"},
      {"\"max_masked_per_seq\": 20", "\"max_masked_per_seq\": 1000000",
       "field limits.max_masked_per_seq is 1000000, want a whole number from 0 to 32767"},
      {"\"vocab_size\": 8000", "\"vocab_size\": 1000001",
       "field limits.vocab_size is 1000001, want a whole number from 1 to 1000000"},
      {"\"samples\": 40", "\"samples\": 9000000000000000000",
       "field shards[0].samples is 9000000000000000000, want a whole number from 0 to "},
      {"\"0.1.0\"", "1", "field tool_version is 1, want a string"},
  };
  for (const auto& one : cases) {
    write_bytes(path, replaced(good, one.from, one.to));
    EXPECT_THAT(error_of([&] { read_manifest(path); }),
                AllOf(HasSubstr(path), HasSubstr(one.complaint)));
  }
}

TEST(Manifest, WhatIsNoJsonObjectIsADataError) {
  const TempFolder folder;
  const std::string path = folder.path("manifest.json");
  const auto refusal = [&] { return error_of([&] { read_manifest(path); }); };
  EXPECT_THAT(refusal(), HasSubstr(path + ": cannot open"));
  for (const char* text : {"", "[1, 2", "{\"seed\": 1e999}"}) {
    write_bytes(path, text);
    EXPECT_THAT(refusal(), HasSubstr("not valid JSON")) << text;
  }
  write_bytes(path, "[1, 2]");
  EXPECT_THAT(refusal(), HasSubstr("want an object"));
  write_bytes(path, "{}");
  EXPECT_THAT(refusal(), HasSubstr("format_version is missing"));
}

TEST(Manifest, TheEntryOfAShardTellsItsFileAndItsSamples) {
  const TempFolder folder;
  const std::string path = folder.path("part_7.hdf5");
  const SampleSet samples = example_samples(33, 9);
  write_shard(path, ShardLayout::kVariableLength, samples);
  const ManifestShard entry = describe_shard(path, {}).shard;
  EXPECT_EQ(entry.name, "part_7.hdf5");
  EXPECT_EQ(entry.samples, 33);
  EXPECT_EQ(entry.bytes, static_cast<int64_t>(bytes_of(path).size()));
  EXPECT_EQ(entry.xxh3, xxh3_of_file(path));
  EXPECT_EQ(entry.md5_of_lists, md5_of_lists(samples));
}

}  // namespace
}  // namespace bertha
