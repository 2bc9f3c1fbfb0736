#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <span>
#include <string_view>

#include "data/prepare/part_reader.h"
#include "data/prepare/unicode_text.h"
#include "harness/cli/checkpoint_commands.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/cli/text_model.h"
#include "kernels/base/error.h"
#include "kernels/base/figures.h"

namespace bertha {
namespace {

struct FillOptions {
  TextModelOptions model;
  std::vector<std::string> texts;
  std::string file;
  int64_t top = 5;
};

struct Line {
  std::string place;  // "line 3"
  std::string text;
};

// From the file or the command line. All are checked before a model is read.
std::vector<Line> lines_of(const FillOptions& options) {
  if (options.texts.empty() == options.file.empty()) {
    fail(ExitCode::kUsage, "fill: found ", options.file.empty() ? "neither" : "both",
         ", want texts or --text FILE; see bertha fill --help");
  }
  std::vector<Line> lines;
  for (const std::string& text : options.texts) {
    if (text == "--") continue;  // the library leaves it among the texts
    const std::string place = concat("text ", lines.size() + 1);
    if (first_invalid_utf8(text)) fail(ExitCode::kUsage, place, " is not UTF-8");
    lines.push_back({.place = place, .text = std::string(strip(text))});
  }
  if (!options.file.empty()) {
    LineReader file(options.file);
    while (const std::optional<std::string_view> text = file.next()) {
      lines.push_back({.place = concat(options.file, ", line ", file.line_number()),
                       .text = std::string(*text)});
    }
    if (lines.empty()) fail(ExitCode::kData, options.file, ": holds no line, want a text per line");
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

// The softmax of a row of logits: the `top` largest entries, largest first.
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
  return id < vocabulary.size() ? printable(vocabulary.wordpiece(id)) : concat("(row ", id, ")");
}

// A table below the text: a column for each [MASK], a row for each rank of its candidates.
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
      rows[i] += concat(m == 0 ? "  " : "    ", word, std::string(blanks, ' '),
                        fixed_text(best[i].probability, 4));
    }
  }
  std::string text;
  for (const std::string& row : rows) text += row + '\n';
  return text;
}

void fill_lines(const std::vector<Line>& lines, const FillOptions& options,
                CommandContext& context) {
  TextModel model(options.model, "fill", *context.world);
  if (!model.has(ModelPart::kMaskedTokenHead)) {
    fail(ExitCode::kData, options.model.request.weights.path,
         ": the weights have no masked-token head; name a model that was trained on masked tokens");
  }
  for (const Line& line : lines) {
    const TokenizedLine tokens = model.tokenize(line.text, line.place);
    const MaskLogits logits = model.run(tokens);
    if (!std::ranges::all_of(logits.values, [](float logit) { return std::isfinite(logit); })) {
      fail(ExitCode::kNumeric, options.model.request.weights.path, ": ", line.place,
           ": the model's outputs are not finite; the weights are too large for its arithmetic, "
           "name another checkpoint");
    }
    std::cout << line.text << '\n' << table(model, logits, std::ssize(tokens.masked), options.top);
  }
}

int run_fill(const FillOptions& options, CommandContext& context) {
  const std::vector<Line> lines = lines_of(options);
  const auto fill_by = [&](const std::string& found) {
    FillOptions of_checkpoint = options;
    of_checkpoint.model.request.weights.path = found;
    fill_lines(lines, of_checkpoint, context);
    return 0;
  };
  return with_checkpoint(options.model.request.weights.path, weights_at, fill_by);
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
  add_text(fill, "texts", options.texts, "TEXT", "Texts with [MASK] for each word to fill in");
  add_text(fill, "--text", options.file, "FILE", "Take the lines of a UTF-8 file instead");
  add_count(fill, "--top", options.top, "Tokens for each [MASK] (default {})", 1);
  add_text_model_options(fill, options.model);
}

}  // namespace bertha
