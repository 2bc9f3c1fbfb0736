#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/prepare/word_counts.h"

namespace bertha {

struct VocabOptions {
  std::vector<std::string> inputs;  // text files, or folders of them: see source_files.h
  MissingFiles missing = MissingFiles::kRefuse;
  int64_t num_pieces = 30522;  // wanted, special and unused entries included
  int workers = 0;             // threads that read; 0 = one per processor
};

struct VocabProgress {
  int64_t text_bytes_done = 0;
  int64_t text_bytes_total = 0;
  int64_t pieces_done = 0;
  int64_t pieces_total = 0;
  double elapsed_ms = 0;
};
using VocabCallback = std::function<void(const VocabProgress&)>;

/// [PAD], then [UNK], [CLS], [SEP], [MASK], with as many [unusedN] before and after them as BERT
/// has in proportion: at 30,522 pieces exactly BERT's lines 1 to 999.
/// Error(kUsage): num_pieces outside 128 .. 32,768.
std::vector<std::string> special_pieces(int64_t num_pieces);

/// Word pieces of the words: the special ones; the most frequent single characters (num_pieces / 15
/// of them, at least 160, at most half of the rest); then, one by one, the most frequent pair of
/// neighbouring pieces joined, of equal ones that with the older pieces.
///
/// Exact     a function of the words.
/// Errors    those of special_pieces; Error(kData): the words do not give that many pieces (a pair
///           must occur twice).
/// Source    Sennrich, Haddow, Birch: Neural machine translation of rare words with subword units
///           (2016), with the pieces written as WordPiece writes them.
std::vector<std::string> train_pieces(const std::vector<WordCount>& words, int64_t num_pieces,
                                      const std::function<void(int64_t pieces)>& on_pieces);

/// Text -> vocabulary of exactly num_pieces pieces, in file order.
///
/// Errors    those of list_source_files, count_words and train_pieces.
std::vector<std::string> train_vocabulary(const VocabOptions& options,
                                          const VocabCallback& on_progress);

/// One piece per line; the file appears by rename. Error(kData) with the path and the reason.
void write_vocabulary(const std::string& path, const std::vector<std::string>& pieces);

}  // namespace bertha
