#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "harness/checkpoint/weight_folder.h"
#include "harness/cli/checkpoint_commands.h"
#include "harness/cli/options.h"
#include "harness/report/text_format.h"
#include "kernels/base/joined.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

struct RewriteOptions {
  FolderRequest request;
  std::string output;
  bool encoder_only = false;
  DType dtype = DType::kF32;
};

int rewrite(const RewriteOptions& options, FolderRequest request) {
  // Parts that are not written may be missing.
  if (options.encoder_only) request.weights.missing_heads = MissingHeads::kFresh;
  const WeightFolder folder = read_weight_folder(request);
  const ModelHeads heads = options.encoder_only ? ModelHeads::kNone : ModelHeads::kAll;
  write_weight_folder(options.output, folder, heads, options.dtype);
  for (const std::string& note : folder.loaded.notes) log_line(LogLevel::kWarning, note);
  if (folder.vocab.empty()) {
    log_line(
        LogLevel::kWarning,
        "found no vocab.txt or tokenizer.json next to the weights, so the output has none; give "
        "one with --vocab");
  }
  const ModelConfig& m = folder.model;
  std::cout << fmt::format("{}: {} layers, {} wide, {} heads, vocabulary of {}, GELU by {}, {}{}\n",
                           options.output, m.layers, m.hidden, m.heads, grouped_text(m.vocab_size),
                           word_of(m.gelu),
                           folder.tokenizer.do_lower_case ? "lower-cased" : "cased",
                           options.encoder_only ? ", without heads" : "");
  return 0;
}

int run_rewrite(const RewriteOptions& options) {
  const auto rewrite_found = [&](const std::string& found) {
    FolderRequest request = options.request;
    request.weights.path = found;
    return rewrite(options, std::move(request));
  };
  return with_checkpoint(options.request.weights.path, weights_at, rewrite_found);
}

struct AverageOptions {
  std::vector<std::string> paths;
  std::string output;
  DType dtype = DType::kF32;
};

int run_average(const AverageOptions& options) {
  WeightFolder mean;
  std::vector<double> sums;
  for (const std::string& path : options.paths) {
    FolderRequest request;
    request.weights.path = weights_at(path);
    WeightFolder folder = read_weight_folder(request);
    if (sums.empty()) {
      sums.assign(folder.flat.begin(), folder.flat.end());
      mean = std::move(folder);
      continue;
    }
    const bool same =
        folder.flat.size() == mean.flat.size() && folder.model.heads == mean.model.heads &&
        folder.model.hidden == mean.model.hidden && folder.model.layers == mean.model.layers &&
        folder.model.gelu == mean.model.gelu;
    if (!same) {
      fail(ExitCode::kData, path, ": its model has another shape or GELU than ",
           options.paths.front(), "; give checkpoints of one model");
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += double{folder.flat[i]};
  }
  const auto count = static_cast<double>(options.paths.size());
  for (size_t i = 0; i < sums.size(); ++i) mean.flat[i] = static_cast<float>(sums[i] / count);
  write_weight_folder(options.output, mean, ModelHeads::kAll, options.dtype);
  std::cout << fmt::format("{}: the mean of {} checkpoints\n", options.output,
                           options.paths.size());
  return 0;
}

void add_rewrite_options(CLI::App& command, RewriteOptions& options) {
  add_text(command, "path", options.request.weights.path, "PATH",
           "Checkpoint, run folder, Hugging Face folder, .safetensors file, or prefix of a "
           "TensorFlow checkpoint")
      .required();
  add_text(command, "-o,--output", options.output, "DIR", "Folder to write; must not be there yet")
      .required();
  add_text(command, "--model-config", options.request.stated_model, "FILE",
           "config.json or bert_config.json (default: the one next to the weights)");
  add_text(command, "--vocab", options.request.vocab, "FILE",
           "Vocabulary to copy (default: vocab.txt next to the weights); tokenizer_config.json "
           "next to either states whether the model is cased");
  add_choice<GeluForm>(
      command, "--gelu", options.request.gelu,
      "Form of the GELU, if the stated form or, for a TensorFlow checkpoint, tanh is wrong");
  add_choice<MissingHeads>(command, "--missing-heads", options.request.weights.missing_heads,
                           "What to do if the pooler or a head is missing (default refuse)");
}

void add_dtype(CLI::App& command, DType& dtype) {
  static constexpr std::array kDTypes = {DType::kF32, DType::kBF16, DType::kF16};
  add_choice(
      command, "--dtype", {"f32", "bf16", "f16"},
      [&dtype](size_t place) { dtype = kDTypes.at(place); },
      "Type of the written weights (default f32)");
}

bool is_run(const std::string& path) { return fs::is_directory(fs::path(path) / "ckpt"); }

}  // namespace

