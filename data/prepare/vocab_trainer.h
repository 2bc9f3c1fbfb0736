#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/files/for_each_parallel.h"
#include "data/files/tokenizer_settings.h"
#include "data/prepare/source_files.h"

namespace bertha {

struct WordCount {
  std::string word;  // a basic token, at most 200 characters
  int64_t count = 0;
};

/// How often each basic token occurs in the texts, most frequent first, equals in byte order.
/// `field`: for JSON lines and tables.
/// `on_bytes` is called with the bytes of text read, by one thread at a time.
///
/// Exact     whatever the number of workers (0 = one per processor).
/// Errors    as read_source.
std::vector<WordCount> count_words(const std::vector<SourceFile>& sources,
                                   const TokenizerSettings& settings, const std::string& field,
                                   int workers, const std::function<void(int64_t bytes)>& on_bytes);

struct VocabOptions {
  std::vector<std::string> inputs;  // texts, or folders of them: see source_files.h
  MissingFiles missing = MissingFiles::kRefuse;
  std::string field = "text";  // for JSON lines and tables
  TokenizerSettings tokenizer = {};
  int64_t num_wordpieces = 30522;  // requested, special and unused entries included
  int workers = 0;                 // threads that read; 0 = one per processor
};

/// [PAD], then [UNK], [CLS], [SEP], [MASK], with as many [unusedN] before and after them as BERT
/// has in proportion: at 30,522 wordpieces exactly BERT's lines 1 to 999.
/// Error(kUsage): num_wordpieces outside 128 .. kMaxVocabEntries.
std::vector<std::string> special_wordpieces(int64_t num_wordpieces);

/// Wordpieces of the words: the special ones; the most frequent single characters (num_wordpieces /
/// 15 of them, at least 160, at most half of the rest); then, one by one, whichever is more
/// frequent: the next character, or the most frequent pair of neighbouring wordpieces joined; among
/// equally frequent pairs, the pair with the older wordpieces. So a language of many characters,
/// whose ideographs are words of their own and never join, gets as many of them as the size allows.
///
/// Exact     a function of the words.
/// Errors    as special_wordpieces; Error(kData): the words do not give that many wordpieces (a
///           pair must occur twice).
/// Source    Sennrich, Haddow, Birch: Neural machine translation of rare words with subword units
///           (2016), with the wordpieces written as WordPiece writes them.
std::vector<std::string> train_wordpieces(
    const std::vector<WordCount>& words, int64_t num_wordpieces,
    const std::function<void(int64_t wordpieces)>& on_wordpieces);

/// Text -> vocabulary of exactly num_wordpieces wordpieces, in file order.
///
/// Errors    as list_source_files, count_words and train_wordpieces.
std::vector<std::string> train_vocabulary(const VocabOptions& options,
                                          const WorkProgress& progress);

/// One wordpiece per line; the file appears by rename. Error(kData) with the path and the reason.
void write_vocabulary(const std::string& path, const std::vector<std::string>& wordpieces);

}  // namespace bertha
