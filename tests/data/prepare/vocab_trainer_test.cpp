#include "data/prepare/vocab_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "data/prepare/pair_merger.h"
#include "data/prepare/part_reader.h"
#include "data/prepare/vocabulary.h"
#include "data/prepare/wordpiece.h"
#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"
#include "tests/data/prepare/golden_samples.h"

namespace bertha {
namespace {

TEST(SpecialWordpiecesTest, StandWhereBertHasThemAndInProportion) {
  const std::vector<std::string> bert = special_wordpieces(30522);
  ASSERT_EQ(bert.size(), 999u);
  EXPECT_EQ(bert[0], "[PAD]");
  EXPECT_EQ(bert[1], "[unused0]");
  EXPECT_EQ(bert[99], "[unused98]");
  EXPECT_THAT(std::vector(bert.begin() + 100, bert.begin() + 105),
              ElementsAre("[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused99]"));
  EXPECT_EQ(bert.back(), "[unused993]");

  const std::vector<std::string> small = special_wordpieces(4000);  // 130 unused, 12 of them before
  EXPECT_EQ(small.size(), 135u);
  EXPECT_EQ(small[13], "[UNK]");
  EXPECT_EQ(small[16], "[MASK]");
  EXPECT_EQ(special_wordpieces(128)[1], "[UNK]");
  EXPECT_THROW(special_wordpieces(127), Error);
  EXPECT_EQ(special_wordpieces(119547).back(), "[unused3892]");
  EXPECT_THROW(special_wordpieces(1'000'001), Error);
}

/// All pairs counted anew for every merge.
class PlainMerger {
 public:
  using Word = std::pair<std::vector<int32_t>, int64_t>;
  explicit PlainMerger(std::vector<Word> words) : words_(std::move(words)) {}

  std::pair<std::pair<int32_t, int32_t>, int64_t> most_frequent() const {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& [symbols, count] : words_) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i) counts[{symbols[i], symbols[i + 1]}] += count;
    }
    std::pair<std::pair<int32_t, int32_t>, int64_t> best{{-1, -1}, 0};
    for (const auto& entry : counts) {
      if (entry.second > best.second) best = entry;
    }
    return best;
  }

  void merge(std::pair<int32_t, int32_t> pair, int32_t merged) {
    for (auto& [symbols, count] : words_) {
      std::vector<int32_t> joined;
      for (size_t i = 0; i < symbols.size(); ++i) {
        const bool here =
            i + 1 < symbols.size() && symbols[i] == pair.first && symbols[i + 1] == pair.second;
        joined.push_back(here ? merged : symbols[i]);
        if (here) ++i;
      }
      symbols = joined;
    }
  }

 private:
  std::vector<Word> words_;
};

TEST(PairMergerTest, MergesWhatCountingAnewWouldMerge) {
  for (const uint32_t seed : {1u, 2u, 3u, 4u}) {
    std::mt19937 random(seed);
    std::vector<PlainMerger::Word> words;
    PairMerger merger;
    for (int i = 0; i < 200; ++i) {
      std::vector<int32_t> symbols;
      for (size_t n = 1 + random() % 9; n > 0; --n) {
        symbols.push_back(static_cast<int32_t>(random() % (2 + seed)));
      }
      const auto count = static_cast<int64_t>(1 + random() % 50);
      words.emplace_back(symbols, count);
      merger.add_word(symbols, count);
    }
    PlainMerger plain(words);
    for (int32_t merged = 10; merged < 150; ++merged) {
      const auto [wanted, count] = plain.most_frequent();
      const auto found = merger.most_frequent(2);
      if (count < 2) {
        ASSERT_FALSE(found);
        break;
      }
      ASSERT_TRUE(found);
      ASSERT_EQ(std::pair(found->left, found->right), wanted) << "merge " << merged;
      // Now and then a symbol that exists already, as when two pairs spell the same wordpiece.
      const int32_t target = merged % 7 == 0 ? merged - 3 : merged;
      plain.merge(wanted, target);
      merger.merge(*found, target);
    }
  }
}

