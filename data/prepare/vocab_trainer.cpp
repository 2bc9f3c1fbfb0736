#include "data/prepare/vocab_trainer.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/files/new_file.h"
#include "data/prepare/pair_merger.h"
#include "data/prepare/unicode_text.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kFewestPieces = 128;
constexpr int64_t kMostPieces = 32768;  // ids are int16
constexpr int64_t kLeastPairCount = 2;  // a pair seen once teaches nothing
constexpr int64_t kPiecesPerReport = 256;
// Single characters: as many in proportion as the published vocabulary has, but enough for English.
constexpr int64_t kPiecesPerCharacter = 15;
constexpr int64_t kFewestCharacters = 160;

// The published vocabulary: 30,522 pieces, 99 unused ones before [UNK] and 895 after [MASK].
constexpr int64_t kBertPieces = 30522;
constexpr int64_t kBertUnused = 994;
constexpr int64_t kBertUnusedBefore = 99;

/// The characters of a word as pieces: "c", "##a", "##t".
std::vector<std::string> character_pieces(std::string_view word) {
  std::vector<std::string> pieces;
  for (size_t start = 0; start < word.size();) {
    size_t end = start + 1;
    while (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xc0) == 0x80) ++end;
    pieces.push_back(concat(start == 0 ? "" : "##", word.substr(start, end - start)));
    start = end;
  }
  return pieces;
}

/// Pieces under construction, in file order.
class PieceTable {
 public:
  explicit PieceTable(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
    for (size_t i = 0; i < pieces_.size(); ++i) ids_[pieces_[i]] = static_cast<int32_t>(i);
  }

  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  const std::string& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  std::vector<std::string> take() { return std::move(pieces_); }

  /// -1 when there is no such piece.
  int32_t find(const std::string& piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? -1 : found->second;
  }

  /// The id of the piece, new or not: two pairs may join to the same piece.
  int32_t add(const std::string& piece) {
    const auto [entry, is_new] = ids_.emplace(piece, static_cast<int32_t>(pieces_.size()));
    if (is_new) pieces_.push_back(piece);
    return entry->second;
  }

 private:
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, int32_t> ids_;
};

/// The `most` most frequent single-character pieces, in byte order, those inside words last.
std::vector<std::string> frequent_characters(const std::vector<WordCount>& words, int64_t most) {
  std::unordered_map<std::string, int64_t> counts;
  for (const WordCount& word : words) {
    for (const std::string& piece : character_pieces(word.word)) counts[piece] += word.count;
  }
  std::vector<WordCount> ranked;
  for (const auto& [piece, count] : counts) ranked.push_back({.word = piece, .count = count});
  std::sort(ranked.begin(), ranked.end(), [](const WordCount& a, const WordCount& b) {
    return a.count != b.count ? a.count > b.count : a.word < b.word;
  });
  ranked.resize(static_cast<size_t>(std::min(most, static_cast<int64_t>(ranked.size()))));
  std::vector<std::string> pieces;
  for (WordCount& entry : ranked) pieces.push_back(std::move(entry.word));
  const auto is_inside = [](const std::string& piece) { return piece.starts_with("##"); };
  std::sort(pieces.begin(), pieces.end(), [&](const std::string& a, const std::string& b) {
    return is_inside(a) != is_inside(b) ? is_inside(b) : a < b;
  });
  return pieces;
}

/// The words whose characters are all among the pieces.
PairMerger spelled_words(const std::vector<WordCount>& words, const PieceTable& table) {
  PairMerger merger;
  for (const WordCount& word : words) {
    std::vector<int32_t> symbols;
    for (const std::string& piece : character_pieces(word.word)) {
      symbols.push_back(table.find(piece));
    }
    const bool is_spelled = std::find(symbols.begin(), symbols.end(), -1) == symbols.end();
    if (is_spelled && symbols.size() > 1) merger.add_word(std::move(symbols), word.count);
  }
  merger.start();
  return merger;
}

}  // namespace

std::vector<std::string> special_pieces(int64_t num_pieces) {
  if (num_pieces < kFewestPieces || num_pieces > kMostPieces) {
    fail(ExitCode::kUsage, "--size ", num_pieces, ", want ", kFewestPieces, " to ", kMostPieces,
         " (shards store ids as int16)");
  }
  const int64_t num_unused = num_pieces * kBertUnused / kBertPieces;
  const int64_t num_before = num_pieces * kBertUnusedBefore / kBertPieces;
  std::vector<std::string> pieces{"[PAD]"};
  for (int64_t i = 0; i < num_unused; ++i) {
    if (i == num_before) pieces.insert(pieces.end(), {"[UNK]", "[CLS]", "[SEP]", "[MASK]"});
    pieces.push_back(concat("[unused", i, "]"));
  }
  return pieces;
}

std::vector<std::string> train_pieces(const std::vector<WordCount>& words, int64_t num_pieces,
                                      const std::function<void(int64_t pieces)>& on_pieces) {
  PieceTable table(special_pieces(num_pieces));
  const int64_t most_characters =
      std::min((num_pieces - table.size()) / 2,
               std::max(kFewestCharacters, num_pieces / kPiecesPerCharacter));
  for (const std::string& piece : frequent_characters(words, most_characters)) table.add(piece);
  PairMerger merger = spelled_words(words, table);
  while (table.size() < num_pieces) {
    const std::optional<PairMerger::Pair> pair = merger.most_frequent(kLeastPairCount);
    if (!pair) {
      fail(ExitCode::kData, "the text gives ", table.size(), " word pieces, want ", num_pieces,
           "; ask for a vocabulary of at most ", table.size(), " or give more text");
    }
    merger.merge(*pair, table.add(table.piece(pair->left) + table.piece(pair->right).substr(2)));
    if (table.size() % kPiecesPerReport == 0) on_pieces(table.size());
  }
  return table.take();
}

std::vector<std::string> train_vocabulary(const VocabOptions& options,
                                          const VocabCallback& on_progress) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<SourceFile> sources = list_source_files(options.inputs, options.missing);
  VocabProgress progress{.pieces_total = options.num_pieces};
  for (const SourceFile& source : sources) progress.text_bytes_total += source.bytes;
  const auto tell = [&] {
    const auto elapsed = std::chrono::steady_clock::now() - start;
    progress.elapsed_ms = std::chrono::duration<double, std::milli>(elapsed).count();
    if (on_progress) on_progress(progress);
  };
  const std::vector<WordCount> words = count_words(sources, options.workers, [&](int64_t bytes) {
    progress.text_bytes_done += bytes;
    tell();
  });
  if (words.empty()) {
    fail(ExitCode::kData, sources.front().path, ": no words in the input text (", sources.size(),
         " files), want sentences, one per line");
  }
  std::vector<std::string> pieces =
      train_pieces(words, options.num_pieces, [&](int64_t num_pieces) {
        progress.pieces_done = num_pieces;
        tell();
      });
  progress.pieces_done = options.num_pieces;
  tell();
  return pieces;
}

void write_vocabulary(const std::string& path, const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece + "\n";
  write_new_file(path, text);
}

}  // namespace bertha
