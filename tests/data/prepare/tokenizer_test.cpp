#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "data/files/hashing.h"
#include "data/prepare/ascii_words.h"
#include "data/prepare/unicode_text.h"
#include "data/prepare/wordpiece.h"
#include "data/random/python_random.h"
#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

using Words = std::vector<std::string>;

/// The basic tokens by way of the ASCII shortcut.
Words split(const std::string& line, const TokenizerSettings& settings = {}) {
  Words words;
  split_words(
      line, settings.do_lower_case, [&](std::string_view token) { words.emplace_back(token); },
      [&](std::string_view chunk) {
        for (std::string& token : basic_tokens(chunk, settings)) words.push_back(std::move(token));
      });
  return words;
}

std::string utf8_of(uint32_t code) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  const auto next = [&](int shift) { return byte(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xc0 | code >> 6), next(0)};
  if (code < 0x10000) return {byte(0xe0 | code >> 12), next(6), next(0)};
  return {byte(0xf0 | code >> 18), next(12), next(6), next(0)};
}

constexpr TokenizerSettings kCased{.do_lower_case = false, .strip_accents = false};

Vocabulary published_vocabulary() {
  return Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "want", "##want", "##ed", "wa",
                     "un", "runn", "##ing", ",", "\u00e9t", "##\u00e9", "[", "]", "mask", "#"},
                    "test vocabulary");
}

Words wordpieces(const Vocabulary& vocabulary, const std::string& line) {
  WordPieceTokenizer tokenizer(vocabulary);
  std::vector<TokenId> ids;
  tokenizer.append_ids(line, ids);
  Words words;
  for (const TokenId id : ids) words.push_back(vocabulary.wordpiece(id));
  return words;
}

TEST(BasicTokensTest, LowerCasesAndSplitsAsPublished) {
  for (const auto& tokens :
       {basic_tokens(" \tHeLLo!how  \n Are yoU?  "), split(" \tHeLLo!how  \n Are yoU?  ")}) {
    EXPECT_THAT(tokens, ElementsAre("hello", "!", "how", "are", "you", "?"));
  }
  EXPECT_THAT(split("UNwant\u00E9d,running"), ElementsAre("unwanted", ",", "running"));
  EXPECT_THAT(split("H\u00E9llo"), ElementsAre("hello"));
}

TEST(BasicTokensTest, IdeographsStandAloneAndOtherScriptsStayWhole) {
  EXPECT_THAT(split("ah\u535A\u63A8zz"), ElementsAre("ah", "\u535A", "\u63A8", "zz"));
  EXPECT_THAT(split("\u3400\u4DBF\u4DC0\u9FFF\uF900"),
              ElementsAre("\u3400", "\u4DBF", "\u4DC0", "\u9FFF", "\u8C48"));
  EXPECT_THAT(split("\U00020000\U0002A6DFx"), ElementsAre("\U00020000", "\U0002A6DF", "x"));
  EXPECT_THAT(split("\u3053\u308C\u306F"), ElementsAre("\u3053\u308C\u306F"));
  EXPECT_THAT(split("\uD55C"), ElementsAre("\u1112\u1161\u11AB")) << "Hangul is decomposed";
}

TEST(BasicTokensTest, ControlCharactersVanishAndAllWhiteSpaceSplits) {
  EXPECT_THAT(split("a\x01"
                    "b\x0b"
                    "c\x7f"
                    "d\u200be\ufefff\u00adg\ufffdh"),
              ElementsAre("abcdefgh"));
  EXPECT_THAT(split(std::string("a\0b", 3)), ElementsAre("ab"));
  EXPECT_THAT(split("a\u00a0b\u3000c\u2028d\u2029e\u2003f\rg\th"),
              ElementsAre("a", "b", "c", "d", "e", "f", "g", "h"));
  EXPECT_THAT(split("a\u0085"
                    "b\x1c"
                    "c"),
              ElementsAre("abc"))
      << "removed as control characters before the split";
  EXPECT_TRUE(split("").empty());
  EXPECT_TRUE(split("\u0301\u0302 \u200b").empty());
}