TEST(TrainWordpiecesTest, JoinsTheMostFrequentNeighbours) {
  const std::vector<WordCount> words{{"hug", 10}, {"pug", 5}, {"pun", 12}, {"bun", 4}, {"hugs", 5}};
  // 128 wordpieces: 9 special and unused ones, 7 characters, and few merges.
  // h p b ##u ##g ##n ##s; ##ug ##un hug pun pug hugs bun
  EXPECT_THAT(
      error_of([&] { train_wordpieces(words, 128, [](int64_t) {}); }),
      HasSubstr(concat("yields only ", 9 + 7 + 7, " wordpieces, want 128; give more text")));
}

TEST(TrainWordpiecesTest, WordsOfLateCharactersAreJoinedToo) {
  std::vector<WordCount> words{{"kq", 50}, {"z", 1}};
  for (char last = 0; last < 100; ++last) {
    for (const char* first : {"\xe4\xb8", "\xe4\xb9", "\xe4\xba"}) {
      words.push_back(
          {concat(first, static_cast<char>(0x80 + last % 64), last < 64 ? "" : "x"), 100});
    }
  }
  // 400 wordpieces: 18 special and unused ones; 192 ideographs, ##x, k, ##q and z; 108 words with
  // ##x, and kq.
  EXPECT_THAT(error_of([&] { train_wordpieces(words, 400, [](int64_t) {}); }),
              HasSubstr(concat("yields only ", 18 + 192 + 4 + 108 + 1, " wordpieces, want 400")));
}

// chinese_vocab.txt is what Hugging Face's tokenizers trains: tests/golden/make_chinese_golden.py.
TEST(TrainVocabularyTest, GetsTheWordpiecesOfChineseThatHuggingFaceGets) {
  const std::string text = golden_path("../chinese.txt");
  const auto train = [&](int64_t size) {
    return Vocabulary(
        train_vocabulary({.inputs = {text}, .num_wordpieces = size, .workers = 1}, {}), "ours");
  };
  const auto count_unknown = [&](const Vocabulary& vocabulary) {
    WordPieceTokenizer tokenizer(vocabulary);
    const Documents documents = read_documents(text, tokenizer, [](int64_t) {});
    return std::ranges::count(documents.token_ids, vocabulary.special().unknown);
  };
  const auto characters_of = [](const Vocabulary& vocabulary) {
    std::set<std::string> characters;
    for (int64_t id = 0; id < vocabulary.size(); ++id) {
      const std::string& wordpiece = vocabulary.wordpiece(id);
      if (static_cast<unsigned char>(wordpiece.front()) >= 0x80) characters.insert(wordpiece);
    }
    return characters;
  };
  std::istringstream golden(bytes_of(golden_path("../chinese_vocab.txt")));
  using Word = std::istream_iterator<std::string>;
  const Vocabulary theirs(std::vector<std::string>(Word(golden), Word()), "theirs");
  // 404 characters of Chinese; theirs holds each Latin letter twice, ours where it occurs.
  const Vocabulary ours = train(461);
  EXPECT_EQ(characters_of(ours), characters_of(theirs));
  EXPECT_EQ(characters_of(ours).size(), 404u);
  EXPECT_EQ(count_unknown(ours), 0);
  EXPECT_EQ(count_unknown(theirs), 0);
  EXPECT_THAT(error_of([&] { train(462); }), HasSubstr("ask for a vocabulary of at most 461 "));
  // If not all fit, the rarest are left out, which occur at most three times in the mean.
  const Vocabulary small = train(300);
  EXPECT_LE(count_unknown(small), 3 * (404 - std::ssize(characters_of(small))));
}

std::vector<std::string> train_on_golden_text(int64_t num_wordpieces, int workers) {
  return train_vocabulary(
      {.inputs = {golden_path("many_documents.txt"), golden_path("single_document.txt")},
       .num_wordpieces = num_wordpieces,
       .workers = workers},
      {});
}

