#include "harness/report/tfevents.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "data/files/hashing.h"
#include "data/files/text_file.h"
#include "harness/report/system_facts.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/report/fixtures.h"

namespace bertha {
namespace {

// --- an independent reader: protobuf wire format, TFRecord frames ----------------------------------

template <class T>
T value_at(const std::string& bytes, size_t at) {
  T value{};
  if (at + sizeof(T) > bytes.size()) {
    ADD_FAILURE() << "cut short";
    return value;
  }
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

struct Field {
  uint64_t wire = 0;
  uint64_t varint = 0;
  std::string bytes = {};
};

uint64_t read_varint(const std::string& bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; at < bytes.size(); shift += 7) {
    const uint64_t byte = static_cast<unsigned char>(bytes[at++]);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  ADD_FAILURE() << "varint cut short";
  return 0;
}

std::multimap<uint64_t, Field> parse_message(const std::string& bytes) {
  std::multimap<uint64_t, Field> fields;
  for (size_t at = 0; at < bytes.size();) {
    const uint64_t tag = read_varint(bytes, at);
    Field field{.wire = tag & 7};
    if (field.wire == 0) {
      field.varint = read_varint(bytes, at);
    } else {
      const size_t length = field.wire == 1   ? 8
                            : field.wire == 5 ? 4
                                              : static_cast<size_t>(read_varint(bytes, at));
      field.bytes = bytes.substr(at, length);
      EXPECT_EQ(field.bytes.size(), length);
      at += length;
    }
    fields.emplace(tag >> 3, field);
  }
  return fields;
}

std::vector<std::string> read_frames(const std::string& path) {
  const std::string file = read_text_file(path);
  std::vector<std::string> frames;
  for (size_t at = 0; at < file.size();) {
    const uint64_t length = value_at<uint64_t>(file, at);
    const auto masked = [](const std::string& bytes) { return masked_crc32c(crc32c(bytes)); };
    EXPECT_EQ(value_at<uint32_t>(file, at + 8), masked(file.substr(at, 8)));
    frames.push_back(file.substr(at + 12, length));
    EXPECT_EQ(value_at<uint32_t>(file, at + 12 + length), masked(frames.back()));
    at += 16 + length;
  }
  return frames;
}

// --------------------------------------------------------------------------------------------------

TEST(TensorBoardFile, BeginsWithTheFormatVersion) {
  const TempFolder folder;
  const TensorBoardFile file(folder.path());
  const std::vector<std::string> frames = read_frames(file.path());
  ASSERT_EQ(frames.size(), 1u);
  const auto event = parse_message(frames[0]);
  EXPECT_EQ(event.find(3)->second.bytes, "brain.Event:2");
  const double wall_time = value_at<double>(event.find(1)->second.bytes, 0);
  EXPECT_NEAR(wall_time, static_cast<double>(now_ms()) / 1000.0, 60.0);
}

TEST(TensorBoardFile, ScalarsComeBackFromAnIndependentReader) {
  const TempFolder folder;
  TensorBoardFile file(folder.path());
  const std::vector<int64_t> steps = {0, 1, 127, 128, 300, 1'000'000'000'000};
  for (const int64_t step : steps) {
    file.scalars(
        step, {{"train/loss", -2.5 + static_cast<double>(step)}, {std::string(200, 't'), 0.125}});
  }
  const std::vector<std::string> frames = read_frames(file.path());
  ASSERT_EQ(frames.size(), steps.size() + 1);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto event = parse_message(frames[i + 1]);
    const auto step = event.find(2);  // zeros are not written
    EXPECT_EQ(step == event.end() ? 0 : step->second.varint, static_cast<uint64_t>(steps[i]));
    const auto summary = parse_message(event.find(5)->second.bytes);
    ASSERT_EQ(summary.count(1), 2u);
    const auto first = parse_message(summary.find(1)->second.bytes);
    EXPECT_EQ(first.find(1)->second.bytes, "train/loss");
    EXPECT_EQ(value_at<float>(first.find(2)->second.bytes, 0),
              static_cast<float>(-2.5 + static_cast<double>(steps[i])));
    const auto second = parse_message(std::next(summary.find(1))->second.bytes);
    EXPECT_EQ(second.find(1)->second.bytes, std::string(200, 't'));
    EXPECT_EQ(value_at<float>(second.find(2)->second.bytes, 0), 0.125f);
  }
}

TEST(TensorBoardFile, ASessionStartMarksTheStepFromWhichOldRecordsAreVoid) {
  const TempFolder folder;
  TensorBoardFile file(folder.path());
  file.session_start(301);
  const std::vector<std::string> frames = read_frames(file.path());
  ASSERT_EQ(frames.size(), 2u);
  const auto event = parse_message(frames[1]);
  EXPECT_EQ(event.find(2)->second.varint, 301u);
  EXPECT_EQ(parse_message(event.find(7)->second.bytes).find(1)->second.varint, 1u);
}

TEST(TensorBoardFile, IsNamedByTimeAndHostAndNeverReusesAFile) {
  const TempFolder folder;
  const TensorBoardFile first(folder.path());
  const TensorBoardFile second(folder.path());
  EXPECT_NE(first.path(), second.path());
  EXPECT_THAT(first.path(), MatchesRegex(".*/events\\.out\\.tfevents\\.[0-9]+\\..*"));
  EXPECT_THAT(first.path(), EndsWith("." + host_name()));
}

}  // namespace
}  // namespace bertha
