#include "data/prepare/intake.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "data/files/hashing.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"
#include "tests/support/captured_log.h"

namespace bertha {
namespace {

class IntakeTest : public ::testing::Test {
 protected:
  IntakeTest() { std::filesystem::create_directory(folder_.path("work")); }

  std::string write(const std::string& name, const std::string& bytes) {
    write_bytes(folder_.path(name), bytes);
    return folder_.path(name);
  }

  Intake take(const std::vector<std::string>& names) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(folder_.path(name));
    options.folder = folder_.path("work");
    const std::vector<SourceFile> sources = list_source_files(paths, MissingFiles::kRefuse);
    int64_t heard = 0;
    std::mutex mutex;
    Intake intake = write_text_parts(sources, options, [&](int64_t bytes) {
      const std::lock_guard lock(mutex);
      heard += bytes;
    });
    for (const SourceFile& source : sources) heard -= source.bytes;
    EXPECT_EQ(heard, 0);
    for (const ManifestSource& part : intake.parts) {
      EXPECT_EQ(part.sha256, sha256_of_file(part.path));
      EXPECT_EQ(part.bytes, static_cast<int64_t>(std::filesystem::file_size(part.path)));
    }
    return intake;
  }

  static std::string text_of(const std::vector<ManifestSource>& parts) {
    std::string text;
    for (const ManifestSource& part : parts) text += bytes_of(part.path);
    return text;
  }

  /// Each with its blank line.
  static std::vector<std::string> documents_of(const std::vector<ManifestSource>& parts) {
    std::vector<std::string> documents(1);
    std::istringstream lines(text_of(parts));
    for (std::string line; std::getline(lines, line);) {
      documents.back() += line + "\n";
      if (line.empty()) documents.emplace_back();
    }
    documents.pop_back();
    return documents;
  }

