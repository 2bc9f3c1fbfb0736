#include "data/prepare/part_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  const TempFolder folder;
  write_bytes(folder.path("text"), text);
  LineReader reader(folder.path("text"));
  std::vector<std::string> lines;
  while (const auto line = reader.next()) lines.emplace_back(*line);
  EXPECT_EQ(reader.line_number(), static_cast<int64_t>(lines.size()));
  EXPECT_EQ(reader.bytes_read(), static_cast<int64_t>(text.size()));
  return lines;
}

Documents documents_of(const std::string& text) {
  const TempFolder folder;
  write_bytes(folder.path("text"), text);
  const Vocabulary vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "."}, "v");
  WordPieceTokenizer tokenizer(vocabulary);
  int64_t heard_bytes = 0;
  Documents documents =
      read_documents(folder.path("text"), tokenizer, [&](int64_t bytes) { heard_bytes += bytes; });
  EXPECT_EQ(heard_bytes, static_cast<int64_t>(text.size()));
  return documents;
}

std::string message_of_reading(const std::string& text) {
  return error_of([&] { documents_of(text); });
}

TEST(LineReaderTest, OnlyTheNewlineEndsALine) {
  EXPECT_THAT(lines_of("a\nb\n\nc\x0b"
                       "d\u2028e"),
              ElementsAre("a", "b", "",
                          "c\x0b"
                          "d\u2028e"));
  EXPECT_THAT(lines_of("a\n"), ElementsAre("a"));
  EXPECT_TRUE(lines_of("").empty());
}

TEST(LineReaderTest, CarriageReturnsVanishWhereverTheyStand) {
  EXPECT_THAT(lines_of("foo\rbar\r\n\r\n\r\ra\r\nb\r"), ElementsAre("foobar", "", "a", "b"));
  const std::string half(262144, 'x');
  EXPECT_THAT(lines_of(half + "\r" + half + "\ny\n"), ElementsAre(half + half, "y"));
}

TEST(LineReaderTest, LinesAcrossBlocksStayWhole) {
  for (const int64_t length : {1, 262143, 262144, 262145, 700000, 1048576}) {
    const std::string line(static_cast<size_t>(length), 'x');
    EXPECT_THAT(lines_of("y\n" + line + "\nz"), ElementsAre("y", line, "z")) << length;
    EXPECT_THAT(lines_of(line), ElementsAre(line)) << length;
  }
}

TEST(ReadDocumentsTest, BlankLinesSeparateAndEmptySentencesVanish) {
  const Documents documents = documents_of("\n \na b\n\u200b\nb.\r\n\u3000\n\n\x01\n\nc\n\u00a0");
  EXPECT_THAT(documents.token_ids, ElementsAre(5, 6, 6, 7, 1));
  EXPECT_THAT(documents.sentence_offsets, ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(documents.document_offsets, ElementsAre(0, 2, 3));
}

TEST(ReadDocumentsTest, AZeroByteIsRefusedWhereverItStands) {
  const std::string zero(1, '\0');
  const auto refused =
      AllOf(HasSubstr("byte 2: a zero byte"), HasSubstr("UTF-16"), HasSubstr("tr -d '\\000'"));
  EXPECT_THAT(message_of_reading("a\nb" + zero + "\xff\n"),
              AllOf(HasSubstr("text, line 2,"), refused));
  std::string late;
  while (late.size() < 2'000'000) late += "a b\n";
  EXPECT_THAT(message_of_reading(late + "a" + zero + "\n"),
              AllOf(HasSubstr("text, line 500001,"), refused));
}

TEST(ReadDocumentsTest, ACarriageReturnSplitsNoWord) {
  const Documents documents = documents_of("a\rb\na b\r\n");
  EXPECT_THAT(documents.token_ids, ElementsAre(1, 5, 6)) << "ab is unknown to the vocabulary";
}

TEST(ReadDocumentsTest, WhatCannotBeReadIsNamedWithItsLine) {
  EXPECT_THAT(message_of_reading(""), AllOf(HasSubstr("no document"), HasSubstr("text")));
  EXPECT_THAT(message_of_reading("\n \n\u200b\n"), HasSubstr("no document"));
  EXPECT_THAT(message_of_reading("a\nb \xe9t\xe9\n"),
              AllOf(HasSubstr("text, line 2, byte 3"), HasSubstr("UTF-8")));
  EXPECT_THAT(message_of_reading("a\n\n" + std::string(10'000'000, 'a')),
              AllOf(HasSubstr("text, line 3"), HasSubstr("1048576 bytes")));
  EXPECT_THAT(message_of_reading(std::string(1048577, 'a') + "\nb"), HasSubstr("line 1"));
}

TEST(ReadDocumentsTest, RandomBytesAreReadOrRefused) {
  std::mt19937 random(13);
  int64_t num_read = 0, num_refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes;
    for (size_t n = random() % 60; n > 0; --n) {
      const uint32_t choice = random() % 8;
      bytes += choice == 0   ? '\n'
               : choice == 1 ? static_cast<char>(random() % (round % 3 == 0 ? 256 : 128))
                             : static_cast<char>(' ' + random() % 95);
    }
    const std::string message = message_of_reading(bytes);
    ++(message == "no error" ? num_read : num_refused);
  }
  EXPECT_GT(num_read, 100);
  EXPECT_GT(num_refused, 20);
}

TEST(ReadDocumentsTest, MissingFilesAndFoldersAreNamed) {
  const TempFolder folder;
  for (const std::string& path : {folder.path("missing"), folder.path()}) {
    EXPECT_THAT(error_of([&] { LineReader reader(path); }), HasSubstr(path));
  }
}

}  // namespace
}  // namespace bertha
