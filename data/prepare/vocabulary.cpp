#include "data/prepare/vocabulary.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/prepare/part_reader.h"
#include "data/prepare/unicode_text.h"
#include "kernels/base/error.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

constexpr int64_t kMostWordpieces = 32768;

}  // namespace

Vocabulary Vocabulary::load(const std::string& path) {
  std::vector<std::string> wordpieces;
  LineReader lines(path);
  while (std::optional<std::string_view> line = lines.next()) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (wordpieces.empty() && line->starts_with(kByteOrderMark)) {
      line->remove_prefix(kByteOrderMark.size());
    }
    const std::string_view wordpiece = strip(*line);
    wordpieces.emplace_back(wordpiece.empty() ? *line : wordpiece);
  }
  return Vocabulary(std::move(wordpieces), path);
}

Vocabulary::Vocabulary(std::vector<std::string> wordpieces, std::string origin)
    : wordpieces_(std::move(wordpieces)) {
  if (size() > kMostWordpieces) {
    fail(ExitCode::kData, origin, ": ", size(), " wordpieces, want at most ", kMostWordpieces,
         ", because shards store ids as int16; give a smaller vocabulary");
  }
  for (int64_t id = 0; id < size(); ++id) {
    const std::string& text = wordpiece(id);
    if (text.empty()) {
      fail(ExitCode::kData, origin, ", line ", id + 1,
           ": empty, want one wordpiece per line; write an unused one such as [unused", id,
           "] there (a line that is removed changes the ids of all lines after it)");
    }
    if (strip(text).empty()) continue;
    const auto [earlier, is_new] = starts_.emplace(text, static_cast<TokenId>(id));
    if (!is_new) {
      fail(ExitCode::kData, origin, ", line ", id + 1, ": \"", shortened(text),
           "\" was given in line ", earlier->second + 1,
           " already; a wordpiece must be there once");
    }
    if (text.starts_with("##")) continuations_.emplace(text.substr(2), static_cast<TokenId>(id));
    longest_wordpiece_bytes_ =
        std::max(longest_wordpiece_bytes_, static_cast<int64_t>(text.size()));
  }
  const auto special = [&](const char* name) {
    const TokenId id = find_start(name);
    if (id < 0) {
      fail(ExitCode::kData, origin, ": no ", name, " among its ", size(),
           " wordpieces; a BERT vocabulary has [PAD], [UNK], [CLS], [SEP] and [MASK]");
    }
    return id;
  };
  special_ = SpecialTokens{.pad = special("[PAD]"),
                           .unknown = special("[UNK]"),
                           .classify = special("[CLS]"),
                           .separator = special("[SEP]"),
                           .mask = special("[MASK]")};
  if (special_.pad != 0) {
    fail(ExitCode::kData, origin, ", line ", special_.pad + 1,
         ": [PAD] is here, want it in line 1, because shards are padded with id 0");
  }
}

}  // namespace bertha
