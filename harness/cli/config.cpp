#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "harness/checkpoint/load_weights.h"
#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/cli/log_sink.h"
#include "harness/cli/options.h"
#include "harness/config/check.h"
#include "harness/config/keys.h"
#include "harness/report/report.h"
#include "harness/report/run_folder.h"
#include "harness/report/text_format.h"

namespace bertha {
namespace {

struct ShowOptions {
  bool plain = false;
  bool doc = false;
  std::string json;
};

/// Every key with its value (numbers and switches as JSON types) and its origin. The text is YAML.
Report report_of(LoadedConfig loaded, bool has_origins) {
  Report report;
  report.table(has_origins ? to_yaml_with_origins(loaded) : to_yaml(loaded.config));
  for (const Key& key : config_keys()) {
    const std::string path(key.path);
    std::visit([&](const auto& value) { report.put("keys/" + path + "/value", *value); },
               key.field(loaded.config));
    report.put("keys/" + path + "/origin", loaded.origins.at(path));
  }
  return report;
}

/// Loads a YAML file, or the configuration that the newest start in a run folder recorded.
LoadedConfig config_of(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return load_config({path}, {});
  const std::string newest = newest_config(path);
  return load_config({newest.empty() ? path + "/resolved.yaml" : newest}, {});
}

/// A row for each key whose value differs: the key, then each value with its origin.
TextTable differing_keys(const std::vector<LoadedConfig>& configs) {
  TextTable rows;
  for (const Key& key : config_keys()) {
    const std::string first = value_text(key, configs.front().config);
    const bool same = std::ranges::all_of(
        configs, [&](const LoadedConfig& other) { return value_text(key, other.config) == first; });
    if (same) continue;
    rows.push_back({std::string(key.path)});
    for (const LoadedConfig& loaded : configs) {
      const std::string origin = "  # " + loaded.origins.at(std::string(key.path));
      rows.back().push_back(value_text(key, loaded.config) + origin);
    }
  }
  return rows;
}

void add_show(CLI::App& config, Chosen& chosen) {
  CLI::App& show =
      add_command(config, chosen,
                  {.name = "show",
                   .description = "Prints every key with its value and where the value came from.",
                   .examples = {"bertha config show",
                                "bertha config show configs/quickstart.yaml --set train.seed=7",
                                "bertha config show --doc"}});
  add_config_options(show, ShortOptions::kTraining);
  add_config_file(show);
  const auto options = std::make_shared<ShowOptions>();
  add_flag(show, "--plain", options->plain, "Values only, without origins");
  add_json(show, options->json);
  add_flag(show, "--doc", options->doc, "The table of all keys, as in configs/README.md")
      .excludes("--plain")
      .excludes("--json");
  set_action(show, chosen, [&show, options](CommandContext&) {
    if (options->doc) {
      std::cout << key_table_markdown();
      return 0;
    }
    const LoadedConfig loaded = load_from_options(show);
    write_report(report_of(loaded, !options->plain), options->json, "config show",
                 ExitCode::kSuccess);
    return 0;
  });
}

void add_check(CLI::App& config, Chosen& chosen) {
  CLI::App& check = add_command(
      config, chosen,
      {.name = "check",
       .description = "Reports every mistake in a configuration; exit code 2 if there is one.",
       .examples = {"bertha config check configs/quickstart.yaml",
                    "bertha config check configs/quickstart.yaml --ranks 2",
                    "bertha config check --set model.heads=3"}});
  add_config_options(check, ShortOptions::kTraining);
  add_config_file(check);
  const auto ranks = std::make_shared<int>(0);
  add_count(check, "--ranks", *ranks, "Number of ranks over which the batch must divide", 1,
            1 << 20);
  set_action(check, chosen, [&check, ranks](CommandContext&) {
    const LoadedConfig loaded = load_from_options(check, std::max(*ranks, 1));
    check_config(loaded, *ranks);
    check_initial_weights(loaded.config);
    const auto given = std::ranges::count_if(
        loaded.origins, [](const auto& one) { return one.second != kDefaultOrigin; });
    std::cout << "the configuration is valid: " << given << " of " << config_keys().size()
              << " keys given, the rest are defaults\n";
    for (const std::string& remark : config_remarks(loaded.config)) {
      print_text("note: " + remark + '\n');
    }
    return 0;
  });
}

void add_diff(CLI::App& config, Chosen& chosen) {
  CLI::App& diff = add_command(
      config, chosen,
      {.name = "diff",
       .description = "Prints the keys whose values differ, with all values and where each comes "
                      "from.",
       .examples = {"bertha config diff configs/quickstart.yaml configs/quickstart_small.yaml",
                    "bertha config diff runs/first runs/latest",
                    "bertha config diff my.yaml runs/latest/resolved.yaml"}});
  const auto paths = std::make_shared<std::vector<std::string>>();
  add_text(diff, "config", *paths, "PATH", "Two or more YAML files or run folders").required();
  set_action(diff, chosen, [paths](CommandContext&) {
    if (paths->size() < 2) {
      fail(ExitCode::kUsage, "config diff: found only ", paths->front(),
           ", want two or more YAML files or run folders");
    }
    std::vector<LoadedConfig> configs;
    for (const std::string& path : *paths) configs.push_back(config_of(path));
    TextTable table = differing_keys(configs);
    if (table.empty()) {
      std::cout << "no key differs\n";
      return 0;
    }
    paths->insert(paths->begin(), "key");
    table.insert(table.begin(), *paths);
    print_table(table);
    return 0;
  });
}

}  // namespace

void add_config_command(CLI::App& program, Chosen& chosen) {
  CLI::App& config = add_command(
      program, chosen,
      {.name = "config",
       .description = "Shows, checks and compares configurations.",
       .examples = {"bertha config show configs/quickstart.yaml",
                    "bertha config check configs/quickstart.yaml", "bertha config show --doc"}});
  add_show(config, chosen);
  add_check(config, chosen);
  add_diff(config, chosen);
}

}  // namespace bertha
