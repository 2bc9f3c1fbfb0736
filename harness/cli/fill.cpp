#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "data/pipeline/collate.h"
#include "data/prepare/part_reader.h"
#include "data/prepare/unicode_text.h"
#include "data/prepare/wordpiece.h"
#include "harness/backend.h"
#include "harness/checkpoint/weight_folder.h"
#include "harness/cli/checkpoint_commands.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/comm/binding.h"
#include "harness/model/bert.h"
#include "harness/train/pinned_pool.h"
#include "harness/train/precision.h"
#include "kernels/base/error.h"
#include "kernels/base/figures.h"
#include "kernels/base/log.h"
#include "kernels/ops/elementwise.h"

namespace bertha {
namespace {

/// Marks a token to predict in a text.
constexpr std::string_view kMaskWord = "[MASK]";

struct FillOptions {
  FolderRequest request;
  TrainConfig train = {.backend = ComputeBackend::kCpu, .precision = Precision::kFp32};
  std::vector<std::string> texts;
  std::string file;
  int64_t top = 5;

  DType io() const { return planned_io(train, false); }
};

/// [CLS] first [SEP], then second [SEP] if the line has a tab; [MASK] in the text is one token.
struct TokenizedLine {
  std::vector<TokenId> ids;
  std::vector<int8_t> segments;
  std::vector<int16_t> masked;  // positions of [MASK]
};

/// The logits of each [MASK] in a line.
struct MaskLogits {
  std::vector<float> values;  // [M, V]
  int64_t vocab_rows = 0;     // V: the vocabulary, padded
};

/// A model without dropout and its vocabulary; runs one line at a time.
///
/// Errors    Error(kUsage) on more than one rank or for a precision that the device lacks;
///           Error(kData) as read_weight_folder(), or if no vocabulary is named.
class TextModel {
 public:
  TextModel(const FillOptions& options, World& world);

  /// `place` names the line in messages ("line 3"). Error(kData) for more tokens than positions.
  TokenizedLine tokenize(const std::string& text, const std::string& place);
  /// Blocks: the host.
  MaskLogits run(const TokenizedLine& line);

