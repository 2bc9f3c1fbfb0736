#include <gtest/gtest.h>

#include <cstring>

#include "data/convert/sequence_files.h"
#include "data/convert/tfrecord_file.h"
#include "data/format/shard_reader.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/convert/example_records.h"
#include "tests/data/example_data.h"
#include "tests/data/same_samples.h"
#include "tests/support/source_dir.h"

namespace bertha {
namespace {

SampleSet read_all(const std::string& path, const SampleLimits& limits = {}) {
  const SequenceFiles files = inspect_sequence_files({path}, 0, 1, {});
  SampleSet samples;
  read_sequences(files, 0, files.num_seqs, limits,
                 [&](const SampleView& sample) { samples.append(sample); });
  return samples;
}

std::string complaint(const std::string& path, const SampleLimits& limits = {}) {
  const std::string text = error_of([&] { read_all(path, limits); });
  EXPECT_THAT(text, HasSubstr(path));
  return text;
}

TEST(TfRecord, ChecksumsAreThoseOfThePublishedVectors) {
  // RFC 3720, B.4: 32 bytes of zeros, and of ones; rotated and offset as TensorFlow does.
  const auto masked = [](uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; };
  const std::vector<std::byte> zeros(32), ones(32, std::byte{0xff});
  EXPECT_EQ(masked_crc32c(zeros), masked(0x8a9136aau));
  EXPECT_EQ(masked_crc32c(ones), masked(0x62a8ab43u));
}

TEST(TfRecord, AFileOfTensorFlowReadsAsTheRowsThatWentIn) {
  const std::string golden = concat(kSourceDir, "/tests/golden/");
  const SampleSet found = read_all(golden + "tensorflow.tfrecord");
  ASSERT_EQ(found.size(), 6);
  expect_same_contents(found, read_shard(golden + "h5py_varlen.hdf5", 0, {}));
}

TEST(TfRecord, OurEncoderMakesTheBytesOfTensorFlow) {
  // So that the damaged files below are of the kind that TensorFlow would write.
  const std::string golden = concat(kSourceDir, "/tests/golden/");
  const SampleSet rows = read_shard(golden + "h5py_varlen.hdf5", 0, {});
  const TempFolder folder;
  write_records(folder.path("a.tfrecord"), rows);
  expect_same_contents(read_all(folder.path("a.tfrecord")), rows);
}

TEST(TfRecord, AnyPartOfAFileIsReadAlone) {
  const TempFolder folder;
  const SampleLimits limits{.max_seq_tokens = 16, .max_masked_per_seq = 3, .vocab_size = 500};
  const SampleSet samples = example_samples(2500, 3, limits);
  write_records(folder.path("a.tfrecord"), samples, limits);
  const SequenceFiles files = inspect_sequence_files({folder.path("a.tfrecord")}, 0, 1, {});
  EXPECT_EQ(files.num_seqs, 2500);
  for (const auto& [first, count] : {std::pair{0, 1}, {1023, 2}, {1024, 1}, {2047, 453}, {7, 0}}) {
    int64_t next = first;
    read_sequences(files, first, count, limits, [&](const SampleView& sample) {
      EXPECT_EQ(sample.id, next);
      const SampleView want = samples[next++];
      EXPECT_TRUE(std::equal(sample.token_ids.begin(), sample.token_ids.end(),
                             want.token_ids.begin(), want.token_ids.end()));
    });
    EXPECT_EQ(next, first + count);
  }
}

class BadRecords : public testing::Test {
 protected:
  /// Six records, with `change` at the bytes.
  template <class Change>
  std::string after(const Change& change) {
    std::string bytes = records_of(example_samples(6, 4));
    change(bytes);
    write_bytes(path_, bytes);
    return complaint(path_);
  }
  TempFolder folder_;
  std::string path_ = folder_.path("part-00000-of-00001");
};

TEST_F(BadRecords, AWrongChecksumIsNamedWithItsRecord) {
  EXPECT_THAT(after([](std::string& bytes) { bytes[12 + 100] ^= 1; }),
              HasSubstr("record 0 at byte 0: the checksum of its contents is wrong"));
  const char* no_start =
      "is not a TFRecord file, or is damaged: the checksum of its first length is";
  EXPECT_THAT(after([](std::string& bytes) { bytes[0] ^= 1; }), HasSubstr(no_start));
  EXPECT_THAT(after([](std::string& bytes) { bytes[9] ^= 1; }), HasSubstr(no_start));
  const size_t second = record(example_of(features_of(example_samples(6, 4)[0], {}))).size();
  for (const size_t at : {second, second + 9}) {
    EXPECT_THAT(after([at](std::string& bytes) { bytes[at] ^= 1; }),
                HasSubstr(concat("record 1 at byte ", second,
                                 ": the checksum of its length is wrong; the file is damaged")));
  }
  EXPECT_THAT(after([](std::string& bytes) { bytes.back() ^= 1; }), HasSubstr("record 5 at byte "));
}

TEST_F(BadRecords, ACutFileIsNamedWithTheRecordThatIsMissingBytes) {
  EXPECT_THAT(after([](std::string& bytes) { bytes.pop_back(); }),
              AllOf(HasSubstr("record 5 at byte "), HasSubstr("but the file ends at ")));
  EXPECT_THAT(after([](std::string& bytes) { bytes.resize(5); }),
              HasSubstr("record 0 at byte 0: needs the bytes up to 12, but the file ends at 5"));
  EXPECT_THAT(after([](std::string& bytes) { bytes.clear(); }), HasSubstr("contains no sequence"));
}

TEST_F(BadRecords, FilesOfAnotherKindAreNamed) {
  EXPECT_THAT(after([](std::string& bytes) { bytes = std::string(500, 'x'); }),
              HasSubstr("is not a TFRecord file, or is damaged"));
  EXPECT_THAT(after([](std::string& bytes) { bytes = "\x1f\x8b" + std::string(50, '\1'); }),
              HasSubstr("is compressed with gzip; decompress it first"));
}

TEST_F(BadRecords, AnyFlippedBitIsFound) {
  const std::string good = records_of(example_samples(3, 4));
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string bad = good;
    bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    write_bytes(path_, bad);
    EXPECT_NE(complaint(path_), "no error");
  }
}

TEST_F(BadRecords, AWrongFeatureIsNamed) {
  const auto with = [&](const std::function<void(ExampleFeatures&)>& change) {
    ExampleFeatures features = features_of(example_samples(2, 4)[1], {});  // 512 tokens
    change(features);
    write_bytes(path_, record(example_of(features_of(example_samples(2, 4)[0], {}))) +
                           record(example_of(features)));
    return complaint(path_);
  };
  const auto of = [](ExampleFeatures & f, const char* name) -> auto& {
    return f.integers.at(name);
  };
  EXPECT_THAT(
      with([&](auto& f) { of(f, "input_ids").pop_back(); }),
      HasSubstr("record 1: feature input_ids has 511 integers, want 512; give the lengths"));
  EXPECT_THAT(with([&](auto& f) { of(f, "masked_lm_ids").push_back(0); }),
              HasSubstr("feature masked_lm_ids has 77 integers, want 76"));
  EXPECT_THAT(with([&](auto& f) { f.weights.clear(); }),
              HasSubstr("feature masked_lm_weights has 0 floats, want 76"));
  EXPECT_THAT(with([&](auto& f) { f.integers.erase("segment_ids"); }),
              HasSubstr("record 1: no feature segment_ids"));
  EXPECT_THAT(with([&](auto& f) { of(f, "input_ids")[3] = int64_t{1} << 31; }),
              HasSubstr("feature input_ids, element 3 is 2147483648, want 0 to 2147483647"));
  EXPECT_THAT(with([&](auto& f) { of(f, "input_ids")[3] = -1; }),
              HasSubstr("feature input_ids, element 3 is -1"));
  EXPECT_THAT(with([&](auto& f) { of(f, "input_ids")[3] = 30'522; }),
              HasSubstr("record 1: feature input_ids, element 3 is id 30522, want 0 to 30521"));
  EXPECT_THAT(with([&](auto& f) { of(f, "input_mask")[0] = 2; }),
              HasSubstr("feature input_mask, element 0 is 2, want 0 or 1"));
  EXPECT_THAT(with([&](auto& f) { of(f, "input_mask")[4] = 0; }),
              HasSubstr("feature input_mask, element 5 is 1 after a zero"));
  EXPECT_THAT(with([&](auto& f) { f.weights[0] = 0.5f; }),
              HasSubstr("feature masked_lm_weights, element 0 is 0.5, want 1 because there are"));
  EXPECT_THAT(with([&](auto& f) { of(f, "next_sentence_labels")[0] = 2; }),
              HasSubstr("feature next_sentence_labels, label 2, want 0 or 1"));
}

TEST_F(BadRecords, ARecordThatIsNoExampleIsNamed) {
  const auto with = [&](const std::string& bytes) {
    write_bytes(path_, record(bytes));
    return complaint(path_);
  };
  EXPECT_THAT(with(""), HasSubstr("record 0: no feature input_ids"));
  // A field longer than the record, one of an unknown type, a number that does not end, and a cut.
  for (const std::string& bytes : {std::string("\x0a\x7f"), std::string("\x0b"),
                                   std::string(12, '\xff'), std::string("\x0d")}) {
    EXPECT_THAT(with(bytes), HasSubstr("record 0: not a tf.train.Example: a field is truncated"));
  }
  // A length whose checksum is right is not believed either.
  std::string huge(12, '\0');
  const int64_t length = int64_t{1} << 60;
  std::memcpy(huge.data(), &length, 8);
  const uint32_t crc = masked_crc32c(std::as_bytes(std::span(huge)).first(8));
  std::memcpy(huge.data() + 8, &crc, 4);
  write_bytes(path_, huge);
  EXPECT_THAT(complaint(path_), HasSubstr("bytes, want at most 67108864"));
}

}  // namespace
}  // namespace bertha
