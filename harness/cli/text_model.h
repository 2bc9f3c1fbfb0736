#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare/wordpiece.h"
#include "harness/backend.h"
#include "harness/checkpoint/weight_folder.h"
#include "harness/model/bert.h"

namespace CLI {
class App;
}

namespace bertha {

/// Which model a command runs lines of text through, and where.
struct TextModelOptions {
  FolderRequest request;
  ComputeBackend backend = ComputeBackend::kCpu;
  Precision precision = Precision::kFp32;
};
/// --checkpoint, --model-config, --vocab, --backend and --precision.
void add_text_model_options(CLI::App& command, TextModelOptions& options);

/// What stands for a token to predict in a text.
inline constexpr std::string_view kMaskWord = "[MASK]";

/// [CLS] first [SEP], and second [SEP] after a tab; [MASK] in the text is the token.
struct TokenizedLine {
  std::vector<int16_t> ids;
  std::vector<int8_t> segments;
  std::vector<int16_t> masked;  // places of [MASK]
};

/// The logits of each [MASK] in a line.
struct MaskLogits {
  std::vector<float> values;  // [M, V]
  int64_t vocab_rows = 0;     // V: the vocabulary, padded
};

/// A model without dropout with its vocabulary, which takes one line at a time. Heads that the
/// weights lack are random: has() tells.
///
/// Errors    Error(kUsage) on more than one rank, naming `command`, or for a precision that the
///           device lacks; Error(kData) as read_weight_folder(), or when no vocabulary is named.
class TextModel {
 public:
  TextModel(const TextModelOptions& options, const std::string& command, World& world);

  /// `place` names the line in messages ("line 3"). Error(kData) for more tokens than positions.
  TokenizedLine tokenize(const std::string& text, const std::string& place);
  /// Blocks: the host.
  MaskLogits run(const TokenizedLine& line);

  const ModelConfig& model() const { return folder_.model; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Parts of the model that the weights do not hold.
  const std::vector<ModelPart>& fresh() const { return folder_.loaded.fresh; }
  bool has(ModelPart part) const;

 private:
  void bind_weights(DType io);
  void append_sentence(const std::string& text, std::vector<int16_t>& ids);
  std::vector<float> on_host(const View& view, int64_t rows);

  std::unique_ptr<Backend> backend_;
  HostAllocator batch_memory_;  // a pinned pool
  WeightFolder folder_;
  Vocabulary vocabulary_;
  WordPieceTokenizer tokenizer_;
  bool has_warned_ = false;
  Buffer weights_;  // io [table.elements]
  Bert bert_;
};

}  // namespace bertha
