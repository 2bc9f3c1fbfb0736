#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <iostream>

#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/format/checksum_list.h"
#include "data/format/shard_names.h"
#include "data/prepare/preparation_plan.h"
#include "data/prepare/prepare.h"
#include "harness/checkpoint/stated_model.h"
#include "harness/cli/checkpoint_commands.h"
#include "harness/cli/data_commands.h"
#include "harness/cli/model_defaults.h"
#include "harness/cli/options.h"
#include "harness/report/text_format.h"
#include "harness/train/evaluate.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"
#include "kernels/base/shell_word.h"

namespace bertha {
namespace {

struct PrepareCommand {
  PrepareOptions options;
  const CLI::App* app = nullptr;  // which options were given
  std::string model;              // folder; "" = --vocab names the vocabulary
  bool official = false;
  std::string checksum_list;
  int64_t max_masked_per_seq = 0;  // 0 = not given
  bool ids = false;
  std::string special_ids;
  int64_t vocab_size = 0;
};

constexpr double kHoldOutOfModel = 0.01;
constexpr int64_t kOfficialShards = 4320;
constexpr uint64_t kOfficialShuffleSeed = 24;

/// Fails early if the checksum list cannot match.
void check_list(const std::string& path, int64_t num_shards) {
  if (path.empty()) return;
  const std::string what = unrelated_list(read_checksum_list(path), shard_names(num_shards));
  if (!what.empty()) fail(ExitCode::kUsage, "--chk ", path, ": ", what);
}

/// A warning if the text is too small to train on or to evaluate with; "" otherwise.
std::string warning_of_little_text(int64_t masked_tokens) {
  constexpr int64_t kMinMasked = 2500;  // one percentage point
  if (masked_tokens >= kMinMasked) return "";
  return fmt::format(
      "little text: an accuracy over its {} masked tokens is {}, and a model would memorize them; "
      "give more text",
      masked_tokens, uncertainty_text(masked_tokens));
}

/// Describes the shard of held-out documents; "" without one. Warns if there should be one.
std::string held_out_text(const PrepareOptions& options, const PrepareSummary& summary) {
  if (!summary.held_out) {
    const auto share = summary.manifest.options.find("hold_out");
    if (share != summary.manifest.options.end() && share->second != "0") {
      log_line(LogLevel::kWarning,
               options.output_dir +
                   ": nothing is held out for evaluation because the text has too few "
                   "documents; see --documents, or prepare other text with --eval-samples");
    } else if (options.eval_samples == 0 && !options.published_form_only) {
      return "held out for evaluation: nothing; --hold-out 0.01 takes 1 % of the documents\n";
    }
    return "";
  }
  const std::map<std::string, int64_t>& counts = summary.held_out->counts;
  return fmt::format("held out for evaluation: {} in {}, {}, in {}\n",
                     counted_text(summary.held_out->num_samples(), "sample"),
                     counted_text(counts.at("documents"), "document"),
                     counted_text(counts.at("masked_tokens"), "masked token"),
                     (std::filesystem::path(options.output_dir) / "eval").string());
}

void print_prepared(const PrepareOptions& options, const PrepareSummary& summary) {
  const std::map<std::string, int64_t>& counts = summary.manifest.counts;
  const std::string reused =
      summary.parts_reused > 0 ? fmt::format(" ({} parts reused)", summary.parts_reused) : "";
  std::cout << fmt::format(
      "{}: {} in {}, {}\nfrom {} in {} of {}, {}\n{}{}a "
      "sample: {}\n",
      options.output_dir, counted_text(summary.manifest.num_samples(), "sample"),
      counted_text(std::ssize(summary.manifest.shards), "shard"),
      summary.already_done ? "all there already"
                           : "made in " + duration_text(summary.elapsed_seconds) + reused,
      counted_text(counts.at("sentences"), "sentence"),
      counted_text(counts.at("documents"), "document"),
      counted_text(std::ssize(summary.manifest.sources), "text"),
      counted_text(counts.at("masked_tokens"), "masked token"),
      text_of_counts(options.output_dir, counts), held_out_text(options, summary), summary.sample);
  const std::string warning = warning_of_little_text(counts.at("masked_tokens"));
  if (!warning.empty()) log_line(LogLevel::kWarning, options.output_dir + ": " + warning);
}

/// `bertha data prepare --official`: generates the published training data from text, as the
/// published scripts do: hdf5_N_shards_varlength in --output, N = --shards, and next to it the same
/// sequences shuffled, hdf5_N_shards_varlength_shuffled. Both steps can be resumed.
/// `checksum_list`, if any, is compared with the shuffled shards. Returns the exit code.
int run_official(PrepareOptions options, const std::string& checksum_list,
                 const CommandContext& context) {
  if (options.num_shards == 0) options.num_shards = kOfficialShards;
  check_list(checksum_list, options.num_shards);
  const std::filesystem::path folder(options.output_dir);
  const std::string name = fmt::format("hdf5_{}_shards_varlength", options.num_shards);
  options.output_dir = (folder / name).string();
  const PrepareSummary ordered = prepare_data(options, progress_lines(context.terminal));
  print_prepared(options, ordered);

  const ConvertOptions shuffle{.source = {.path = options.output_dir,
                                          .limits = ordered.manifest.limits,
                                          .num_threads = options.workers},
                               .output_dir = (folder / (name + "_shuffled")).string(),
                               .shuffle_seed = kOfficialShuffleSeed,
                               .checksum_list = checksum_list};
  const ConvertResult shuffled = convert_data(shuffle, progress_lines(context.terminal));
  const int code = print_converted(shuffle, shuffled);
  if (code == 0) {
    std::cout << fmt::format("next: train on {}; {} is not needed for it\n", shuffle.output_dir,
                             options.output_dir);
  }
  return code;
}

/// Default of --max-masked-per-seq: the published one if lengths and fraction do not exceed the
/// published ones, else the number that the fraction masks in the longest sequence.
int64_t most_masked_of(const GeneratorOptions& options) {
  const GeneratorOptions published;
  if (options.max_seq_tokens <= published.max_seq_tokens &&
      options.masked_fraction <= published.masked_fraction) {
    return std::min(published.max_masked_per_seq, options.max_seq_tokens);
  }
  const double most = options.masked_fraction * static_cast<double>(options.max_seq_tokens);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(most)));
}

