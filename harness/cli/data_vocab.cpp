#include <fmt/format.h>

#include <filesystem>
#include <iostream>

#include "data/files/new_file.h"
#include "data/prepare/vocab_trainer.h"
#include "harness/cli/data_commands.h"
#include "harness/cli/options.h"
#include "harness/report/text_format.h"
#include "kernels/base/shell_word.h"

namespace bertha {
namespace {

struct VocabCommand {
  VocabOptions options;
  std::string output;
};

int run_vocab(VocabCommand command, const CommandContext& context) {
  // Fails early if the file cannot be created.
  { const NewFile probe(command.output); }
  command.options.tokenizer = read_tokenizer_settings(command.output);
  const std::vector<std::string> wordpieces =
      train_vocabulary(command.options, progress_lines(context.terminal));
  write_vocabulary(command.output, wordpieces);
  std::cout << fmt::format(
      "{}: {} wordpieces\nnext: bertha data prepare --vocab {} --text ... --output ...\n",
      command.output, grouped_text(std::ssize(wordpieces)), shell_word(command.output));
  return 0;
}

}  // namespace

void add_data_vocab(CLI::App& data, Chosen& chosen) {
  CLI::App& vocab = add_command(
      data, chosen,
      {.name = "vocab",
       .description = "Trains a WordPiece vocabulary on text, which is lower-cased unless a "
                      "tokenizer_config.json in the folder of --output states otherwise.",
       .examples = {"bertha data vocab --text text/ --size 4096 --output data/vocab.txt",
                    "bertha data vocab --text a.txt b.jsonl.gz --output vocab.txt",
                    "bertha data vocab --text text/ --size 30522 --output data/vocab.txt"}});
  VocabCommand& command = set_action<VocabCommand>(vocab, chosen, run_vocab);
  VocabOptions& options = command.options;
  add_text_options(vocab, options.inputs, options.missing, options.field);
  add_count(vocab, "--size", options.num_wordpieces,
            "Number of wordpieces in the vocabulary (default {})");
  add_text(vocab, "-o,--output", command.output, "FILE", "File to write").required();
  add_count(vocab, "--workers", options.workers, "Threads; 0 = one per processor (default)");
}

}  // namespace bertha