TEST(BasicTokensTest, PunctuationIsAsciiSymbolsAndUnicodePunctuation) {
  EXPECT_THAT(split("a$b^c`d~e|f+g<h=i>j"),
              ElementsAre("a", "$", "b", "^", "c", "`", "d", "~", "e", "|", "f", "+", "g", "<", "h",
                          "=", "i", ">", "j"));
  EXPECT_THAT(split("\u201Cx\u2026\u00BF\u00A7y\u3002"),
              ElementsAre("\u201C", "x", "\u2026", "\u00BF", "\u00A7", "y", "\u3002"));
  EXPECT_THAT(split("\u20AC5 \u00A35 5\u00B0 \u2122"),
              ElementsAre("\u20AC5", "\u00A35", "5\u00B0", "\u2122"))
      << "symbols outside ASCII are no punctuation";
  EXPECT_THAT(split("[MASK] [unused1]"), ElementsAre("[", "mask", "]", "[", "unused1", "]"));
}

TEST(BasicTokensTest, AccentsGoAndLowerCaseIsPythons) {
  EXPECT_THAT(split("e\u0301t\u00E9 \u1EAE \u00D8"), ElementsAre("ete", "a", "\u00F8"));
  EXPECT_THAT(split("\u0130stanbul"), ElementsAre("istanbul"));
  EXPECT_THAT(split("\u039F\u0394\u039F\u03A3 \u03A3\u0391\u03A3. \u03A3 \u0391\u03A3'\u0391"),
              ElementsAre("\u03BF\u03B4\u03BF\u03C2", "\u03C3\u03B1\u03C2", ".", "\u03C3",
                          "\u03B1\u03C3", "'", "\u03B1"))
      << "a capital sigma at a word's end becomes a final one";
  EXPECT_THAT(split("\u2126 \u212B \u01C4 \u1E9E"), ElementsAre("\u03C9", "a", "\u01C6", "\u00DF"));
}

