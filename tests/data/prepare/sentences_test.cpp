#include "data/prepare/sentences.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

/// Sentences as written, "|" between them.
std::string split(const std::string& text) {
  std::string joined;
  for (const std::string& sentence : split_sentences(text)) {
    joined += (joined.empty() ? "" : "|") + sentence;
  }
  return joined;
}

TEST(SplitSentences, EndAtMarksBeforeACapital) {
  EXPECT_EQ(split("It rained. We stayed! Why? 12 of us left"),
            "It rained.|We stayed!|Why?|12 of us left");
  EXPECT_EQ(split("  One.\tTwo.   Three.  "), "One.|Two.|Three.");
  EXPECT_EQ(split("What?! No... Yes… Ähnlich."), "What?!|No...|Yes…|Ähnlich.");
  EXPECT_THAT(split_sentences(" \t "), IsEmpty());
  EXPECT_EQ(split("no mark at all"), "no mark at all");
  EXPECT_EQ(split("..."), "...");
}

TEST(SplitSentences, GoOnBeforeALowerCaseLetterAndInsideOfWords) {
  EXPECT_EQ(split("\"Why?\" he asked. \"Go!\" said she."), "\"Why?\" he asked.|\"Go!\" said she.");
  EXPECT_EQ(split("About 3.5 of them at example.com, e.g. here. Done."),
            "About 3.5 of them at example.com, e.g. here.|Done.");
  EXPECT_EQ(split("The end.Next"), "The end.Next");
  EXPECT_EQ(split("Straße. übrigens"), "Straße. übrigens");
}

TEST(SplitSentences, TakeClosingQuotesAlong) {
  EXPECT_EQ(split("\"Stop.\" (He did.) “Good.” ‘So.’ Then"),
            "\"Stop.\"|(He did.)|“Good.”|‘So.’|Then");
  EXPECT_EQ(split("It ended. \"Really?\" —Yes."), "It ended.|\"Really?\"|—Yes.");
}

TEST(SplitSentences, KeepTitlesInitialsAndNumbers) {
  EXPECT_EQ(split("Mr. Smith met Dr. J. R. Brown of the U.S. Army. They talked."),
            "Mr. Smith met Dr. J. R. Brown of the U.S. Army.|They talked.");
  EXPECT_EQ(split("1. Introduction to No. 5 of Fig. 3, on Jan. 2. It is short."),
            "1. Introduction to No. 5 of Fig. 3, on Jan. 2.|It is short.");
  EXPECT_EQ(split("She said no. No. Never in 1914. War came."),
            "She said no.|No.|Never in 1914.|War came.");
  EXPECT_EQ(split("(Mr. Holmes was out.) \"St. John!\""), "(Mr. Holmes was out.)|\"St. John!\"");
}

TEST(SplitSentences, NeedNoSpaceInChineseAndJapanese) {
  EXPECT_EQ(split("今日は雨。「行こう。」明日！"), "今日は雨。|「行こう。」|明日！");
  EXPECT_EQ(split("वह आया। वह गया।"), "वह आया।|वह गया।");
}

TEST(SplitSentences, TakeLinearTimeForMarksWithoutSpace) {
  // Seconds to hours otherwise.
  for (const char* part : {"A.", ".", "\".", "?", "…"}) {
    std::string text;
    while (text.size() < 1'000'000) text += part;
    EXPECT_EQ(split(text + "a"), text + "a") << part;
  }
}

TEST(SplitSentences, LoseNothingButSpace) {
  const std::string text = "A b. C (d). \"E!\" f? G… 7. H. Mr. X. Y";
  std::string joined;
  for (const std::string& sentence : split_sentences(text)) joined += sentence;
  std::string wanted = text, found = joined;
  std::erase(wanted, ' ');
  std::erase(found, ' ');
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace bertha