/// Writes the vocabulary of --ids into the output folder.
void use_ids(const PrepareCommand& command, PrepareOptions& options) {
  const std::string lines =
      id_vocabulary(command.special_ids, command.vocab_size, options.ids.emplace());
  options.vocab_file = (std::filesystem::path(options.output_dir) / "vocab.txt").string();
  if (std::filesystem::exists(options.vocab_file)) {
    if (read_text_file(options.vocab_file) == lines) return;
    fail(ExitCode::kData, options.vocab_file,
         ": differs from the vocabulary of --ids; choose another output folder");
  }
  std::error_code ignored;
  std::filesystem::create_directories(options.output_dir, ignored);
  write_new_file(options.vocab_file, lines);
}

/// Selects the tokenizer of the model's folder and, for options that are not given, defaults for
/// further training: no duplication, because masks are drawn anew while training, 1 % held out,
/// sequences no longer than its position table, and blocks of one segment unless it has a
/// next-sentence head.
void fit_to_model(const PrepareCommand& command, PrepareOptions& options) {
  if (!std::filesystem::exists(command.model)) {
    fail(
        ExitCode::kData, "--model ", command.model,
        ": no such folder; give a Hugging Face folder on this machine (download a model of the Hub "
        "with: hf download NAME --local-dir DIR)");
  }
  const std::string folder = weights_at(command.model);
  options.vocab_file = folder;
  const auto is_free = [&](const char* name) { return !is_given(*command.app, name); };
  if (is_free("--duplication")) options.generator.duplication = 1;
  if (is_free("--hold-out") && options.eval_samples == 0) options.hold_out = kHoldOutOfModel;
  if (!std::filesystem::exists(std::filesystem::path(folder) / "config.json")) return;
  const std::optional<StatedModel> stated = find_stated_model(folder);
  int64_t& longest = options.generator.max_seq_tokens;
  if (stated && is_free("--max-seq-tokens"))
    longest = std::min(longest, stated->model.max_positions);
  if (is_free("--segments") && !has_next_sentence_head(folder)) {
    options.generator.segments = Segments::kOne;
  }
}

