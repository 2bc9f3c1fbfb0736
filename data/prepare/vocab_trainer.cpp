#include "data/prepare/vocab_trainer.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/files/new_file.h"
#include "data/prepare/ascii_words.h"
#include "data/prepare/pair_merger.h"
#include "data/prepare/source_reader.h"
#include "data/prepare/unicode_text.h"
#include "data/prepare/vocabulary.h"
#include "data/prepare/wordpiece.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kMinWordpieces = 128;
constexpr int64_t kMinPairCount = 2;  // a pair seen once teaches nothing
constexpr int64_t kWordpiecesPerReport = 256;
// Characters before the first pair: as many in proportion as the published vocabulary has, but
// enough for English.
constexpr int64_t kWordpiecesPerCharacter = 15;
constexpr int64_t kMinCharacters = 160;

// The published vocabulary: 30,522 wordpieces, 99 unused ones before [UNK] and 895 after [MASK].
constexpr int64_t kBertWordpieces = 30522;
constexpr int64_t kBertSpecial = 5;
constexpr int64_t kBertUnused = 994;
constexpr int64_t kBertUnusedBefore = 99;

/// [unusedN] of a vocabulary.
int64_t count_unused(int64_t num_wordpieces) {
  return num_wordpieces * kBertUnused / kBertWordpieces;
}

/// What to do if the text yields only `num_learned` wordpieces in addition to the special ones.
std::string advice_for(int64_t num_learned, int64_t num_wordpieces) {
  while (num_wordpieces - kBertSpecial - count_unused(num_wordpieces) > num_learned) {
    --num_wordpieces;
  }
  if (num_wordpieces < kMinWordpieces) return "give more text";
  return concat("ask for a vocabulary of at most ", num_wordpieces, " or give more text");
}

/// The characters of a word as wordpieces: "c", "##a", "##t".
std::vector<std::string> character_wordpieces(std::string_view word) {
  std::vector<std::string> wordpieces;
  for (size_t start = 0; start < word.size();) {
    size_t end = start + 1;
    while (end < word.size() && !starts_character(word[end])) ++end;
    wordpieces.push_back(concat(start == 0 ? "" : "##", word.substr(start, end - start)));
    start = end;
  }
  return wordpieces;
}

/// Wordpieces under construction, in file order.
class WordpieceTable {
 public:
  explicit WordpieceTable(std::vector<std::string> wordpieces)
      : wordpieces_(std::move(wordpieces)) {
    for (size_t i = 0; i < wordpieces_.size(); ++i) ids_[wordpieces_[i]] = static_cast<int32_t>(i);
  }

  int64_t size() const { return static_cast<int64_t>(wordpieces_.size()); }
  const std::string& wordpiece(int32_t id) const { return wordpieces_[static_cast<size_t>(id)]; }
  std::vector<std::string> take() { return std::move(wordpieces_); }

  /// -1 if the wordpiece does not exist.
  int32_t find(const std::string& wordpiece) const {
    const auto found = ids_.find(wordpiece);
    return found == ids_.end() ? -1 : found->second;
  }

  /// The id of the wordpiece, new or not: two pairs may join to the same wordpiece.
  int32_t add(const std::string& wordpiece) {
    const auto [entry, is_new] = ids_.emplace(wordpiece, static_cast<int32_t>(wordpieces_.size()));
    if (is_new) wordpieces_.push_back(wordpiece);
    return entry->second;
  }

 private:
  std::vector<std::string> wordpieces_;
  std::unordered_map<std::string, int32_t> ids_;
};

using Counts = std::unordered_map<std::string, int64_t, StringHash, std::equal_to<>>;

void add(Counts& counts, std::string_view text, int64_t count) {
  const auto found = counts.find(text);
  if (found != counts.end()) {
    found->second += count;
  } else {
    counts.emplace(text, count);
  }
}