std::string weights_at(const std::string& path) {
  return is_run(path) ? checkpoint_at(path) : path;
}

void add_checkpoint_verify(CLI::App& checkpoint, Chosen& chosen) {
  CLI::App& verify = add_command(
      checkpoint, chosen,
      {.name = "verify",
       .description =
           "Reads a whole checkpoint, of Bertha or of another program, and checks its "
           "hashes, names, shapes and that all numbers are finite; exit code 4 if one is "
           "wrong.",
       .examples = {"bertha checkpoint verify runs/latest",
                    "bertha checkpoint verify bert-large-uncased",
                    "bertha checkpoint verify tf1_ckpt/model.ckpt-28252"}});
  const auto path = std::make_shared<std::string>();
  add_text(verify, "path", *path, "PATH", "As for `bertha checkpoint export`").required();
  set_action(verify, chosen, [path](CommandContext&) {
    const auto find = [](const std::string& given) {
      return is_run(given) ? checkpoint_to_check(given) : given;
    };
    const std::string text = with_checkpoint(*path, find, [](const std::string& found) {
      return fmt::format("{}\n  {}\n", found, joined(verify_weights(found), "\n  "));
    });
    std::cout << text;
    return 0;
  });
}

void add_checkpoint_convert(CLI::App& checkpoint, Chosen& chosen) {
  CLI::App& convert = add_command(
      checkpoint, chosen,
      {.name = "convert",
       .description = "Writes a folder of weights to start from, converted from a TensorFlow "
                      "checkpoint with the official names or from a Hugging Face folder. "
                      "checkpoint.init also reads these without conversion.",
       .examples = {"bertha checkpoint convert tf1_ckpt/model.ckpt-28252 --model-config "
                    "bert_config.json --vocab vocab.txt --output start",
                    "bertha checkpoint convert bert-base-uncased --output start --gelu tanh",
                    "bertha checkpoint convert MiniLM --output start --missing-heads fresh"}});
  RewriteOptions& options = set_action<RewriteOptions>(convert, chosen, run_rewrite);
  add_rewrite_options(convert, options);
}

void add_checkpoint_export(CLI::App& checkpoint, Chosen& chosen) {
  CLI::App& exporting = add_command(
      checkpoint, chosen,
      {.name = "export",
       .description = "Writes a folder that transformers loads: config.json, model.safetensors, "
                      "vocab.txt, without the optimizer's state and without padding rows of the "
                      "vocabulary.",
       .examples = {"bertha checkpoint export runs/latest --output my_bert",
                    "bertha checkpoint export runs/latest/ckpt/step_00001000 --output my_bert",
                    "bertha checkpoint export runs/latest --output my_bert --dtype bf16",
                    "bertha checkpoint export runs/latest --output my_encoder --encoder-only"}});
  RewriteOptions& options = set_action<RewriteOptions>(exporting, chosen, run_rewrite);
  add_rewrite_options(exporting, options);
  add_dtype(exporting, options.dtype);
  add_flag(exporting, "--encoder-only", options.encoder_only,
           "Write only encoder and pooler, with the names of a bare BertModel");
}

void add_checkpoint_average(CLI::App& checkpoint, Chosen& chosen) {
  CLI::App& average = add_command(
      checkpoint, chosen,
      {.name = "average",
       .description = "Writes a folder as export does, with the mean of the weights of several "
                      "checkpoints of one model. The other files come from the first checkpoint.",
       .examples = {"bertha checkpoint average runs/latest/ckpt/step_00009000 "
                    "runs/latest/ckpt/step_00010000 --output my_bert",
                    "bertha checkpoint average runs/seed1 runs/seed2 --output my_bert",
                    "bertha checkpoint average runs/seed1 runs/seed2 --output my_bert --dtype "
                    "bf16"}});
  AverageOptions& options = set_action<AverageOptions>(average, chosen, run_average);
  add_text(average, "paths", options.paths, "PATH", "As for `bertha checkpoint export`").required();
  add_text(average, "-o,--output", options.output, "DIR", "Folder to write; must not be there yet")
      .required();
  add_dtype(average, options.dtype);
}

}  // namespace bertha
