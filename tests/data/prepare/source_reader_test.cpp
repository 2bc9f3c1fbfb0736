#include "data/prepare/source_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/prepare/part_reader.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

/// The documents of a file of this name, each with "|" between its lines.
std::vector<std::string> documents_of(const std::string& name, const std::string& bytes,
                                      DocumentForm form = DocumentForm::kBlank,
                                      const std::string& field = "text") {
  const TempFolder folder;
  write_bytes(folder.path(name), bytes);
  const SourceFile source = list_source_files({folder.path(name)}, MissingFiles::kRefuse).at(0);
  std::vector<std::string> documents;
  std::string document;
  int64_t heard = 0;
  read_source(source, form, field,
              {.line = [&](std::string_view line) { document.append(line).append("|"); },
               .end_document = [&] { documents.push_back(std::exchange(document, "")); },
               .bytes = [&](int64_t count) { heard += count; }});
  EXPECT_EQ(document, "");
  EXPECT_EQ(heard, source.bytes);
  return documents;
}

std::string refusal(const std::string& name, const std::string& bytes,
                    const std::string& field = "text") {
  return error_of([&] { documents_of(name, bytes, DocumentForm::kBlank, field); });
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// "a b\nb a\n" as Python's gzip module, xz 5.4 and zstd 1.5 compress it.
const std::string kGzip = from_hex("1f8b08000000000002034b5448e24a5248e40200b03a038c08000000");
const std::string kXz = from_hex(
    "fd377a585a000004e6d6b446020021011c00000010cf58cc0100076120620a6220610a004b1831f65accebf2000120"
    "08bb19d9bb1fb6f37d010000000004595a");
const std::string kZstd = from_hex("28b52ffd04684100006120620a6220610aa865a48d");

TEST(ReadSource, DocumentsOfPlainTextEndWhereTheFormSays) {
  const std::string text =
      "\xef\xbb\xbf"
      "a b\r\nb\r\n \nc\n";
  EXPECT_THAT(documents_of("t.txt", text), ElementsAre("a b|b| |", "c|"));
  EXPECT_THAT(documents_of("t.txt", text, DocumentForm::kLine),
              ElementsAre("a b|", "b|", " |", "c|", ""));
  EXPECT_THAT(documents_of("t.txt", text, DocumentForm::kFile), ElementsAre("a b|b| |c|"));
}

TEST(ReadSource, LongLinesComeInPiecesOfOneDocument) {
  std::string line;
  while (line.size() < 3'000'000) line += "word \u4e2d ";
  const std::string glued(2'500'001, 'x');
  for (const std::string& text : {line, glued}) {
    const auto documents = documents_of("t.txt", text + "\nb\n", DocumentForm::kLine);
    ASSERT_EQ(documents.size(), 3u);
    std::string whole = documents[0];
    EXPECT_GT(std::ranges::count(whole, '|'), 2);
    std::erase(whole, '|');
    EXPECT_TRUE(whole == text);
    EXPECT_EQ(documents[1], "b|");
  }
}

TEST(ReadSource, EveryMemberOfCompressedDataIsRead) {
  for (const auto& [name, data] :
       {std::pair{"t.txt.gz", kGzip}, std::pair{"t.txt.xz", kXz}, std::pair{"t.txt.zst", kZstd}}) {
    EXPECT_THAT(documents_of(name, data), ElementsAre("a b|b a|")) << name;
    EXPECT_THAT(documents_of(name, data + data + std::string(8, '\0') + data),
                ElementsAre("a b|b a|a b|b a|a b|b a|"))
        << name;
    EXPECT_THAT(documents_of("t.txt", data), ElementsAre("a b|b a|")) << "whatever the name";
    for (size_t size = 8; size < data.size(); ++size) {
      const std::string cut = refusal(name, data.substr(0, size));
      EXPECT_THAT(cut, AllOf(HasSubstr(name), HasSubstr("the compressed data end early"))) << size;
    }
    std::string damaged = data;
    damaged[data.size() - 6] = static_cast<char>(damaged[data.size() - 6] ^ 0x55);
    EXPECT_THAT(refusal(name, damaged), AllOf(HasSubstr(name), HasSubstr("damaged"))) << name;
    EXPECT_THAT(refusal(name, data + std::string(64, 'm')), HasSubstr("damaged")) << name;
  }
}

TEST(ReadSource, FilesOfOtherKindsAreNamed) {
  EXPECT_THAT(refusal("t.txt", "PK\x03\x04 and more"), HasSubstr("t.txt: is a ZIP archive"));
  EXPECT_THAT(refusal("t.txt", "PAR1 and more"),
              AllOf(HasSubstr("t.txt: is a Parquet file"), HasSubstr("--text -")));
  EXPECT_THAT(refusal("t.txt", "%PDF-1.7 and more"), HasSubstr("pdftotext"));
  EXPECT_THAT(refusal("t.txt", "BZh91AY&SY"), HasSubstr("bzip2 -dc"));
}

TEST(ReadSource, ALineOfJsonIsADocument) {
  const std::string lines =
      "{\"text\": \"a \\\"b\\\"\\n\\nc\\r\\nd\", \"id\": 1}\r\n\n{\"id\": 2, \"text\": null}\n"
      "{\"text\": [\"e\", \"f\"]}";
  for (const char* name : {"t.jsonl", "t.ndjson", "t.JSON", "part-0.jsonl"}) {
    EXPECT_THAT(documents_of(name, lines), ElementsAre("a \"b\"||c|d|", "", "e|f|")) << name;
  }
  EXPECT_THAT(documents_of("t.jsonl", "{\"body\": \"x\"}", DocumentForm::kFile, "body"),
              ElementsAre("x|"));
}

TEST(ReadSource, WrongRecordsOfJsonAreNamedWithTheirLine) {
  const std::string good = "{\"text\": \"a\"}\n";
  EXPECT_THAT(
      refusal("t.jsonl", good + "{\"id\": 1, \"url\": 2}\n"),
      AllOf(HasSubstr("t.jsonl, line 2: no field \"text\", found id, url"), HasSubstr("--field")));
  EXPECT_THAT(refusal("t.jsonl", good + "\n{\"text\": 7}"),
              HasSubstr("line 3: field \"text\" is number"));
  EXPECT_THAT(refusal("t.jsonl", good + "{\"text\": \"a"), HasSubstr("line 2: not a JSON object"));
  EXPECT_THAT(refusal("t.json", "{\n  \"text\": \"a\"\n}\n"),
              AllOf(HasSubstr("line 1: not a JSON object"), HasSubstr("jq -c")));
  EXPECT_THAT(refusal("t.jsonl", good + "[\"a\"]"), HasSubstr("line 2: is array"));
  EXPECT_THAT(refusal("t.jsonl", "{\"text\": \"a\\u0000\"}"),
              HasSubstr("line 1: found a zero byte"));
  EXPECT_THAT(refusal("t.jsonl", good + "{\"text\": \"\xe9\"}\n"),
              HasSubstr("line 2, byte 11: not valid UTF-8"));
}

TEST(ReadSource, ARecordOfATableIsADocument) {
  EXPECT_THAT(
      documents_of("t.csv",
                   "id,text,\"la,bel\"\r\n1,The river,0\r\n\r\n2,\"It is, \"\"or\"\" was.\r\n"
                   "\r\nHere\",1\r\n3,,0"),
      ElementsAre("The river|", "It is, \"or\" was.||Here|", ""));
  EXPECT_THAT(documents_of("t.csv", "id;text\n1;a, b\n"), ElementsAre("a, b|"));
  EXPECT_THAT(documents_of("t.csv", "id\ttext\n1\t\"a\tb\"\n"), ElementsAre("a\tb|"));
  EXPECT_THAT(documents_of("t.tsv", "text\tlabel\n\"Yes,\" he said\t1\n"),
              ElementsAre("\"Yes,\" he said|"));
  EXPECT_THAT(documents_of("t.csv", "body\na\n", DocumentForm::kBlank, "body"), ElementsAre("a|"));
}

TEST(ReadSource, WrongRecordsOfTablesAreNamedWithTheirLine) {
  const std::string good = "id,text\n1,a\n";
  EXPECT_THAT(
      refusal("t.csv", "id,label\n1,a\n"),
      AllOf(HasSubstr("t.csv, line 1: no column \"text\", found id, label"), HasSubstr("--field")));
  EXPECT_THAT(refusal("t.csv", good + "2,b,c\n"),
              HasSubstr("line 3: a record of 3 fields, want 2"));
  EXPECT_THAT(refusal("t.csv", good + "2,\"b\nc\n"), HasSubstr("line 3: a quoted field that does"));
  EXPECT_THAT(refusal("t.csv", good + "2,\"b\" c\n"), HasSubstr("line 3: text after the quote"));
  EXPECT_THAT(refusal("t.tsv", "id\ttext\n1\n"), HasSubstr("line 2: a record of 1 fields, want 2"));
}

TEST(ReadSource, TokenIdsAreLinesOfNumbers) {
  const TempFolder folder;
  const auto read = [&](const std::string& lines) {
    write_bytes(folder.path("ids.jsonl"), lines);
    std::string text;
    read_source({.path = folder.path("ids.jsonl")}, DocumentForm::kAuto, "input_ids",
                {.line = [&](std::string_view line) { text.append(line).append("|"); },
                 .end_document = [&] { text += '/'; }},
                TokenIds{.count = 20, .reserved = {0, 3}});
    return text;
  };
  EXPECT_EQ(read("[1, 2]\n{\"input_ids\": [[4], [5, 19]]}\n[]\n"), "1 2 |/4 |5 19 |//");
  EXPECT_THAT(error_of([&] { read("[1]\n[2, 20]\n"); }),
              HasSubstr("ids.jsonl, line 2: found 20, want ids from 0 to 19"));
  EXPECT_THAT(error_of([&] { read("[1.5]\n"); }), HasSubstr("found 1.5, want ids"));
  EXPECT_THAT(error_of([&] { read("[1, 3]\n"); }), HasSubstr("id 3 is one of --special-ids"));
  EXPECT_THAT(error_of([&] { read("7\n"); }), HasSubstr("found number, want an array"));
  EXPECT_THAT(error_of([&] { read("{\"ids\": [1]}\n"); }), HasSubstr("no field \"input_ids\""));
}

TEST(ReadSource, WrongBytesOfPlainTextAreNamedWithTheirLine) {
  EXPECT_THAT(refusal("t.md", "a\nb\xff\n"), HasSubstr("t.md, line 2, byte 2: not valid UTF-8"));
  EXPECT_THAT(refusal("t.md", std::string("a\nb\0\n", 5)),
              HasSubstr("line 2, byte 2: a zero byte"));
}

}  // namespace
}  // namespace bertha