  IntakeOptions options{.seed = 7, .workers = 1};
  TempFolder folder_;
};

TEST_F(IntakeTest, LinesAreSplitAndWithProseJoinedFirst) {
  write("t.txt", "One. Two\nthree. Four.\r\n\n\nFive.\n");
  EXPECT_EQ(text_of(take({"t.txt"}).parts), "One.\nTwo\nthree.\nFour.\n\nFive.\n\n");
  options.text_form = TextForm::kProse;
  EXPECT_EQ(text_of(take({"t.txt"}).parts), "One.\nTwo three.\nFour.\n\nFive.\n\n");
  write("t.jsonl", R"({"text": "One. Two\nthree.\n\nFour"})");
  EXPECT_EQ(text_of(take({"t.jsonl"}).parts), "One.\nTwo three.\nFour\n\n");
  options.text_form = TextForm::kSentencePerLine;
  EXPECT_EQ(text_of(take({"t.jsonl"}).parts), "One.\nTwo\nthree.\nFour\n\n");
}

TEST_F(IntakeTest, TheFormOfDocumentsIsFoundAndSaid) {
  const std::string line = std::string(300, 'x') + "\n";
  const auto found = [&](const std::string& text, const char* said) {
    write("t.txt", text);
    const CapturedLog log;
    const DocumentForm form = find_document_form(
        list_source_files({folder_.path("t.txt")}, MissingFiles::kRefuse), DocumentForm::kAuto);
    EXPECT_THAT(log.texts(), ElementsAre(HasSubstr(said)));
    return form;
  };
  EXPECT_EQ(found("a\r\n \t\r\nb\n", "blank lines separate"), DocumentForm::kBlank);
  EXPECT_EQ(found("\n\na\nb\n\n\n", "a file is a document"), DocumentForm::kFile);
  EXPECT_EQ(found(line + line, "a line is a document"), DocumentForm::kLine);
  EXPECT_EQ(found(line + "\n" + line, "blank lines separate"), DocumentForm::kBlank);
}

TEST_F(IntakeTest, OneLineOfAnySizeIsProse) {
  options.text_form = TextForm::kProse;
  std::string prose;
  while (prose.size() < 5'000'000) prose += "The river is long and cold. ";
  write("t.txt", prose);
  const Intake intake = take({"t.txt"});
  const std::vector<std::string> documents = documents_of(intake.parts);
  EXPECT_EQ(documents.size(), 5u) << "continued each MiB";
  std::set<std::string> sentences;
  for (const std::string& document : documents) {
    std::istringstream lines(document);
    for (std::string sentence; std::getline(lines, sentence);) sentences.insert(sentence);
  }
  EXPECT_THAT(sentences, ElementsAre("", "The river is long and cold."));
  // Without an end of a sentence, and without a space.
  for (const std::string& text :
       {std::string(3'000'000, 'x'), std::string(3'000'000, 'x') + " y"}) {
    write("t.txt", text);
    std::string whole = text_of(take({"t.txt"}).parts);
    std::erase(whole, '\n');
    EXPECT_EQ(whole.substr(0, 3'000'000), text.substr(0, 3'000'000));
  }
}

TEST_F(IntakeTest, PartsEndWithDocumentsWhateverTheWorkers) {
  std::string text;
  for (int i = 0; text.size() < 900'000; ++i) text += concat("Document ", i, ".\nIt ends.\n\n");
  const std::string rest = "{\"text\": \"Small. File.\"}\n";
  write("a.txt", text);
  write("b.jsonl", rest);
  write("c.jsonl", rest);
  options.part_bytes = 200'000;
  const Intake one = take({"a.txt", "b.jsonl", "c.jsonl"});
  EXPECT_EQ(one.parts.size(), 4 + 1u) << "of a.txt, and the small ones together";
  for (size_t i = 0; i + 1 < one.parts.size(); ++i) {
    EXPECT_GT(one.parts[i].bytes, 100'000);
    EXPECT_LT(one.parts[i].bytes, 280'000);
    EXPECT_TRUE(bytes_of(one.parts[i].path).ends_with("ends.\n\n"));
  }
  EXPECT_EQ(text_of(one.parts), text + "Small.\nFile.\n\nSmall.\nFile.\n\n");
  options.workers = 3;
  const Intake three = take({"a.txt", "b.jsonl", "c.jsonl"});
  ASSERT_EQ(three.parts.size(), one.parts.size());
  for (size_t i = 0; i < one.parts.size(); ++i) {
    EXPECT_EQ(three.parts[i].sha256, one.parts[i].sha256);
  }
  options.part_bytes = 0;
  EXPECT_EQ(take({"a.txt", "b.jsonl", "c.jsonl"}).parts.size(), 3u);
}

TEST_F(IntakeTest, DocumentsAreHeldOutByTheirTextWhereverTheyStand) {
  const auto text_in = [](int first, int step) {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += concat("Document ", (first + step * i) % 4000, ".\n\n");
    return text;
  };
  options.hold_out = 0.05;
  const auto held_out = [&](const std::string& text) {
    write("t.txt", text);
    const Intake intake = take({"t.txt"});
    const std::vector<std::string> documents = documents_of(intake.held_out);
    EXPECT_EQ(std::ssize(documents), intake.held_out_documents);
    for (const std::string& document : documents_of(intake.parts)) {
      EXPECT_EQ(std::ranges::count(documents, document), 0) << document;
    }
    EXPECT_EQ(documents.size() + documents_of(intake.parts).size(),
              static_cast<size_t>(std::ranges::count(text, 'D')));
    return std::set<std::string>(documents.begin(), documents.end());
  };
  const std::set<std::string> found = held_out(text_in(0, 1));
  EXPECT_NEAR(static_cast<double>(found.size()), 200, 60);
  EXPECT_EQ(held_out(text_in(1234, 7)), found);
  EXPECT_EQ(held_out(text_in(0, 1) + text_in(0, 1)), found) << "copies go with it";
  options.seed = 8;
  EXPECT_NE(held_out(text_in(0, 1)), found);
}

TEST_F(IntakeTest, OfFewDocumentsOneIsHeldOut) {
  options.hold_out = 0.01;
  write("t.txt", "A.\n\nB.\n\nC.\nD.\n");
  const Intake intake = take({"t.txt"});
  EXPECT_EQ(intake.held_out_documents, 1);
  EXPECT_EQ(documents_of(intake.held_out).size(), 1u);
  EXPECT_EQ(documents_of(intake.parts).size(), 2u);
  write("t.txt", "A.\nB.\n");
  EXPECT_EQ(take({"t.txt"}).held_out_documents, 0);
  write("t.txt", "\n \n");
  EXPECT_THAT(error_of([&] { take({"t.txt"}); }), HasSubstr("no document"));
}

}  // namespace
}  // namespace bertha
