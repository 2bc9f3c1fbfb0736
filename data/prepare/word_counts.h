#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/files/tokenizer_settings.h"
#include "data/prepare/source_files.h"

namespace bertha {

struct WordCount {
  std::string word;  // a basic token, at most 200 characters
  int64_t count = 0;
};

/// How often each basic token occurs in the texts, most frequent first, equals in byte order.
/// `on_bytes` hears of the text read; it is called by one thread at a time.
///
/// Exact     whatever the number of workers (0 = one per processor).
/// Errors    those of LineReader.
std::vector<WordCount> count_words(const std::vector<SourceFile>& sources,
                                   const TokenizerSettings& settings, int workers,
                                   const std::function<void(int64_t bytes)>& on_bytes);

}  // namespace bertha