TEST(BasicTokensTest, MarksInARowTakeTimeInProportion) {
  std::string line = "a";
  for (int i = 0; i < 250'000; ++i) line += "\u0315\u0327";  // out of their canonical order
  EXPECT_THAT(split(line), ElementsAre("a"));
  // Marks that stay, in canonical order.
  EXPECT_THAT(split("\u302E\U0001D165\u302E"), ElementsAre("\U0001D165\u302E\u302E"));
}

TEST(BasicTokensTest, TheAsciiShortcutChangesNothing) {
  std::mt19937 random(5);
  const std::vector<std::string> parts{"a",      "Z",      "9",      " ",      "\t",
                                       ".",      "'",      "_",      "\x02",   "\x7f",
                                       "\u00E9", "\u03A3", "\u4E00", "\u00a0", "\u0301"};
  for (int round = 0; round < 3000; ++round) {
    std::string line;
    for (size_t n = random() % 12; n > 0; --n) line += parts[random() % parts.size()];
    ASSERT_EQ(split(line), basic_tokens(line)) << line;
    ASSERT_EQ(split(line, kCased), basic_tokens(line, kCased)) << line;
  }
}

TEST(BasicTokensTest, TheSettingsDecideAboutCaseAccentsAndIdeographs) {
  const std::string line = "H\u00E9 P\u0301A \uD55C x\u4E00\uF900";
  EXPECT_THAT(split(line, kCased),
              ElementsAre("H\u00E9", "P\u0301A", "\uD55C", "x", "\u4E00", "\uF900"));
  EXPECT_THAT(split(line, {.do_lower_case = false}),
              ElementsAre("He", "PA", "\u1112\u1161\u11AB", "x", "\u4E00", "\u8C48"));
  EXPECT_THAT(split(line, {.strip_accents = false}),
              ElementsAre("h\u00E9", "p\u0301a", "\uD55C", "x", "\u4E00", "\uF900"));
  EXPECT_THAT(split(line, {.tokenize_chinese_chars = false}),
              ElementsAre("he", "pa", "\u1112\u1161\u11AB", "x\u4E00\u8C48"));
}

// make_unicode_11_golden.py says what a line is.
TEST(BasicTokensTest, EveryCodePointIsWhatItIsInUnicode11) {
  std::ifstream golden(std::string(kSourceDir) + "/tests/golden/unicode_11.txt");
  int64_t num_blocks = 0;
  for (std::string first, want; golden >> first >> want; ++num_blocks) {
    const auto begin = static_cast<uint32_t>(std::stoul(first, nullptr, 16));
    std::string tokens;
    for (uint32_t code = begin; code < begin + 4096; ++code) {
      if (code >= 0xd800 && code < 0xe000) continue;
      const std::string c = utf8_of(code);
      const Words words = basic_tokens("A" + c + "1 A" + c + "\u03a3 A\u03a3" + c + "A " + c);
      for (size_t i = 0; i < words.size(); ++i) tokens += (i > 0 ? " " : "") + words[i];
      tokens += "\n";
    }
    EXPECT_EQ(md5_of_text(tokens), want) << "code points from U+" << first;
  }
  EXPECT_EQ(num_blocks, 112);
}

TEST(BasicTokensTest, WhatCameAfterUnicode11IsUnassigned) {
  EXPECT_THAT(split("\uA7C4x"), ElementsAre("\uA7C4x")) << "a capital of Unicode 12";
  EXPECT_THAT(split("a\u2E53b"), ElementsAre("a\u2E53b")) << "punctuation of Unicode 14";
  EXPECT_THAT(split("a\u1ABFb"), ElementsAre("a\u1ABFb")) << "an accent of Unicode 13";
  EXPECT_THAT(split("a\u166Db"), ElementsAre("a", "\u166D", "b")) << "a symbol since Unicode 12";
  EXPECT_EQ(unicode_version(), "11.0.0");
}

TEST(StripTest, RemovesPythonsWhiteSpaceAtBothEnds) {
  EXPECT_EQ(strip(" \t\v\f\r\x1c\x1f\u0085\u00a0x y\u2028\u2029\u3000\u1680\u202f\u205f\n"), "x y");
  EXPECT_EQ(strip("\u2003\u200a"), "");
  EXPECT_EQ(strip("\u200b\ufeff"), "\u200b\ufeff") << "format characters are no white space";
  EXPECT_EQ(strip(""), "");
}

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_FALSE(first_invalid_utf8("plain ascii, rather long; \u00E9 \u4E00 \U0001F600 \uFFFF"));
  EXPECT_EQ(first_invalid_utf8("0123456789\xff"), 10);
  EXPECT_EQ(first_invalid_utf8("ab\xc3"), 2) << "cut short";
  EXPECT_EQ(first_invalid_utf8("ab\x80"), 2) << "continuation byte alone";
  EXPECT_EQ(first_invalid_utf8("\xc0\xaf"), 0) << "overlong";
  EXPECT_EQ(first_invalid_utf8("\xed\xa0\x80"), 0) << "surrogate";
  EXPECT_EQ(first_invalid_utf8("\xf4\x90\x80\x80"), 0) << "beyond U+10FFFF";
}

TEST(WordPieceTest, TakesTheLongestWordpieceFirstAsPublished) {
  const Vocabulary vocabulary = published_vocabulary();
  EXPECT_TRUE(wordpieces(vocabulary, "").empty());
  EXPECT_THAT(wordpieces(vocabulary, "unwanted running"),
              ElementsAre("un", "##want", "##ed", "runn", "##ing"));
  EXPECT_THAT(wordpieces(vocabulary, "unwantedX running"), ElementsAre("[UNK]", "runn", "##ing"));
  EXPECT_THAT(wordpieces(vocabulary, "UNwant\u00E9d,running want"),
              ElementsAre("un", "##want", "##ed", ",", "runn", "##ing", "want"));
}