/// Most frequent first, equals in byte order.
std::vector<WordCount> ranked(const Counts& counts) {
  std::vector<WordCount> words;
  for (const auto& [word, count] : counts) words.push_back({.word = word, .count = count});
  std::ranges::sort(words, [](const WordCount& a, const WordCount& b) {
    return a.count != b.count ? a.count > b.count : a.word < b.word;
  });
  return words;
}

/// The single-character wordpieces of the words.
std::vector<WordCount> ranked_characters(const std::vector<WordCount>& words) {
  Counts counts;
  for (const WordCount& word : words) {
    for (const std::string& wordpiece : character_wordpieces(word.word)) {
      add(counts, wordpiece, word.count);
    }
  }
  return ranked(counts);
}

/// Characters in byte order, those inside words last.
std::vector<std::string> in_byte_order(std::span<const WordCount> characters) {
  std::vector<std::string> wordpieces;
  for (const WordCount& entry : characters) wordpieces.push_back(entry.word);
  const auto is_inside = [](const std::string& wordpiece) { return wordpiece.starts_with("##"); };
  std::ranges::sort(wordpieces, [&](const std::string& a, const std::string& b) {
    return is_inside(a) != is_inside(b) ? is_inside(b) : a < b;
  });
  return wordpieces;
}

/// Gives words to a merger, each as soon as all of its characters are wordpieces.
class WordSpeller {
 public:
  WordSpeller(const WordpieceTable& table, PairMerger& merger) : table_(table), merger_(merger) {}

  /// The word must outlive the speller.
  void add(const WordCount& word) {
    std::vector<int32_t> symbols;
    for (const std::string& wordpiece : character_wordpieces(word.word)) {
      symbols.push_back(table_.find(wordpiece));
      if (symbols.back() < 0) return waiting_[wordpiece].push_back(&word);
    }
    if (symbols.size() > 1) merger_.add_word(std::move(symbols), word.count);
  }
  void on_new_character(const std::string& wordpiece) {
    for (const WordCount* word : std::exchange(waiting_[wordpiece], {})) add(*word);
  }

 private:
  const WordpieceTable& table_;
  PairMerger& merger_;
  // Words by their first character that is not yet a wordpiece.
  std::unordered_map<std::string, std::vector<const WordCount*>> waiting_;
};

Counts count_words_of(const SourceFile& source, const TokenizerSettings& settings,
                      const std::string& field, const std::function<void(int64_t)>& on_bytes) {
  Counts words;
  Counts chunks;  // text that needs Unicode: split once for all its occurrences
  const auto count_line = [&](std::string_view line) {
    split_words(
        strip(line), settings.do_lower_case, [&](std::string_view word) { add(words, word, 1); },
        [&](std::string_view chunk) { add(chunks, chunk, 1); });
  };
  read_source(source, DocumentForm::kFile, field,
              {.line = count_line, .end_document = [] {}, .bytes = on_bytes});
  for (const auto& [chunk, count] : chunks) {
    for (const std::string& word : basic_tokens(chunk, settings)) add(words, word, count);
  }
  return words;
}

}  // namespace

std::vector<WordCount> count_words(const std::vector<SourceFile>& sources,
                                   const TokenizerSettings& settings, const std::string& field,
                                   int workers,
                                   const std::function<void(int64_t bytes)>& on_bytes) {
  Counts total;
  std::mutex mutex;
  for_each_parallel(static_cast<int64_t>(sources.size()), workers,
                    [&](int64_t index, const std::function<bool()>& cancelled) {
                      const Counts words = count_words_of(
                          sources[static_cast<size_t>(index)], settings, field, [&](int64_t bytes) {
                            if (cancelled()) throw Cancelled();
                            const std::lock_guard<std::mutex> lock(mutex);
                            on_bytes(bytes);
                          });
                      const std::lock_guard<std::mutex> lock(mutex);
                      for (const auto& [word, count] : words) add(total, word, count);
                    });
  std::erase_if(total, [](const auto& entry) {
    return count_characters(entry.first) > WordPieceTokenizer::kMaxCharactersPerWord;
  });
  return ranked(total);
}

