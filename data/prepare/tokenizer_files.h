#pragma once

#include <array>
#include <string>
#include <vector>

#include "data/format/sample.h"

namespace bertha {

/// A token that is found in the text itself, before the text is split into words.
struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool single_word = false;   // only if no letter or digit is next to it
  bool normalized = false;    // searched in the lower-cased text, if text is lower-cased
  bool is_wordpiece = false;  // also used within words
};

/// A vocabulary with transformers' additional information.
struct TokenizerFiles {
  std::string path;                     // path of the file that lists the wordpieces
  std::vector<std::string> wordpieces;  // [id]; an id that no file names gets a unique text
  // [PAD], [UNK], [CLS], [SEP], [MASK], by whatever name the files give them.
  std::array<std::string, 5> special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  std::vector<AddedToken> added = {};  // the special ones included
};

/// Reads the text side of a Hugging Face folder, or of the folder of a tokenizer.json: that file if
/// there is one, else vocab.txt with added_tokens.json; special tokens are renamed by
/// tokenizer_config.json and special_tokens_map.json.
///
/// Errors    Error(kData) naming the file and the field: no such file, or a tokenizer other than
///           BERT's (model WordPiece, normalizer BertNormalizer).
TokenizerFiles read_tokenizer_files(const std::string& folder_or_json);

/// Whether a folder has vocab.txt or tokenizer.json.
bool has_tokenizer_files(const std::string& folder);

/// Copies what tokenizes the text of a model from its folder into another one, and what
/// sentence-transformers keeps there (modules.json and the folders it names).
void copy_tokenizer_files(const std::string& from, const std::string& to);

/// The lines of a vocab.txt: ended by \n or \r\n, without white space around them.
std::vector<std::string> read_vocab_lines(const std::string& path);

}  // namespace bertha
