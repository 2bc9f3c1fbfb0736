#include <iostream>
#include <optional>
#include <string_view>

#include "data/prepare/part_reader.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/cli/text_model.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

struct EncodeOptions {
  TextModelOptions model;
  std::string text;
  std::string output;
};

// What all lines gave, in their order.
struct Results {
  std::vector<int32_t> token_ids, cu_seqlens{0}, masked_rows;
  std::vector<float> hidden, mean, pooled, nsp_logits, mlm_logits;

  void append(const TokenizedLine& line, const TextOutputs& out, const ModelConfig& model) {
    const int32_t begin = cu_seqlens.back();
    const auto tokens = static_cast<int64_t>(line.ids.size());
    token_ids.insert(token_ids.end(), line.ids.begin(), line.ids.end());
    cu_seqlens.push_back(begin + static_cast<int32_t>(tokens));
    for (const int16_t place : line.masked) masked_rows.push_back(begin + place);
    const float* rows = out.hidden.data();
    hidden.insert(hidden.end(), out.hidden.begin(), out.hidden.end());
    for (int64_t h = 0; h < model.hidden; ++h) {
      double sum = 0;
      for (int64_t t = 0; t < tokens; ++t) sum += static_cast<double>(rows[t * model.hidden + h]);
      mean.push_back(static_cast<float>(sum / static_cast<double>(tokens)));
    }
    pooled.insert(pooled.end(), out.pooled.begin(), out.pooled.end());
    nsp_logits.insert(nsp_logits.end(), out.nsp_logits.begin(), out.nsp_logits.end());
    for (size_t m = 0; m < line.masked.size(); ++m) {
      const float* row = out.mlm_logits.data() + static_cast<int64_t>(m) * out.vocab_rows;
      mlm_logits.insert(mlm_logits.end(), row, row + model.vocab_size);
    }
  }
};

// What heads that the weights lack gave is left out.
void write(const std::string& path, const Results& r, const TextModel& of) {
  const ModelConfig& model = of.model();
  const int64_t lines = std::ssize(r.cu_seqlens) - 1;
  const int64_t masked = std::ssize(r.masked_rows);
  struct Floats {
    const char* name;
    std::vector<int64_t> shape;
    const std::vector<float>& values;
    bool known;
  };
  const bool pooler = of.has(ModelPart::kPooler);
  const Floats floats[] = {
      {"hidden", {std::ssize(r.token_ids), model.hidden}, r.hidden, true},
      {"mean", {lines, model.hidden}, r.mean, true},
      {"pooled", {lines, model.hidden}, r.pooled, pooler},
      {"nsp_logits", {lines, 2}, r.nsp_logits, pooler && of.has(ModelPart::kSentenceHead)},
      {"mlm_logits",
       {masked, model.vocab_size},
       r.mlm_logits,
       of.has(ModelPart::kMaskedTokenHead)}};
  std::vector<SafeTensorsWriter::Entry> entries = {
      {.name = "token_ids", .shape = {std::ssize(r.token_ids)}, .dtype = "I32"},
      {.name = "cu_seqlens", .shape = {lines + 1}, .dtype = "I32"},
      {.name = "masked_rows", .shape = {masked}, .dtype = "I32"}};
  for (const Floats& f : floats) {
    if (f.known) entries.push_back({.name = f.name, .shape = f.shape});
  }
  SafeTensorsWriter writer(path, entries, {{"written_by", "bertha"}});
  for (const auto* ints : {&r.token_ids, &r.cu_seqlens, &r.masked_rows}) {
    writer.append(ints->data(), std::ssize(*ints));
  }
  for (const Floats& f : floats) {
    if (f.known) writer.append(f.values.data(), std::ssize(f.values));
  }
  writer.finish();
}

int run_encode(const EncodeOptions& options, CommandContext& context) {
  TextModel model(options.model, "encode", *context.world);
  LineReader text(options.text);
  Results results;
  while (const std::optional<std::string_view> line = text.next()) {
    const TokenizedLine tokens =
        model.tokenize(std::string(*line), concat("line ", text.line_number()));
    results.append(tokens, model.run(tokens), model.model());
  }
  if (text.line_number() == 0) {
    fail(ExitCode::kData, options.text, ": holds no line, want a text per line");
  }
  write(options.output, results, model);
  for (const ModelPart part : model.fresh()) {
    log_line(LogLevel::kInfo,
             concat("the weights have no ", name_of(part), ": nothing of it is written"));
  }
  const int64_t tokens = std::ssize(results.token_ids);
  std::cout << options.output << ": " << counted_text(text.line_number(), "line") << ", "
            << counted_text(tokens, "token") << '\n';
  return 0;
}

}  // namespace

void add_encode_command(CLI::App& program, Chosen& chosen) {
  CLI::App& encode = add_command(
      program, chosen,
      {.name = "encode",
       .description =
           "Runs lines of text through a model, ours or another's, and writes one safetensors "
           "file: hidden states of every token, their mean and the pooled state of every line, "
           "logits of the sentence head, and of each [MASK]. A tab divides a line into two "
           "sentences.",
       .examples = {"bertha encode --checkpoint runs/latest --text lines.txt "
                    "--output out.safetensors",
                    "bertha encode --checkpoint bert-base-uncased --text lines.txt --output "
                    "out.safetensors",
                    "bertha encode --checkpoint MiniLM --vocab vocab.txt --text lines.txt --output "
                    "out.safetensors --backend cuda --precision bf16"}});
  EncodeOptions& options = set_action<EncodeOptions>(encode, chosen, run_encode);
  add_text_model_options(encode, options.model);
  add_text(encode, "--text", options.text, "FILE", "Text, UTF-8, a line at a time").required();
  add_text(encode, "-o,--output", options.output, "FILE", "File to write").required();
}

}  // namespace bertha