std::vector<std::string> special_wordpieces(int64_t num_wordpieces) {
  if (num_wordpieces < kMinWordpieces || num_wordpieces > kMaxVocabEntries) {
    fail(ExitCode::kUsage, "--size ", num_wordpieces, ", want ", kMinWordpieces, " to ",
         kMaxVocabEntries);
  }
  const int64_t num_unused = count_unused(num_wordpieces);
  const int64_t num_before = num_wordpieces * kBertUnusedBefore / kBertWordpieces;
  std::vector<std::string> wordpieces{"[PAD]"};
  for (int64_t i = 0; i < num_unused; ++i) {
    if (i == num_before) wordpieces.insert(wordpieces.end(), {"[UNK]", "[CLS]", "[SEP]", "[MASK]"});
    wordpieces.push_back(concat("[unused", i, "]"));
  }
  return wordpieces;
}

std::vector<std::string> train_wordpieces(
    const std::vector<WordCount>& words, int64_t num_wordpieces,
    const std::function<void(int64_t wordpieces)>& on_wordpieces) {
  WordpieceTable table(special_wordpieces(num_wordpieces));
  const int64_t num_special = table.size();
  const int64_t first_characters =
      std::min((num_wordpieces - table.size()) / 2,
               std::max(kMinCharacters, num_wordpieces / kWordpiecesPerCharacter));
  const std::vector<WordCount> characters = ranked_characters(words);
  size_t next = std::min(characters.size(), static_cast<size_t>(first_characters));
  for (const std::string& wordpiece : in_byte_order(std::span(characters).first(next)))
    table.add(wordpiece);
  PairMerger merger;
  WordSpeller speller(table, merger);
  for (const WordCount& word : words) speller.add(word);
  while (table.size() < num_wordpieces) {
    const std::optional<PairMerger::Pair> pair = merger.most_frequent(kMinPairCount);
    const bool has_character = next < characters.size();
    if (has_character && (!pair || characters[next].count >= pair->count)) {
      const std::string& character = characters[next++].word;
      table.add(character);
      speller.on_new_character(character);
    } else if (pair) {
      merger.merge(*pair,
                   table.add(table.wordpiece(pair->left) + table.wordpiece(pair->right).substr(2)));
    } else {
      fail(ExitCode::kData, "the text yields only ", table.size(), " wordpieces, want ",
           num_wordpieces, "; ", advice_for(table.size() - num_special, num_wordpieces));
    }
    if (table.size() % kWordpiecesPerReport == 0) on_wordpieces(table.size());
  }
  return table.take();
}

std::vector<std::string> train_vocabulary(const VocabOptions& options,
                                          const WorkProgress& progress) {
  const std::vector<SourceFile> sources = list_source_files(options.inputs, options.missing);
  SharedProgress text(progress_of(progress, "read", "B of text"), total_bytes(sources));
  const std::vector<WordCount> words =
      count_words(sources, options.tokenizer, options.field, options.workers,
                  [&](int64_t bytes) { text.add(bytes); });
  if (words.empty()) {
    fail(ExitCode::kData, sources.front().path, ": no words in the input text (", sources.size(),
         " files), want sentences, one per line");
  }
  const auto tell = [&](int64_t num_wordpieces) {
    if (progress) progress("train", "wordpieces", num_wordpieces, options.num_wordpieces);
  };
  std::vector<std::string> wordpieces = train_wordpieces(words, options.num_wordpieces, tell);
  tell(options.num_wordpieces);
  return wordpieces;
}

void write_vocabulary(const std::string& path, const std::vector<std::string>& wordpieces) {
  std::string text;
  for (const std::string& wordpiece : wordpieces) text += wordpiece + "\n";
  write_new_file(path, text);
}

}  // namespace bertha