int run_prepare(const PrepareCommand& command, const CommandContext& context) {
  PrepareOptions options = command.options;
  if (!command.model.empty()) fit_to_model(command, options);
  if (command.ids) use_ids(command, options);
  if (command.official) {
    options.published_form_only = true;
    options.hold_out = 0;
    return run_official(options, command.checksum_list, context);
  }
  options.generator.max_masked_per_seq = command.max_masked_per_seq > 0
                                             ? command.max_masked_per_seq
                                             : most_masked_of(options.generator);
  check_options(options);
  log_line(LogLevel::kInfo, "if this command is stopped, the same command resumes it");
  const PrepareSummary summary = prepare_data(options, progress_lines(context.terminal));
  print_prepared(options, summary);
  if (command.model.empty()) {
    std::cout << "next: bertha data verify " << shell_word(options.output_dir) << '\n';
  } else {
    std::cout << fmt::format("next: bertha train --model {} --data {} --output adapted\n",
                             shell_word(command.model), shell_word(options.output_dir));
  }
  return 0;
}

}  // namespace

void add_text_options(CLI::App& command, std::vector<std::string>& inputs, MissingFiles& missing,
                      std::string& field) {
  add_text(
      command, "text,--text", inputs, "PATH",
      "Text files in UTF-8, or folders, which are searched recursively: *.txt and part-* (one "
      "sentence per line), JSON lines (*.jsonl, *.ndjson, *.json), *.csv and *.tsv with a "
      "header, all also compressed with gzip, xz or zstd; - is standard input. The name decides "
      "the format: JSON, HTML or tables in a *.txt are refused, and so is a zero byte")
      .required();
  add_text(
      command, "--field", field, "NAME",
      "Field of JSON lines, or column of a table, that contains the text (default " + field + ")");
  add_flag(
      command, "--partial", [&missing] { missing = MissingFiles::kAccept; },
      "Accept missing text files in a numbered set");
}