// make_tokenizer_golden.py says what the strings are, and which programs agree about their ids.
TEST(WordPieceTest, RandomStringsHaveTheIdsThatOtherProgramsGiveThem) {
  std::ifstream file(std::string(kSourceDir) + "/tests/golden/tokenizer.json");
  const auto golden = nlohmann::json::parse(file);
  const Words parts = golden["parts"];
  const TempFolder folder;
  std::string lines;
  for (const std::string& wordpiece : golden["vocabulary"].get<Words>()) lines += wordpiece + "\n";
  const Vocabulary vocabulary = Vocabulary::load(folder.write("vocab.txt", lines));
  for (const auto& list : golden["lists"]) {
    const std::string config = list["tokenizer_config"].dump();
    folder.write("tokenizer_config.json", config);
    WordPieceTokenizer tokenizer(vocabulary, read_tokenizer_settings(folder.path("vocab.txt")));
    PythonRandom random(golden["seed"].get<uint64_t>());
    for (size_t block = 0; block < list["md5"].size(); ++block) {
      std::string text;
      for (int64_t i = 0; i < golden["strings"]; ++i) {
        std::string line;
        for (int64_t n = random.randbelow(12); n > 0; --n) {
          line += parts[static_cast<size_t>(random.randbelow(std::ssize(parts)))];
        }
        std::vector<TokenId> ids;
        tokenizer.append_ids(line, ids);
        for (size_t k = 0; k < ids.size(); ++k) text += concat(k > 0 ? " " : "", ids[k]);
        text += "\n";
      }
      EXPECT_EQ(md5_of_text(text), list["md5"][block].get<std::string>())
          << config << ", block " << block;
    }
  }
  EXPECT_EQ(golden["lists"].size(), 5u);
}

std::string golden_folder(const std::string& name) {
  return std::string(kSourceDir) + "/tests/golden/tokenizer_folders/" + name;
}

// make_tokenizer_folders.py says what the texts are.
TEST(WordPieceTest, AHuggingFaceFolderGivesTheIdsThatTransformersGives) {
  for (const std::string name : {"cased", "uncased"}) {
    const Vocabulary vocabulary = Vocabulary::load(golden_folder(name));
    EXPECT_EQ(vocabulary.rules(), TokenizerRules::kTransformers);
    WordPieceTokenizer tokenizer(vocabulary, read_tokenizer_settings(golden_folder(name)));
    std::ifstream file(golden_folder(name) + "/texts.json");
    const auto texts = nlohmann::json::parse(file);
    for (const auto& text : texts) {
      std::vector<TokenId> ids;
      tokenizer.append_ids(text["text"].get<std::string>(), ids);
      EXPECT_EQ(ids, text["ids"].get<std::vector<TokenId>>()) << name << ": " << text["text"];
    }
    EXPECT_EQ(texts.size(), 17u);
  }
}

TEST(WordPieceTest, AddedTokensOfAnOlderFolderAreFoundInTheText) {
  const Vocabulary vocabulary = Vocabulary::load(golden_folder("cased-slow"));
  EXPECT_EQ(vocabulary.size(), Vocabulary::load(golden_folder("cased")).size());
  EXPECT_EQ(vocabulary_sha256(golden_folder("cased-slow")),
            vocabulary_sha256(golden_folder("cased")));
  EXPECT_THAT(wordpieces(vocabulary, "a newdrug[SEP]heart"),
              ElementsAre("a", "newdrug", "[SEP]", "heart"));
}

TEST(WordPieceTest, TheHashOfAFolderIsThatOfItsPlainVocabulary) {
  const TempFolder folder;
  const std::string file = folder.write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[MASK]\n[PAD]\na\n");
  EXPECT_EQ(vocabulary_sha256(folder.path()), vocabulary_sha256(file));
  EXPECT_EQ(Vocabulary::load(folder.path()).special().pad, 4);
}