  /// Limit for a line: memory for all positions of a long table is far more than texts need.
  int64_t most_tokens() const { return std::min<int64_t>(folder_.model.max_positions, 4096); }
  const ModelConfig& model() const { return folder_.model; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Whether the weights contain the masked-token head; it is random otherwise.
  bool has_head() const {
    return std::ranges::count(folder_.loaded.fresh, ModelPart::kMaskedTokenHead) == 0;
  }

 private:
  void bind_weights(DType io);
  void append_sentence(const std::string& text, std::vector<TokenId>& ids);
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

// A device that has the precision.
std::unique_ptr<Backend> backend_for(const FillOptions& options, World& world) {
  if (world.size() != 1) {
    fail(ExitCode::kUsage, "fill runs on one rank, found ", world.size(),
         "; start it without mpirun.");
  }
  const RankGpu gpu = choose_gpu(options.train.backend, world);
  std::unique_ptr<Backend> backend = make_backend(gpu, {}, core_share(world).threads, world);
  if (!backend->device().has_io(options.io())) {
    fail(ExitCode::kUsage, backend->device().description(), " has no ", name(options.io()),
         "; give --precision fp32, or --backend cuda on a machine with a GPU.");
  }
  return backend;
}

WeightFolder folder_for(FolderRequest request) {
  request.weights.missing_heads = MissingHeads::kFresh;
  WeightFolder folder = read_weight_folder(request);
  if (folder.vocab.empty()) {
    fail(ExitCode::kData, request.weights.path,
         ": found no vocab.txt next to the weights; give one with --vocab.");
  }
  return folder;
}

TextModel::TextModel(const FillOptions& options, World& world)
    : backend_(backend_for(options, world)),
      batch_memory_(make_pinned_pool(backend_->device())),
      folder_(folder_for(options.request)),
      vocabulary_(Vocabulary::load(folder_.vocab)),
      tokenizer_(vocabulary_, folder_.tokenizer),
      bert_(folder_.model, folder_.table,
            {.tokens = most_tokens(), .seqs = 1, .masked = most_tokens()},
            {.device = &backend_->device(),
             .stream = &backend_->stream(),
             .ops = &backend_->ops(),
             .io = options.io()}) {
  bind_weights(options.io());
}

void TextModel::bind_weights(DType io) {
  const int64_t elements = folder_.table.elements;
  Device& device = backend_->device();
  Buffer exact = device.allocate(elements * size_bytes(DType::kF32));
  device.copy(backend_->stream(), exact.data(), folder_.flat.data(), exact.bytes());
  const View from(exact.data(), DType::kF32, {elements});
  if (io == DType::kF32) {
    weights_ = std::move(exact);
  } else {
    weights_ = device.allocate(elements * size_bytes(io));
    backend_->ops().run(Cast{.from = from, .to = View(weights_.data(), io, {elements})});
  }
  backend_->stream().wait_on_host();
  const View flat(weights_.data(), io, {elements});
  bert_.bind(flat, flat);  // no gradient is ever written
}

void TextModel::append_sentence(const std::string& text, std::vector<TokenId>& ids) {
  for (size_t begin = 0;;) {
    const size_t mask = text.find(kMaskWord, begin);
    tokenizer_.append_ids(std::string_view(text).substr(begin, mask - begin), ids);
    if (mask == std::string::npos) break;
    ids.push_back(vocabulary_.special().mask);
    begin = mask + kMaskWord.size();
  }
  ids.push_back(vocabulary_.special().separator);
}

TokenizedLine TextModel::tokenize(const std::string& text, const std::string& place) {
  TokenizedLine line;
  line.ids.push_back(vocabulary_.special().classify);
  const size_t tab = text.find('\t');
  append_sentence(text.substr(0, tab), line.ids);
  line.segments.assign(line.ids.size(), 0);
  if (tab != std::string::npos) append_sentence(text.substr(tab + 1), line.ids);
  line.segments.resize(line.ids.size(), 1);
  if (std::ssize(line.ids) > most_tokens()) {
    fail(ExitCode::kData, place, " has ", line.ids.size(), " tokens, want at most ", most_tokens(),
         "; split it.");
  }
  for (size_t i = 0; i < line.ids.size(); ++i) {
    if (line.ids[i] == vocabulary_.special().mask) line.masked.push_back(static_cast<int16_t>(i));
  }
  const int64_t words =
      std::ssize(line.ids) - std::ssize(line.masked) - (tab == std::string::npos ? 2 : 3);
  const int64_t unknown = std::ranges::count(line.ids, vocabulary_.special().unknown);
  if (unknown > words / 2 && !std::exchange(has_warned_, true)) {
    log_line(LogLevel::kWarning,
             fmt::format("{}: {} of {} tokens are [UNK] in {}, with {}; a cased model states "
                         "do_lower_case false in {}",
                         place, unknown, words, folder_.vocab, to_text(folder_.tokenizer),
                         tokenizer_config_path(folder_.vocab)));
  }
  return line;
}

MaskLogits TextModel::run(const TokenizedLine& line) {
  // The true tokens are unknown; the mask token serves as label.
  const std::vector<TokenId> labels(line.masked.size(), vocabulary_.special().mask);
  const HostBatch batch = collate({SampleView{.token_ids = line.ids,
                                              .segment_ids = line.segments,
                                              .masked_positions = line.masked,
                                              .masked_ids = labels}},
                                  128, batch_memory_);
  bert_.upload(batch);
  bert_.reset_stats();
  bert_.forward_eval();
  const View logits = bert_.mlm_logits();
  return {.values = on_host(logits, std::ssize(line.masked)), .vocab_rows = logits.extent(1)};
}

// The first rows of [., columns].
std::vector<float> TextModel::on_host(const View& view, int64_t rows) {
  const int64_t elements = rows * view.extent(1);
  std::vector<float> values(static_cast<size_t>(elements));
  if (values.empty()) return values;
  Device& device = backend_->device();
  View live(view.data, view.dtype, {elements});
  Buffer widened;
  if (live.dtype != DType::kF32) {
    widened = device.allocate(elements * size_bytes(DType::kF32));
    const View to(widened.data(), DType::kF32, {elements});
    backend_->ops().run(Cast{.from = live, .to = to});
    live = to;
  }
  device.copy(backend_->stream(), values.data(), live.data, elements * size_bytes(DType::kF32));
  backend_->stream().wait_on_host();
  return values;
}

struct Line {
  std::string place;  // "line 3"
  std::string text;
};

// Reads the lines from the file or the command line. All are checked before the model is read.
std::vector<Line> lines_of(const FillOptions& options) {
  if (options.texts.empty() == options.file.empty()) {
    fail(ExitCode::kUsage, "fill: found ", options.file.empty() ? "neither" : "both",
         ", want texts or --text FILE; see bertha fill --help");
  }
  std::vector<Line> lines;
  for (const std::string& text : options.texts) {
    if (text == "--") continue;  // CLI11 does not remove it
    const std::string place = fmt::format("text {}", lines.size() + 1);
    if (first_invalid_utf8(text)) fail(ExitCode::kUsage, place, " is not UTF-8");
    lines.push_back({.place = place, .text = std::string(strip(text))});
  }
  if (!options.file.empty()) {
    LineReader file(options.file);
    while (const std::optional<std::string_view> text = file.next()) {
      lines.push_back({.place = fmt::format("{}, line {}", options.file, file.line_number()),
                       .text = std::string(*text)});
    }
    if (lines.empty()) fail(ExitCode::kData, options.file, ": is empty, want one text per line");
  }
  for (const Line& line : lines) {
    if (line.text.find(kMaskWord) != std::string::npos) continue;
    fail(options.file.empty() ? ExitCode::kUsage : ExitCode::kData, line.place,
         " has no [MASK]; write one for each word to fill in");
  }
  return lines;
}

struct Candidate {
  int64_t id;
  double probability;
};

// The `top` largest entries of the softmax of a row of logits, largest first.
std::vector<Candidate> most_probable(std::span<const float> logits, int64_t top) {
  const float largest = *std::ranges::max_element(logits);
  std::vector<Candidate> all;
  double sum = 0;
  for (const float logit : logits) {
    all.push_back({.id = std::ssize(all), .probability = std::exp(double{logit} - largest)});
    sum += all.back().probability;
  }
  top = std::min(top, std::ssize(all));
  std::partial_sort(all.begin(), all.begin() + top, all.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return std::pair(-a.probability, a.id) < std::pair(-b.probability, b.id);
                    });
  all.resize(static_cast<size_t>(top));
  for (Candidate& candidate : all) candidate.probability /= sum;
  return all;
}

// A model may have more rows than its vocabulary has entries.
std::string word_of(const TextModel& model, int64_t id) {
  const Vocabulary& vocabulary = model.vocabulary();
  return id < vocabulary.size() ? printable(vocabulary.wordpiece(id)) : fmt::format("(row {})", id);
}

// A table below the text: one column per [MASK], candidates from most to least probable.
std::string table(const TextModel& model, const MaskLogits& logits_of, int64_t masks, int64_t top) {
  std::vector<std::string> rows;
  for (int64_t m = 0; m < masks; ++m) {
    const std::span<const float> logits(logits_of.values.data() + m * logits_of.vocab_rows,
                                        static_cast<size_t>(model.model().vocab_size));
    const std::vector<Candidate> best = most_probable(logits, top);
    int64_t widest = 0;
    for (const Candidate& c : best) {
      widest = std::max(widest, count_characters(word_of(model, c.id)));
    }
    rows.resize(best.size());
    for (size_t i = 0; i < best.size(); ++i) {
      const std::string word = word_of(model, best[i].id);
      const auto blanks = static_cast<size_t>(widest - count_characters(word) + 2);
      rows[i] += fmt::format("{}{}{:{}}{:.4f}", m == 0 ? "  " : "    ", word, "", blanks,
                             best[i].probability);
    }
  }
  std::string text;
  for (const std::string& row : rows) text += row + '\n';
  return text;
}

void fill_lines(const std::vector<Line>& lines, const FillOptions& options,
                CommandContext& context) {
  TextModel model(options, *context.world);
  if (!model.has_head()) {
    fail(ExitCode::kData, options.request.weights.path,
         ": the weights have no masked-token head; give a model that was trained on masked tokens");
  }
  for (const Line& line : lines) {
    const TokenizedLine tokens = model.tokenize(line.text, line.place);
    const MaskLogits logits = model.run(tokens);
    if (!std::ranges::all_of(logits.values, [](float logit) { return std::isfinite(logit); })) {
      fail(ExitCode::kNumeric, options.request.weights.path, ": ", line.place,
           ": the model's outputs are not finite because the weights are too large for its "
           "arithmetic; give another checkpoint");
    }
    std::cout << line.text << '\n' << table(model, logits, std::ssize(tokens.masked), options.top);
  }
}

int run_fill(const FillOptions& options, CommandContext& context) {
  const std::vector<Line> lines = lines_of(options);
  const auto fill_by = [&](const std::string& found) {
    FillOptions of_checkpoint = options;
    of_checkpoint.request.weights.path = found;
    fill_lines(lines, of_checkpoint, context);
    return 0;
  };
  return with_checkpoint(options.request.weights.path, weights_at, fill_by);
}

}  // namespace

void add_fill_command(CLI::App& program, Chosen& chosen) {
  CLI::App& fill = add_command(
      program, chosen,
      {.name = "fill",
       .description = "Prints the most probable tokens for each [MASK] of a text, with their "
                      "probabilities. A tab divides a text into two sentences.",
       .examples = {"bertha fill --checkpoint runs/latest \"the act of [MASK] a building\"",
                    "bertha fill --checkpoint bert-base-uncased --top 10 \"paris is in [MASK].\"",
                    "bertha fill --checkpoint runs/latest --text lines.txt"}});
  FillOptions& options = set_action<FillOptions>(fill, chosen, run_fill);
  add_text(fill, "texts", options.texts, "TEXT", "Texts with a [MASK] for each word to fill in");
  add_text(fill, "--text", options.file, "FILE",
           "Read the texts from the lines of a UTF-8 file instead");
  add_count(fill, "--top", options.top, "Tokens for each [MASK] (default {})", 1);
  add_text(fill, "--checkpoint,--model", options.request.weights.path, "PATH",
           "Weights, as for `bertha checkpoint export`")
      .required();
  add_text(fill, "--model-config", options.request.stated_model, "FILE",
           "config.json or bert_config.json (default: the one next to the weights)");
  add_text(fill, "--vocab", options.request.vocab, "FILE",
           "Vocabulary (default: vocab.txt next to the weights)");
  add_choice<ComputeBackend>(fill, "--backend", options.train.backend,
                             "Device to run on (default cpu); auto = cuda if a GPU is present");
  add_choice<Precision>(fill, "--precision", options.train.precision,
                        {Precision::kFp32, Precision::kBf16, Precision::kFp16},
                        "Type of weights and activations (default fp32, the only one on the CPU)");
}

}  // namespace bertha
