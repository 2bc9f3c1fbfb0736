#include "data/prepare/vocabulary.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "data/files/hashing.h"
#include "data/prepare/unicode_text.h"
#include "kernels/base/error.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

bool is_of_transformers(const std::string& path) {
  return std::filesystem::is_directory(path) || path.ends_with(".json");
}

}  // namespace

Vocabulary Vocabulary::load(const std::string& path) {
  if (is_of_transformers(path)) return Vocabulary(read_tokenizer_files(path));
  return Vocabulary(read_vocab_lines(path), path);
}

Vocabulary::Vocabulary(std::vector<std::string> wordpieces, std::string origin)
    : Vocabulary({.path = std::move(origin), .wordpieces = std::move(wordpieces)},
                 TokenizerRules::kPublished) {}

Vocabulary::Vocabulary(TokenizerFiles files, TokenizerRules rules)
    : wordpieces_(std::move(files.wordpieces)),
      rules_(rules),
      added_tokens_(std::move(files.added)) {
  const std::string& origin = files.path;
  if (wordpieces_.empty()) {
    fail(ExitCode::kData, origin,
         ": is empty, want one wordpiece per line; give the vocabulary that the model was trained "
         "with");
  }
  if (size() > kMaxVocabEntries) {
    fail(ExitCode::kData, origin, ": ", size(), " wordpieces, want at most ", kMaxVocabEntries,
         "; give a smaller vocabulary");
  }
  for (int64_t id = 0; id < size(); ++id) {
    const std::string& text = wordpiece(id);
    if (text.empty()) {
      fail(ExitCode::kData, origin, ", line ", id + 1,
           ": empty, want one wordpiece per line; write an unused one such as [unused", id,
           "] there (removing a line changes the ids of all later lines)");
    }
    if (strip(text).empty()) continue;
    const auto [earlier, is_new] = starts_.emplace(text, static_cast<TokenId>(id));
    if (!is_new) {
      fail(ExitCode::kData, origin, ", line ", id + 1, ": \"", shortened(text),
           "\" is already in line ", earlier->second + 1, "; want each wordpiece once");
    }
    if (text.starts_with("##")) continuations_.emplace(text.substr(2), static_cast<TokenId>(id));
    longest_wordpiece_bytes_ =
        std::max(longest_wordpiece_bytes_, static_cast<int64_t>(text.size()));
  }
  const std::array ids = {&special_.pad, &special_.unknown, &special_.classify, &special_.separator,
                          &special_.mask};
  for (size_t i = 0; i < ids.size(); ++i) {
    *ids[i] = find_start(files.special[i]);
    if (*ids[i] >= 0) continue;
    fail(ExitCode::kData, origin, ": no ", files.special[i], " among its ", size(),
         " wordpieces; a BERT vocabulary has [PAD], [UNK], [CLS], [SEP] and [MASK]");
  }
  for (const AddedToken& token : added_tokens_) {
    if (!token.is_wordpiece) starts_.erase(token.text);
  }
}

std::string vocabulary_sha256(const std::string& path) {
  if (!is_of_transformers(path)) return sha256_of_file(path);
  Digest digest("SHA256");
  for (const std::string& wordpiece : read_tokenizer_files(path).wordpieces) {
    digest.update(wordpiece);
    digest.update("\n");
  }
  return digest.finish();
}

}  // namespace bertha
