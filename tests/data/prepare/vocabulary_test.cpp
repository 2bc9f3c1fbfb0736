#include "data/prepare/vocabulary.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

const std::string kSpecial = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

std::string message_of_loading(const std::string& text) {
  const TempFolder folder;
  write_bytes(folder.path("vocab.txt"), text);
  return error_of([&] { Vocabulary::load(folder.path("vocab.txt")); });
}

TEST(VocabularyTest, IdsAreLineNumbersAndWhiteSpaceIsRemoved) {
  const TempFolder folder;
  write_bytes(folder.path("vocab.txt"), kSpecial + "the\r\n  ##ing \ncaf\u00e9");
  const Vocabulary vocabulary = Vocabulary::load(folder.path("vocab.txt"));
  EXPECT_EQ(vocabulary.size(), 8);
  EXPECT_EQ(vocabulary.special().mask, 4);
  EXPECT_EQ(vocabulary.find_start("the"), 5);
  EXPECT_EQ(vocabulary.find_continuation("ing"), 6);
  EXPECT_EQ(vocabulary.find_start("ing"), -1);
  EXPECT_EQ(vocabulary.find_continuation("the"), -1);
  EXPECT_EQ(vocabulary.find_start("caf\u00e9"), 7);
}

TEST(VocabularyTest, AByteOrderMarkIsNoPartOfTheFirstWordpiece) {
  const TempFolder folder;
  write_bytes(folder.path("vocab.txt"), "\ufeff" + kSpecial + "\ufeffthe\n");
  const Vocabulary vocabulary = Vocabulary::load(folder.path("vocab.txt"));
  EXPECT_EQ(vocabulary.special().pad, 0);
  EXPECT_EQ(vocabulary.wordpiece(5), "\ufeffthe");
}

// As transformers and google-research count; bert-base-chinese has such a line.
TEST(VocabularyTest, ALineOfWhiteSpaceHasAnIdAndLinesEndOnlyAtNewlines) {
  const TempFolder folder;
  write_bytes(folder.path("vocab.txt"), kSpecial + "a\n\u2028\nb\u2029c\n\u00a0\nd\u0085\n");
  const Vocabulary vocabulary = Vocabulary::load(folder.path("vocab.txt"));
  EXPECT_EQ(vocabulary.size(), 10);
  EXPECT_EQ(vocabulary.wordpiece(6), "\u2028");
  EXPECT_EQ(vocabulary.find_start("b\u2029c"), 7);
  EXPECT_EQ(vocabulary.find_start("d"), 9);
}

TEST(VocabularyTest, EverythingWrongIsNamedWithItsLine) {
  EXPECT_THAT(message_of_loading("[PAD]\n[UNK]\n[CLS]\n[SEP]\n"), HasSubstr("no [MASK]"));
  EXPECT_THAT(message_of_loading("[PAD]\n[CLS]\n[SEP]\n[MASK]\n"), HasSubstr("no [UNK]"));
  EXPECT_THAT(message_of_loading(""), HasSubstr("is empty"));
  EXPECT_EQ(message_of_loading("the\n" + kSpecial), "no error") << "[PAD] may have any id";
  EXPECT_THAT(message_of_loading(kSpecial + "the\na\nthe\n"),
              AllOf(HasSubstr("line 8"), HasSubstr("\"the\""), HasSubstr("line 6")));
  EXPECT_THAT(message_of_loading(kSpecial + "\nthe\n"),
              AllOf(HasSubstr("line 6"), HasSubstr("empty"), HasSubstr("write an unused one")));
  EXPECT_THAT(message_of_loading(kSpecial + "th\xff\n"),
              AllOf(HasSubstr("line 6"), HasSubstr("UTF-8")));
  EXPECT_EQ(message_of_loading(kSpecial), "no error");
}

TEST(VocabularyTest, AMissingFileIsNamed) {
  EXPECT_THAT(error_of([&] { Vocabulary::load("/nonexistent/vocab.txt"); }),
              HasSubstr("/nonexistent/vocab.txt"));
}

TEST(VocabularyTest, TheLargestIdIs999999) {
  std::vector<std::string> wordpieces{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  while (wordpieces.size() < 1'000'000) wordpieces.push_back(concat("p", wordpieces.size()));
  EXPECT_EQ(Vocabulary(wordpieces, "v").find_start("p999999"), 999'999);
  wordpieces.push_back("one more");
  EXPECT_THROW(Vocabulary(wordpieces, "v"), Error);
}

}  // namespace
}  // namespace bertha
