#include "harness/cli/config_options.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/backend_cuda.h"
#include "harness/checkpoint/load_weights.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/cli/model_defaults.h"
#include "harness/comm/start_limit.h"
#include "harness/config/check.h"
#include "harness/config/keys.h"
#include "harness/report/run_folder.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

constexpr const char* kConfigFile = "config_file";
constexpr std::string_view kModelOption = "--model";

struct ShortOption {
  std::string_view names;
  std::string_view key;
  std::string_view type = "";            // for help; empty = the key's
  std::string_view training_doc = "";    // for help; empty = the key's
  std::string_view evaluation_doc = "";  // for help; empty = not an option of evaluations
  bool for_step_bench = false;
};

constexpr std::array kShortOptions{
    ShortOption{"--max-steps", "train.max_steps"},
    ShortOption{"--max-samples", "train.max_samples"},
    ShortOption{
        .names = "--global-batch", .key = "train.global_batch_seqs", .for_step_bench = true},
    ShortOption{.names = "--grad-accum", .key = "train.accumulation_steps", .for_step_bench = true},
    ShortOption{"--lr", "optimizer.base_learning_rate"},
    ShortOption{"--warmup-steps", "optimizer.warmup_steps"},
    ShortOption{.names = "--target-accuracy",
                .key = "train.target_accuracy",
                .evaluation_doc = "Exit with code 3 below this masked-token accuracy; 0 = none"},
    ShortOption{"--time-limit", "train.time_limit_minutes", "MINUTES"},
    ShortOption{.names = "--seed", .key = "train.seed", .for_step_bench = true},
    ShortOption{.names = "--backend",
                .key = "train.backend",
                .evaluation_doc =
                    "Device to compute on; auto = cuda if it is built in and a GPU is present",
                .for_step_bench = true},
    ShortOption{"-o,--output-dir,--output", "log.run_dir", "DIR"},
    ShortOption{"--resume", "checkpoint.resume", "auto|never|DIR"},
    ShortOption{"--init-checkpoint", "checkpoint.init", "PATH"},
    ShortOption{
        .names = "--model",
        .key = "checkpoint.init",
        .type = "DIR",
        .training_doc =
            "Adapt the model in this folder to the data: the folder determines shape and "
            "vocabulary, and the defaults suit further training (AdamW at 1e-4, three epochs, "
            "a warm-up over 6 % of the steps, a batch of about 16,384 tokens)"},
    ShortOption{"--epochs", "train.max_epochs", "X"},
    ShortOption{"--eval-every-samples", "eval.every_samples"},
    ShortOption{"--save-every", "checkpoint.every_steps"},
    ShortOption{.names = "--profile-steps",
                .key = "log.profile_steps",
                .type = "A:B",
                .for_step_bench = true},
    ShortOption{"--keep", "checkpoint.keep"},
};

// Placeholder of the value in help: "N", "X", "cpu|cuda".
std::string type_text(const ShortOption& option, const Key& key) {
  if (!option.type.empty()) return std::string(option.type);
  if (const auto words = allowed_words(key); !words.empty()) return joined(words, "|");
  return type_name(key) == "integer" ? "N" : "X";
}

std::string long_name(const CLI::Option& option) { return "--" + option.get_lnames().front(); }

const ShortOption* find_short(std::string_view name) {
  for (const ShortOption& option : kShortOptions) {
    const auto padded = "," + std::string(option.names) + ",";
    if (!name.empty() && padded.find("," + std::string(name) + ",") != std::string::npos) {
      return &option;
    }
  }
  return nullptr;
}

// A vector of strings keeps every occurrence, in order.
CLI::Option& add_repeatable(CLI::App& command, std::string_view names, const std::string& doc) {
  CLI::Option* const option = command.add_option(
      std::string(names), [](const CLI::results_t&) { return true; }, doc);
  return *option->expected(1, 1 << 20)
              ->allow_extra_args(false)
              ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

// The configuration that the options ask for, checked for a run on `num_ranks` ranks.
Config checked_config(const CLI::App& command, int num_ranks, BatchRule rule) {
  const LoadedConfig loaded = load_from_options(command, num_ranks);
  const Config& config = loaded.config;
  const bool trains = rule == BatchRule::kDividesOverRanks;
  check_config(loaded, trains ? num_ranks : 0);
  // The initial weights of a run may have been deleted by the time of its evaluation.
  const bool begins_there =
      trains || loaded.origins.at("checkpoint.init").starts_with("--checkpoint");
  if (begins_there && weights_exist(config.checkpoint.init)) check_initial_weights(config);
  return config;
}

// Recorded configuration of the run that saved a checkpoint or wrote a run folder; "" = none.
std::string recorded_config(const std::string& checkpoint) {
  namespace fs = std::filesystem;
  if (const std::string own = newest_config(checkpoint); !own.empty()) return own;
  const fs::path run = (fs::absolute(checkpoint) / "").parent_path().parent_path().parent_path();
  return newest_config(run.lexically_proximate(fs::current_path()).string());
}

/// Values from the options of a command line.
struct Given {
  std::vector<std::string> files = {};
  std::vector<Override> overrides = {};
  bool adapts = false;           // --model
  std::string data_folder = {};  // --data
};

Given given_by(const CLI::App& command) {
  Given given;
  auto& [files, overrides, adapts, data_folder] = given;
  std::map<const CLI::Option*, size_t> used;
  for (const CLI::Option* option : command.parse_order()) {
    const bool is_file = option->get_name() == kConfigFile;
    const std::string name = option->get_lnames().empty() ? "" : long_name(*option);
    // A command may define its own option with such a name.
    const ShortOption* const short_option =
        option->get_group() == kKeyOptionGroup ? find_short(name) : nullptr;
    const bool is_own = is_file || name == "--config" || name == "--set" || name == "--data";
    if (!is_own && short_option == nullptr) continue;
    const std::string value = option->results().at(used[option]++);
    if (is_file && !std::filesystem::exists(value) && !value.ends_with(".yaml")) {
      fail(ExitCode::kUsage, "train: unknown argument ", shortened(value),
           "; see bertha train --help");
    }
    if (is_file || name == "--config") {
      files.push_back(value);
    } else if (name == "--data") {
      if (!data_folder.empty()) {
        fail(ExitCode::kUsage, "--data needs one folder, found ", data_folder, " and ", value,
             "; prepare all text together (bertha data prepare --text A B), or give one of them");
      }
      data_folder = value;
      overrides.push_back({.assignment = "data.train=" + value, .spelled = name + " " + value});
    } else if (name == "--set") {
      overrides.push_back({.assignment = value, .spelled = "--set " + shortened(value)});
    } else {
      adapts = adapts || name == kModelOption;
      overrides.push_back({.assignment = std::string(short_option->key) + "=" + value,
                           .spelled = name + " " + shortened(value)});
    }
  }
  const CLI::Option* const checkpoint = command.get_option_no_throw("--checkpoint");
  if (files.empty() && checkpoint != nullptr && checkpoint->count() > 0) {
    const std::string path = checkpoint->results().front();
    const std::string recorded = recorded_config(path);
    if (!recorded.empty()) {
      files.push_back(recorded);
    } else {
      const std::string spelled = "--checkpoint " + shortened(path);
      overrides.insert(overrides.begin(),
                       {{.assignment = "checkpoint.init=" + path, .spelled = spelled},
                        {.assignment = "train.target_accuracy=0", .spelled = spelled}});
    }
  }
  return given;
}

}  // namespace

