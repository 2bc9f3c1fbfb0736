#include "data/prepare/word_counts.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "data/files/for_each_parallel.h"
#include "data/prepare/ascii_words.h"
#include "data/prepare/part_reader.h"
#include "data/prepare/unicode_text.h"

namespace bertha {
namespace {

using Counts = std::unordered_map<std::string, int64_t, StringHash, std::equal_to<>>;

void add(Counts& counts, std::string_view text, int64_t count) {
  const auto found = counts.find(text);
  if (found != counts.end()) {
    found->second += count;
  } else {
    counts.emplace(text, count);
  }
}

Counts count_words_of(const std::string& path, const TokenizerSettings& settings,
                      const std::function<void(int64_t)>& on_bytes) {
  Counts words;
  Counts chunks;  // text that needs Unicode: split once for all its occurrences
  LineReader lines(path, on_bytes);
  while (const auto line = lines.next()) {
    split_words(
        strip(*line), settings.do_lower_case, [&](std::string_view word) { add(words, word, 1); },
        [&](std::string_view chunk) { add(chunks, chunk, 1); });
  }
  for (const auto& [chunk, count] : chunks) {
    for (const std::string& word : basic_tokens(chunk, settings)) add(words, word, count);
  }
  return words;
}

}  // namespace

std::vector<WordCount> count_words(const std::vector<SourceFile>& sources,
                                   const TokenizerSettings& settings, int workers,
                                   const std::function<void(int64_t bytes)>& on_bytes) {
  Counts total;
  std::mutex mutex;
  for_each_parallel(static_cast<int64_t>(sources.size()), workers,
                    [&](int64_t index, const std::function<bool()>& cancelled) {
                      const Counts words = count_words_of(
                          sources[static_cast<size_t>(index)].path, settings, [&](int64_t bytes) {
                            if (cancelled()) throw Cancelled();
                            const std::lock_guard<std::mutex> lock(mutex);
                            on_bytes(bytes);
                          });
                      const std::lock_guard<std::mutex> lock(mutex);
                      for (const auto& [word, count] : words) add(total, word, count);
                    });
  std::vector<WordCount> result;
  result.reserve(total.size());
  for (const auto& [word, count] : total) {
    if (count_characters(word) <= WordPieceTokenizer::kMostCharactersPerWord) {
      result.push_back({.word = word, .count = count});
    }
  }
  std::ranges::sort(result, [](const WordCount& a, const WordCount& b) {
    return a.count != b.count ? a.count > b.count : a.word < b.word;
  });
  return result;
}

}  // namespace bertha
