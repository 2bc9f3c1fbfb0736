#include "harness/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

/// A file with this header text and that many bytes of data.
std::string write_file(const TempFolder& folder, const std::string& header, size_t data_bytes) {
  const std::string path = folder.path() + "/test.safetensors";
  std::ofstream file(path, std::ios::binary);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << header << std::string(data_bytes, '\1');
  return path;
}

std::string refusal(const std::string& path) {
  return error_of([&] { read_safetensors_header(path); });
}

TEST(SafeTensors, ReadBackWhatWasWritten) {
  const TempFolder folder;
  const std::string path = folder.path() + "/t.safetensors";
  const std::vector<float> values = {1.5f, -2.0f, 0.25f, 3e-40f, 7.0f, 8.0f, 9.0f};
  SafeTensorsWriter writer(path,
                           {{.name = "a", .shape = {2, 3}},
                            {.name = "empty", .shape = {0}},
                            {.name = "b", .shape = {1}}},
                           {{"format", "pt"}});
  writer.append(values.data(), 4);
  writer.append(values.data() + 4, 3);
  writer.finish();
  const SafeTensorsHeader header = read_safetensors_header(path);
  EXPECT_EQ(header.data_offset_bytes % 8, 0);
  EXPECT_EQ(read_safetensor(path, header, "a", 0, 6),
            (std::vector<float>(values.begin(), values.begin() + 6)));
  EXPECT_EQ(read_safetensor(path, header, "a", 4, 2), (std::vector<float>{7.0f, 8.0f}));
  EXPECT_EQ(read_safetensor(path, header, "b", 0, 1), (std::vector<float>{9.0f}));
  EXPECT_EQ(read_safetensor(path, header, "empty", 0, 0), (std::vector<float>{}));
}

TEST(SafeTensors, ComeFromOneFileThoughItIsReplacedMeanwhile) {
  const TempFolder folder;
  const std::string path = folder.path("t.safetensors");
  const auto write = [&](float value) {
    SafeTensorsWriter writer(path, {{.name = "a", .shape = {1}}}, {});
    writer.append(&value, 1);
    writer.finish();
  };
  write(1);
  const SafeTensorsHeader header = read_safetensors_header(path);
  write(2);
  EXPECT_EQ(read_safetensor(path, header, "a", 0, 1), (std::vector<float>{1}));
  std::filesystem::remove(path);
  EXPECT_EQ(read_safetensor(path, header, "a", 0, 1), (std::vector<float>{1}));
}

TEST(SafeTensors, WidenHalfTypes) {
  const TempFolder folder;
  const std::string path = folder.path() + "/h.safetensors";
  const std::string header =
      R"({"f":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}})";
  const uint16_t bits[] = {0x3C00, 0xC100, 0x4049};  // 1, -2.5 in binary16; 3.140625 in bfloat16
  std::ofstream file(path, std::ios::binary);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << header;
  file.write(reinterpret_cast<const char*>(bits), sizeof(bits));
  file.close();
  const SafeTensorsHeader parsed = read_safetensors_header(path);
  EXPECT_EQ(read_safetensor(path, parsed, "f", 0, 2), (std::vector<float>{1.0f, -2.5f}));
  EXPECT_EQ(read_safetensor(path, parsed, "b", 0, 1), (std::vector<float>{3.140625f}));
}

TEST(SafeTensors, RefuseDamagedHeadersWithTheFileAndTheReason) {
  const TempFolder folder;
  const auto tensor = [](const std::string& shape, const std::string& offsets) {
    return R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const struct {
    std::string header;
    size_t data_bytes;
    const char* reason;
  } cases[] = {
      {"not json", 0, "cannot be read"},
      {R"({"t":{"dtype":"F32"}})", 0, "field t.shape is missing"},
      {R"({"t":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, "has dtype F31"},
      {tensor("[2]", "[0,4]"), 4, "has 4 bytes, want 8"},
      {tensor("[1]", "[4,8]"), 8, "starts at 4, want 0"},
      {tensor("[1]", "[0,4]"), 3, "tensor t is at bytes 0 to 4 of 3 bytes of data"},
      {tensor("[1]", "[0,4]"), 5, "contains 5 bytes of data, want 4"},
      {tensor("\"x\"", "[0,4]"), 4, "field t.shape is \"x\", want a list"},
      {tensor("[4294967296,4294967296]", "[0,0]"), 0, "more bytes than 64 bits can count"},
      {tensor("[4294967296,4294967296,0]", "[0,0]"), 0, "more bytes than 64 bits can count"},
      {tensor("[-1]", "[4,0]"), 4, "field t.shape[0] is -1"},
      {tensor("[1.5]", "[0,4]"), 4, "field t.shape[0] is 1.5"},
      {tensor("[1]", "[-9223372036854775808,-9223372036854775804]"), 4, "data_offsets[0] is -92"},
      {tensor("[1]", "[9223372036854775804,9223372036854775807]"), 4,
       "to 9223372036854775807 of 4"},
      {tensor("[1]", "[4,0]"), 4, "tensor t is at bytes 4 to 0 of 4"},
      {tensor("[1]", "[0]"), 4, "data_offsets is [0], want two offsets"},
      {R"({"__metadata__":{"a":1}})", 0, "field __metadata__.a is 1, want a string"},
      {std::string(400'000, '['), 0, "nested deeper than 64 levels"},
      {R"({"t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
       R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "\"t\" is given twice"},
      {std::string((size_t{16} << 20) + 1, ' '), 0, "with a header of 16777217"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(refusal(write_file(folder, c.header, c.data_bytes)),
                AllOf(HasSubstr("test.safetensors"), HasSubstr(c.reason)))
        << c.header;
  }
  std::ofstream(folder.path() + "/short") << "abc";
  EXPECT_THAT(refusal(folder.path() + "/short"), HasSubstr("3 bytes long"));
  EXPECT_THAT(refusal(folder.path() + "/missing"), HasSubstr("cannot be opened"));
}

TEST(SafeTensors, AppearWholeOrNotAtAllAndThroughNoLink) {
  const TempFolder folder;
  const std::string path = folder.path("t.safetensors");
  const std::string other = folder.write("other", "of somebody else");
  std::filesystem::create_symlink(other, path + ".tmp");
  const float values[] = {1, 2};
  {
    SafeTensorsWriter writer(path, {{.name = "a", .shape = {2}}}, {});
    writer.append(values, 1);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  SafeTensorsWriter writer(path, {{.name = "a", .shape = {2}}}, {});
  writer.append(values, 2);
  writer.finish();
  EXPECT_EQ(read_safetensor(path, read_safetensors_header(path), "a", 0, 2),
            (std::vector<float>{1, 2}));
  EXPECT_EQ(std::filesystem::file_size(other), 16u);
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(path + ".tmp")));
}

}  // namespace
}  // namespace bertha::testing