void add_config_options(CLI::App& command, ShortOptions shorts) {
  add_repeatable(command, "-c,--config", "YAML file; repeatable, later files win")
      .type_name("FILE");
  add_repeatable(command, "--set", "Set one key of the configuration; repeatable")
      .type_name("KEY=VALUE");
  const bool is_evaluation = shorts == ShortOptions::kEvaluation;
  if (shorts == ShortOptions::kTraining || is_evaluation) {
    add_repeatable(command, "--data",
                   is_evaluation
                       ? "Folder of shards (data.eval), or a folder that contains one named eval"
                       : "Folder of shards from `bertha data prepare` (data.train, and data.eval "
                         "if it contains a folder eval)")
        .type_name("DIR");
  }
  if (shorts == ShortOptions::kNone) return;
  for (const ShortOption& option : kShortOptions) {
    if (is_evaluation && option.evaluation_doc.empty()) continue;
    if (shorts == ShortOptions::kStepBench && !option.for_step_bench) continue;
    const Key* const key = find_key(option.key);
    std::string doc(is_evaluation ? option.evaluation_doc
                                  : key->doc.substr(0, key->doc.size() - 1));
    if (!is_evaluation && !option.training_doc.empty()) doc = option.training_doc;
    doc += " (" + std::string(option.key) + ")";
    add_repeatable(command, option.names, doc)
        .type_name(type_text(option, *key))
        ->group(kKeyOptionGroup);
  }
}

void add_config_file(CLI::App& command) {
  add_repeatable(command, kConfigFile, "YAML file, as with --config").type_name("FILE");
}

LoadedConfig load_from_options(const CLI::App& command, int num_ranks) {
  const Given given = given_by(command);
  LoadedConfig loaded = load_config(given.files, given.overrides);
  const std::string held_out = given.data_folder + "/eval";
  const bool is_evaluation = command.get_option_no_throw("--checkpoint") != nullptr;
  if (!given.data_folder.empty() &&
      (is_evaluation || loaded.origins.at("data.eval") == kDefaultOrigin)) {
    const bool has_held_out = std::filesystem::exists(held_out);
    if (has_held_out || is_evaluation) {
      loaded.config.data.eval = has_held_out ? held_out : given.data_folder;
      loaded.origins["data.eval"] = "--data";
    }
  }
  const bool may_use_gpu = loaded.config.train.backend != ComputeBackend::kCpu;
  complete_from_files(loaded, given.adapts, num_ranks,
                      given.adapts && may_use_gpu ? smallest_gpu_bytes() : 0);
  return loaded;
}

std::string option_for(const CLI::App& command, std::string_view option) {
  std::string name(option.substr(option.find_first_not_of('-')));
  std::ranges::replace(name, '-', '_');
  const std::string_view key = key_of_other_name(name);
  if (key.empty() || command.get_option_no_throw("--set") == nullptr) return "";
  for (const ShortOption& known : kShortOptions) {
    const std::string last(known.names.substr(known.names.rfind(',') + 1));
    if (known.key == key && command.get_option_no_throw(last) != nullptr) return last;
  }
  return concat("--set ", key, "=");
}

ComputeBackend backend_of_options(const CLI::App& command) {
  const Given given = given_by(command);
  return load_config(given.files, given.overrides, KeyWarnings::kOff).config.train.backend;
}

Config config_for_ranks(const CLI::App& command, World& world, BatchRule rule) {
  const StartLimit limit(std::getenv, world.size(), "received the configuration");
  const std::string yaml = text_of_first_rank(
      world, [&] { return to_yaml(checked_config(command, world.size(), rule)); });
  return config_from_yaml(yaml, "the config of rank 0");
}

}  // namespace bertha
