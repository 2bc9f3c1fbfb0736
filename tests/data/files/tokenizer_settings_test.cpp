#include "data/files/tokenizer_settings.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

constexpr TokenizerSettings kCased{.do_lower_case = false, .strip_accents = false};

TEST(TokenizerSettings, AreThoseOfTheFolderWithTheDefaultsOfTransformers) {
  const TempFolder folder;
  const std::string vocab = folder.path("vocab.txt");
  EXPECT_EQ(tokenizer_config_path(vocab), folder.path("tokenizer_config.json"));
  EXPECT_EQ(read_tokenizer_settings(vocab), TokenizerSettings()) << "no file";
  const auto read = [&](const std::string& text) {
    folder.write("tokenizer_config.json", text);
    EXPECT_EQ(read_tokenizer_settings(folder.path()), read_tokenizer_settings(vocab));
    return read_tokenizer_settings(vocab);
  };
  EXPECT_EQ(read(R"({"tokenizer_class": "BertTokenizer"})"), TokenizerSettings());
  EXPECT_EQ(read(R"({"do_lower_case": false})"), kCased);
  EXPECT_EQ(read(R"({"strip_accents": null, "do_lower_case": false})"), kCased);
  EXPECT_EQ(read(R"({"strip_accents": null})"), TokenizerSettings());
  EXPECT_EQ(read(R"({"strip_accents": false})"), (TokenizerSettings{.strip_accents = false}));
  EXPECT_EQ(read(R"({"do_lower_case": false, "strip_accents": true})"),
            (TokenizerSettings{.do_lower_case = false}));
  EXPECT_EQ(read(R"({"tokenize_chinese_chars": false})"),
            (TokenizerSettings{.tokenize_chinese_chars = false}));
  for (const TokenizerSettings& settings : {kCased, TokenizerSettings{.strip_accents = false}}) {
    EXPECT_EQ(read(tokenizer_config(settings, 512)), settings);
  }
}

TEST(TokenizerSettings, WhatIsNoSettingIsRefusedByFileAndField) {
  const TempFolder folder;
  for (const auto& [text, what] :
       {std::pair(R"({"do_lower_case": "no"})", "field do_lower_case"),
        std::pair(R"({"do_lower_case": null})", "want true or false"),
        std::pair(R"({"strip_accents": 1})", "field strip_accents"),
        std::pair("[]", "want an object"), std::pair("{", "not valid JSON")}) {
    folder.write("tokenizer_config.json", text);
    EXPECT_THAT(error_of([&] { read_tokenizer_settings(folder.path()); }),
                AllOf(HasSubstr(folder.path("tokenizer_config.json")), HasSubstr(what)));
  }
}

TEST(TokenizerSettings, AFolderThatStatesNothingIsCasedIfItsVocabularyHasCapitals) {
  const TempFolder folder;
  const std::string file = folder.write("vocab.txt", "[PAD]\n[UNK]\nthe\n##ing\n");
  EXPECT_TRUE(read_tokenizer_settings(folder.path()).do_lower_case);
  folder.write("vocab.txt", "[PAD]\n[UNK]\nthe\n##G\n");
  EXPECT_FALSE(read_tokenizer_settings(folder.path()).do_lower_case);
  EXPECT_FALSE(read_tokenizer_settings(folder.path()).strip_accents);
  EXPECT_TRUE(read_tokenizer_settings(file).do_lower_case) << "a bare file is read as published";
  folder.write("tokenizer_config.json", R"({"do_lower_case": true})");
  EXPECT_TRUE(read_tokenizer_settings(folder.path()).do_lower_case);
}

}  // namespace
}  // namespace bertha
