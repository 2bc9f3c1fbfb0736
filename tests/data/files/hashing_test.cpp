#include "data/files/hashing.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

TEST(Hashing, GivesThePublishedAnswersForTheEmptyFileAndForAbc) {
  const TempFolder folder;
  write_bytes(folder.path("empty"), "");
  write_bytes(folder.path("abc"), "abc");
  // RFC 1321, FIPS 180-4, and `xxhsum -H2`.
  EXPECT_EQ(md5_of_text(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_of_text("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(sha256_of_file(folder.path("empty")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of_file(folder.path("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(xxh3_of_file(folder.path("empty")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxh3_of_file(folder.path("abc")), "06b05ab6733a618578af5f94892f3950");
}

TEST(Hashing, Crc32cGivesThePublishedAnswers) {
  // RFC 3720, appendix B.4, and the check value of the algorithm.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(std::string(rising.rbegin(), rising.rend())), 0x113fdb5cu);
  EXPECT_EQ(crc32c("6789", crc32c("12345")), 0xe3069283u);
  EXPECT_EQ(crc32c("", 0x1234u), 0x1234u);
  // LevelDB's Mask: rotated right by 15 bits, plus a constant.
  EXPECT_EQ(masked_crc32c(0x00008000u), 0x1u + 0xa282ead8u);
}

TEST(Hashing, Crc32cEqualsTheBitwiseDefinitionAtEverySize) {
  std::string bytes;
  for (int i = 0; i <= 511; ++i) {
    uint32_t crc = 0xffffffffu;
    for (const char letter : bytes) {
      crc ^= static_cast<unsigned char>(letter);
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    }
    EXPECT_EQ(crc32c(bytes), ~crc) << i;
    bytes += static_cast<char>(i * 37 + 11);
  }
}

TEST(Hashing, AFileOfSeveralChunksHashesAsOne) {
  const TempFolder folder;
  std::string bytes;
  for (int i = 0; i < 3'000'000; ++i) bytes += static_cast<char>(i * 7 + i / 1000);
  write_bytes(folder.path("long"), bytes);
  // python3: b = bytes((i * 7 + i // 1000) & 255 for i in range(3000000))
  EXPECT_EQ(sha256_of_file(folder.path("long")),
            "72a181e887b6bbd62c1c195291cc24b27f6c7cc82e4f38965e3ab438abf11477");
  EXPECT_EQ(xxh3_of_file(folder.path("long")), "da4cbad42bf3192ecbe42ff33d420228");
}

TEST(Hashing, AMissingFileIsADataErrorWithItsName) {
  EXPECT_THAT(error_of([] { xxh3_of_file("/nowhere/part_0.hdf5"); }),
              HasSubstr("/nowhere/part_0.hdf5: cannot open: No such file"));
}

}  // namespace
}  // namespace bertha