TEST(TrainVocabularyTest, HasTheSizeAskedForAndSplitsItsTextIntoFewWordpieces) {
  const TempFolder folder;
  std::vector<size_t> num_tokens;
  for (const int64_t size : {200, 330}) {
    const std::vector<std::string> wordpieces = train_on_golden_text(size, 1);
    ASSERT_EQ(static_cast<int64_t>(wordpieces.size()), size);
    write_vocabulary(folder.path("vocab.txt"), wordpieces);
    const Vocabulary vocabulary = Vocabulary::load(folder.path("vocab.txt"));
    EXPECT_EQ(vocabulary.size(), size);
    WordPieceTokenizer tokenizer(vocabulary);
    std::vector<TokenId> ids;
    tokenizer.append_ids("The miller counted seven sacks of flour before noon.", ids);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), vocabulary.special().unknown), 0);
    num_tokens.push_back(ids.size());
  }
  EXPECT_LT(num_tokens[1], num_tokens[0]) << "more wordpieces, longer wordpieces";
}

// Fewer wordpieces have fewer unused ones among them.
TEST(TrainVocabularyTest, TheSizeThatARefusalNamesIsTheLargestOne) {
  const std::string said = error_of([] { train_on_golden_text(30000, 1); });
  const std::string before = "ask for a vocabulary of at most ";
  ASSERT_THAT(said, HasSubstr(before));
  const int64_t most = std::stoll(said.substr(said.find(before) + before.size()));
  EXPECT_EQ(std::ssize(train_on_golden_text(most, 1)), most);
  EXPECT_THAT(error_of([&] { train_on_golden_text(most + 1, 1); }),
              HasSubstr(concat(before, most, " or")));
}

TEST(TrainVocabularyTest, IsTheSameForAnyNumberOfWorkers) {
  EXPECT_EQ(train_on_golden_text(300, 1), train_on_golden_text(300, 3));
}

TEST(TrainVocabularyTest, TellsItsProgressAndCountsAllText) {
  std::map<std::string, std::pair<int64_t, int64_t>> last;  // done and total of the phases
  train_vocabulary({.inputs = {golden_path("many_documents.txt")}, .num_wordpieces = 300},
                   [&](const std::string& phase, const std::string&, int64_t done, int64_t total) {
                     EXPECT_GE(done, last[phase].first);
                     last[phase] = {done, total};
                   });
  EXPECT_EQ(last.at("read").first, last.at("read").second);
  EXPECT_GT(last.at("read").second, 10'000);
  EXPECT_EQ(last.at("train"), std::pair(int64_t{300}, int64_t{300}));
}

TEST(TrainVocabularyTest, TextWithoutWordsIsAnError) {
  const TempFolder folder;
  write_bytes(folder.path("blank.txt"), "\n \n\n");
  EXPECT_THAT(
      error_of([&] { train_vocabulary({.inputs = {folder.path()}, .num_wordpieces = 200}, {}); }),
      AllOf(HasSubstr("blank.txt"), HasSubstr("no words")));
}

TEST(CountWordsTest, CountsBasicTokensMostFrequentFirst) {
  const TempFolder folder;
  write_bytes(folder.path("a.txt"), "The cat. the caf\u00e9\n" + std::string(201, 'x') + " b");
  write_bytes(folder.path("b.txt"), "THE Caf\u00c9 b " + std::string(200, 'y'));
  const auto count = [&](const TokenizerSettings& settings) {
    std::vector<std::string> found;
    for (const WordCount& word :
         count_words(list_source_files({folder.path()}, MissingFiles::kRefuse), settings, "text", 2,
                     [](int64_t) {})) {
      found.push_back(concat(word.word, ' ', word.count));
    }
    return found;
  };
  const std::string longest = std::string(200, 'y') + " 1";
  EXPECT_THAT(count({}), ElementsAre("the 3", "b 2", "cafe 2", ". 1", "cat 1", longest));
  EXPECT_THAT(count({.do_lower_case = false, .strip_accents = false}),
              ElementsAre("b 2", ". 1", "Caf\u00c9 1", "THE 1", "The 1", "caf\u00e9 1", "cat 1",
                          "the 1", longest));
}

}  // namespace
}  // namespace bertha