TEST(WordPieceTest, SpecialTokensHaveTheNamesThatTheFolderGivesThem) {
  const TempFolder folder;
  folder.write("vocab.txt", "<unk>\n<s>\n</s>\n<pad>\n<mask>\na\n");
  folder.write("special_tokens_map.json",
               R"({"unk_token": "<unk>", "cls_token": {"content": "<s>"}, "sep_token": "</s>",
                   "pad_token": "<pad>", "mask_token": "<mask>"})");
  const Vocabulary vocabulary = Vocabulary::load(folder.path());
  EXPECT_EQ(vocabulary.special().classify, 1);
  EXPECT_THAT(wordpieces(vocabulary, "a <mask>b"), ElementsAre("a", "<mask>", "<unk>"));
}

TEST(WordPieceTest, ATokenizerOfAnotherKindIsNamed) {
  const auto message = [](const std::string& json) {
    const TempFolder folder;
    const std::string path = folder.write("tokenizer.json", json);
    return error_of([&] { Vocabulary::load(path); });
  };
  EXPECT_THAT(message(R"({"model": {"type": "BPE"}, "normalizer": {"type": "BertNormalizer"}})"),
              AllOf(HasSubstr("model"), HasSubstr("BPE"), HasSubstr("WordPiece")));
  EXPECT_THAT(message(R"({"model": {"type": "WordPiece"}, "normalizer": {"type": "NFKC"}})"),
              AllOf(HasSubstr("normalizer"), HasSubstr("BertNormalizer")));
  EXPECT_THAT(message("{"), HasSubstr("tokenizer.json"));
  const TempFolder empty;
  EXPECT_THAT(error_of([&] { Vocabulary::load(empty.path()); }),
              HasSubstr("neither vocab.txt nor tokenizer.json"));
}

TEST(WordPieceTest, SpecialTokensInTheTextAreText) {
  const Vocabulary vocabulary = published_vocabulary();
  EXPECT_THAT(wordpieces(vocabulary, "[MASK]"), ElementsAre("[", "mask", "]"));
  EXPECT_THAT(wordpieces(vocabulary, "##want"), ElementsAre("#", "#", "want"));
}

TEST(WordPieceTest, AWordOfMoreThan200CharactersIsUnknown) {
  const Vocabulary vocabulary(
      {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "##\u00F8"}, "test vocabulary");
  EXPECT_EQ(wordpieces(vocabulary, std::string(200, 'a')).size(), 200u);
  EXPECT_THAT(wordpieces(vocabulary, std::string(201, 'a')), ElementsAre("[UNK]"));
  std::string accented = "a";  // 200 characters in 399 bytes
  for (int i = 0; i < 199; ++i) accented += "\u00F8";
  EXPECT_EQ(wordpieces(vocabulary, accented).size(), 200u);
  EXPECT_THAT(wordpieces(vocabulary, accented + "a a"), ElementsAre("[UNK]", "a"));
}

TEST(WordPieceTest, TheCacheForgetsWithoutChangingResults) {
  const Vocabulary vocabulary = published_vocabulary();
  WordPieceTokenizer tokenizer(vocabulary);
  std::vector<TokenId> ids;
  // More different words than the cache holds, each asked twice.
  for (int64_t word = 0; word < 600'000; ++word) {
    ids.clear();
    const std::string text = concat("x", word, " want want");
    tokenizer.append_ids(text, ids);
    ASSERT_EQ(ids, (std::vector<TokenId>{1, 5, 5})) << text;
  }
}

TEST(WordPieceTest, RandomBytesThatAreUtf8NeverFail) {
  const Vocabulary vocabulary = published_vocabulary();
  WordPieceTokenizer tokenizer(vocabulary);
  std::mt19937 random(11);
  int64_t num_valid = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes;
    for (size_t n = random() % 24; n > 0; --n) {
      bytes += static_cast<char>(random() % (round % 2 == 0 ? 256 : 128));
    }
    if (first_invalid_utf8(bytes)) continue;
    ++num_valid;
    std::vector<TokenId> ids;
    tokenizer.append_ids(strip(bytes), ids);
    for (const TokenId id : ids) ASSERT_LT(id, vocabulary.size());
  }
  EXPECT_GT(num_valid, 5'000);
}

}  // namespace
}  // namespace bertha
