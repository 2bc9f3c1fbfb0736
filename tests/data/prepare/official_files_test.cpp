// Files that the official scripts wrote from the golden text, beside the samples that the generator
// makes of it: tests/golden/make_official_fixtures.py.

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "data/convert/sequence_files.h"
#include "data/format/shard_reader.h"
#include "data/format/verify.h"
#include "data/prepare/pairs_and_masks.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/prepare/golden_samples.h"
#include "tests/data/same_samples.h"
#include "tests/support/files.h"

namespace bertha {
namespace {

constexpr SampleLimits kLimits{.max_seq_tokens = 64, .max_masked_per_seq = 10, .vocab_size = 344};

std::string official(const std::string& name) { return golden_path("../official/" + name); }

/// The samples in the order of the official file, made here.
const SampleSet& generated() {
  static const SampleSet kSamples = [] {
    const Vocabulary vocabulary = Vocabulary::load(golden_path("vocab.txt"));
    WordPieceTokenizer tokenizer(vocabulary);
    const Documents documents =
        read_documents(golden_path("many_documents.txt"), tokenizer, [](int64_t) {});
    const GeneratedSamples found = generate_samples(
        documents, vocabulary, {.duplication = 1, .max_seq_tokens = 64, .max_masked_per_seq = 10});
    SampleSet samples;
    for (int64_t i = 0; i < found.size(); ++i) samples.append(found.at(i));
    return samples;
  }();
  return kSamples;
}

SampleSet picked(const std::vector<int64_t>& places) {
  SampleSet samples;
  for (const int64_t place : places) samples.append(generated()[place]);
  return samples;
}

SampleSet read_all(const std::string& path) {
  const SequenceFiles files = inspect_sequence_files({path}, 0, 1, {});
  SampleSet samples;
  read_sequences(files, 0, files.num_seqs, kLimits,
                 [&](const SampleView& sample) { samples.append(sample); });
  return samples;
}

const std::vector<std::string> kParts{"part_00000_of_00003", "part_00001_of_00003",
                                      "part_00002_of_00003"};

SampleSet read_parts(const std::string& folder, const std::string& suffix) {
  SampleSet samples;
  for (const std::string& part : kParts) {
    const SampleSet found = read_all(official(folder + "/" + part + suffix));
    for (int64_t i = 0; i < found.size(); ++i) samples.append(found[i]);
  }
  return samples;
}

/// The pairs of integers of a list that the scripts wrote as JSON.
std::vector<std::pair<int64_t, int64_t>> pairs_of(const std::string& path) {
  std::string text = bytes_of(path);
  for (char& letter : text) letter = (letter >= '0' && letter <= '9') ? letter : ' ';
  const std::vector<int64_t> numbers = integers(text);
  BERTHA_CHECK(!numbers.empty() && numbers.size() % 2 == 0, path);
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (size_t i = 0; i < numbers.size(); i += 2) pairs.emplace_back(numbers[i], numbers[i + 1]);
  return pairs;
}

TEST(OfficialFiles, TheReferencesTfRecordsHoldTheSamplesThatAreGeneratedHere) {
  ASSERT_GT(generated().size(), 50);
  expect_same_contents(read_all(official("reference.tfrecord")), generated());
}

/// The integers of version 0.7 have 32 bits; chop_hdf5_files.py of later versions makes 16 of them.
/// Its script never fills segment_ids.
TEST(OfficialFiles, TheFirstHdf5FilesOfNvidiaAreReadAndTheirSegmentsAreAFinding) {
  const std::string path = official("nvidia_v0.7.hdf5");
  const SampleSet found = read_all(path);
  EXPECT_EQ(found.token_ids, generated().token_ids);
  EXPECT_EQ(found.masked_positions, generated().masked_positions);
  EXPECT_EQ(found.masked_ids, generated().masked_ids);
  EXPECT_EQ(std::ranges::max(found.segment_ids), 0);
  const VerifyReport report = verify_data(path, {.limits = kLimits});
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(report.findings.front().what, HasSubstr("inside a segment"));
}

/// chop_hdf5_files.py writes a shard when the next sample comes, so that the last are left out.
TEST(OfficialFiles, FixedAndVariableShardsHoldTheSamplesInOrder) {
  const SampleSet fixed = read_parts("fixed", ".hdf5");
  ASSERT_GT(fixed.size(), generated().size() - static_cast<int64_t>(kParts.size()) - 1);
  std::vector<int64_t> places(static_cast<size_t>(fixed.size()));
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i);
  expect_same_contents(fixed, picked(places));
  expect_same_contents(read_parts("variable", ".hdf5"), fixed);
}

TEST(OfficialFiles, TheEvaluationShardHoldsSamplesInEvenSteps) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < 20; ++i) places.push_back(i * generated().size() / 20);
  expect_same_contents(read_all(official("eval/part_eval_10k.hdf5")), picked(places));
}

TEST(OfficialFiles, PackedShardsHoldThePacksOfTheirLists) {
  std::map<int64_t, std::vector<int64_t>> places_by_length;
  for (int64_t i = 0; i < generated().size(); ++i) {
    places_by_length[std::ssize(generated()[i].token_ids)].push_back(i);
  }
  int64_t sequences = 0;
  int64_t rows = 0;
  for (const int shard : {0, 1}) {
    const std::string path = official(concat("packed/output_0000", shard));
    std::vector<int64_t> places;
    for (const auto& [length, row] :
         pairs_of(official(concat("packed/shard_list_0000", shard, ".lst")))) {
      places.push_back(places_by_length.at(length).at(static_cast<size_t>(row)));
    }
    expect_same_contents(read_all(path), picked(places));
    const ShardInfo info = inspect_shard(path);
    EXPECT_EQ(info.layout, ShardLayout::kPacked);
    sequences += info.num_samples;
    rows += info.num_rows;
  }
  EXPECT_EQ(sequences, generated().size());
  EXPECT_LT(rows, sequences);
}

/// h5py takes the script's compression=False for gzip of level 0.
TEST(OfficialFiles, ShuffledShardsHoldTheSamplesOfTheirLists) {
  std::vector<int64_t> first_of_shard;
  int64_t shard_end = 0;
  for (const std::string& part : kParts) {
    first_of_shard.push_back(shard_end);
    shard_end += read_all(official("fixed/" + part + ".hdf5")).size();
  }
  for (size_t shard = 0; shard < kParts.size(); ++shard) {
    std::vector<int64_t> places;
    for (const auto& [from, row] :
         pairs_of(official(concat("shuffled/shard_list_0000", shard, ".lst")))) {
      places.push_back(first_of_shard.at(static_cast<size_t>(from)) + row);
    }
    expect_same_contents(read_all(official("shuffled/" + kParts[shard] + ".hdf")), picked(places));
  }
}

}  // namespace
}  // namespace bertha