void add_data_prepare(CLI::App& data, Chosen& chosen) {
  CLI::App& prepare = add_command(
      data, chosen,
      {.name = "prepare",
       .description =
           "Turns text into shards of training samples. With --model they suit further training of "
           "that model: its tokenizer, 1 % of the documents held out, and blocks of one segment "
           "unless it has a next-sentence head. With --vocab, plain text files without --prose, "
           "--documents, --part-mib, --hold-out and --segments become the samples of the published "
           "benchmark, bit for bit, one shard per file; text is tokenized as in google-research's "
           "tokenization.py, from which transformers differs for words of 101 to 200 characters, "
           "private-use characters, and [CLS] or [SEP] written in the text. If stopped, the same "
           "command continues and keeps finished parts.",
       .examples = {
           "bertha data prepare --text corpus/ --model bert-base-cased/ --output shards",
           "bertha data prepare --text text/ --vocab data/vocab.txt --output data/train",
           "bertha data prepare --text text/ --vocab vocab.txt --output data/train --shards "
           "64 --workers 8",
           "bertha data prepare --text book.txt --prose --vocab vocab.txt --output data/train",
           "bertha data prepare --text ids.jsonl --ids --special-ids "
           "cls=101,sep=102,pad=0,mask=103,unk=100 --vocab-size 30522 --segments one --output "
           "data/train",
           "zcat corpus.gz | bertha data prepare --text - --vocab vocab.txt --output data/train",
           "bertha data prepare --text eval.txt --vocab vocab.txt --output data/eval "
           "--eval-samples 10000",
           "bertha data prepare --text text/ --vocab vocab.txt --output data --official "
           "--chk 4320_shards_varlength_shuffled.chk"}});
  PrepareCommand& command = set_action<PrepareCommand>(prepare, chosen, run_prepare);
  PrepareOptions* const options = &command.options;
  options->hold_out = kHoldOutByForm;
  add_text_options(prepare, options->inputs, options->missing, options->field);
  add_flag(
      prepare, "--prose", [options] { options->text_form = TextForm::kProse; },
      "Treat the text as ordinary prose: join the lines between two blank lines and split them "
      "into sentences (default: a sentence per line; records, and lines of any text except the "
      "published form, are split but not joined)");
  add_choice(
      prepare, "--documents", {"auto", "blank", "line", "file"},
      [options](size_t place) { options->documents = static_cast<DocumentForm>(place); },
      "Where documents of plain text end: at blank lines, line ends or file ends (auto: at blank "
      "lines if there are any, else lines if they are long, else files); a record is a document");
  command.app = &prepare;
  add_text(prepare, "--model", command.model, "DIR",
           "Prepare for further training of this model (a Hugging Face folder or a run): use its "
           "tokenizer by the rules of transformers, --duplication 1, --hold-out 0.01 and sequences "
           "that fit the model, unless options set these");
  add_text(prepare, "--vocab", options->vocab_file, "PATH",
           "Vocabulary, one wordpiece per line, whose text is lower-cased unless "
           "tokenizer_config.json next to it states otherwise; or a tokenizer.json, or a Hugging "
           "Face folder")
      .excludes("--model");
  add_text(prepare, "-o,--output", options->output_dir, "DIR", "Folder to write").required();
  add_layout_option(prepare, options->layout);
  const auto count = [&](const std::string& name, int64_t& value, const std::string& doc) {
    add_count(prepare, name, value, doc + " (default {})");
  };
  count("--shards", options->num_shards, "Number of shards to write; 0 = one per part of the text");
  add_count(prepare, "--part-mib", options->part_mib,
            "MiB of text per part; each part is processed by one thread; 0 = one part per file "
            "(default 8, or one part per file in the published form)",
            0, 1 << 20);
  add_number(prepare, "--hold-out", options->hold_out,
             "Share of the documents, 0 to 0.5, to use as evaluation data, in the folder eval of "
             "--output (default 0.01, or 0 in the published form and with --eval-samples)",
             Numbers{.with_zero = true, .most = 0.5});
  add_choice(
      prepare, "--segments", {"pairs", "one"},
      [options](size_t place) { options->generator.segments = static_cast<Segments>(place); },
      "Segments per sequence: two, for next-sentence prediction (default), or one, a block of a "
      "document");
  count("--duplication", options->generator.duplication,
        "Number of times that each text is used, with new masks");
  count("--max-seq-tokens", options->generator.max_seq_tokens, "Longest sequence");
  add_count(prepare, "--max-masked-per-seq", command.max_masked_per_seq,
            fmt::format(
                "Maximum number of masked tokens per sequence (default {}, or --max-seq-tokens if "
                "fewer; for a larger --masked-fraction or --max-seq-tokens their product)",
                options->generator.max_masked_per_seq),
            1);
  count("--eval-samples", options->eval_samples,
        "Number of evenly spaced samples to write to one file; 0 = all samples, as shards");
  add_number(prepare, "--masked-fraction", options->generator.masked_fraction,
             "Share of the tokens to mask, 0 to 1 (default {})", kFraction);
  add_number(prepare, "--short-seq-probability", options->generator.short_seq_probability,
             "Probability of a shorter sequence, 0 to 1 (default {})", kFraction);
  add_count(prepare, "--seed", options->generator.seed, "Seed of pairs and masks (default {})");
  add_count(prepare, "--workers", options->workers, "Threads; 0 = one per processor (default)");
  add_flag(prepare, "--resume,!--no-resume", options->resume,
           "Keep finished parts of an earlier run (default)");
  add_flag(
      prepare, "--ids", command.ids,
      "The text is token ids of any tokenizer: each line a JSON array, or an object whose --field "
      "is one; nested arrays are sentences. Needs --special-ids and --vocab-size instead of "
      "--vocab, and writes a vocab.txt of numbers into --output")
      .excludes("--vocab")
      .excludes("--model");
  add_text(prepare, "--special-ids", command.special_ids, "LIST",
           "With --ids: cls=N,sep=N,pad=N,mask=N,unk=N")
      .needs("--ids");
  add_count(prepare, "--vocab-size", command.vocab_size, "With --ids: the number of ids", 1)
      .needs("--ids");
  const Option official = add_flag(
      prepare, "--official", command.official,
      fmt::format(
          "Prepare the published training data: {} shards (or --shards) with the published "
          "settings, then the same shuffled, in two folders of --output with the published names",
          kOfficialShards));
  for (const char* name :
       {"--prose", "--ids", "--documents", "--part-mib", "--hold-out", "--segments", "--layout",
        "--duplication", "--max-seq-tokens", "--max-masked-per-seq", "--masked-fraction",
        "--short-seq-probability", "--seed", "--eval-samples"}) {
    official.excludes(name);
  }
  add_text(prepare, "--chk", command.checksum_list, "FILE",
           "With --official: the published checksum list to compare the shuffled shards with")
      .needs("--official");
}

}  // namespace bertha
