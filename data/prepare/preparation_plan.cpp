#include "data/prepare/preparation_plan.h"

#include <array>
#include <charconv>
#include <filesystem>
#include <map>

#include "data/files/hashing.h"
#include "data/format/checksum_list.h"
#include "data/format/output_folder.h"
#include "data/format/shard_names.h"
#include "data/prepare/unicode_text.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostShards = 100'000;

/// The shortest text that reads back as the same number.
std::string exact_text(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return std::string(digits.data(), end);
}

std::string eval_name(int64_t samples) {
  if (samples % 1000 == 0) return concat("part_eval_", samples / 1000, "k.hdf5");
  return concat("part_eval_", samples, ".hdf5");
}

const char* layout_name(ShardLayout layout) {
  return layout == ShardLayout::kFixedLength ? "fixed_length" : "variable_length";
}

std::map<std::string, std::string> option_texts(const PrepareOptions& options,
                                                const TokenizerSettings& tokenizer) {
  std::map<std::string, std::string> texts = {
      {"layout", layout_name(options.layout)},
      {"num_shards", concat(options.num_shards)},
      {"duplication", concat(options.generator.duplication)},
      {"masked_fraction", exact_text(options.generator.masked_fraction)},
      {"short_seq_probability", exact_text(options.generator.short_seq_probability)},
      {"eval_samples", concat(options.eval_samples)},
      {"vocab_sha256", vocabulary_sha256(options.vocab_file)},
      {kTokenizerOption, to_text(tokenizer)}};
  // Named where it is not the published form, so that data made before stay what they were.
  if (options.text_form == TextForm::kProse) texts["text_form"] = "prose";
  return texts;
}

/// Everything but the text that decides the samples of a part.
std::string generator_key(const Manifest& manifest, ShardLayout part_layout) {
  const auto& texts = manifest.options;
  return concat(
      "tool ", manifest.tool_version, "; Unicode ", manifest.unicode_version, "; vocabulary ",
      texts.at("vocab_sha256"), "; seed ", manifest.seed, "; duplication ", texts.at("duplication"),
      "; max_seq_tokens ", manifest.limits.max_seq_tokens, "; max_masked_per_seq ",
      manifest.limits.max_masked_per_seq, "; masked_fraction ", texts.at("masked_fraction"),
      "; short_seq_probability ", texts.at("short_seq_probability"), "; layout ",
      layout_name(part_layout), texts.contains("text_form") ? "; prose" : "");
}

/// Everything that decides the shards, one name and value each.
DataFacts facts_of(const Manifest& manifest) {
  DataFacts facts = manifest.options;
  facts.emplace("text_form", "sentence_per_line");  // where the manifest names none
  facts.emplace(kTokenizerOption, manifest.tokenizer());
  facts["tool_version"] = manifest.tool_version;
  facts["unicode_version"] = manifest.unicode_version;
  facts["seed"] = concat(manifest.seed);
  facts["max_seq_tokens"] = concat(manifest.limits.max_seq_tokens);
  facts["max_masked_per_seq"] = concat(manifest.limits.max_masked_per_seq);
  facts["vocab_size"] = concat(manifest.limits.vocab_size);
  facts["number of text files"] = concat(manifest.sources.size());
  for (size_t i = 0; i < manifest.sources.size(); ++i) {
    facts[concat("SHA-256 of text file ", i + 1)] = manifest.sources[i].sha256;
  }
  return facts;
}

}  // namespace

void check_options(const PrepareOptions& options) {
  check_options(options.generator);
  if (options.output_dir.empty()) {
    fail(ExitCode::kUsage, "--output is empty, want the folder to write shards to");
  }
  if (options.vocab_file.empty()) {
    fail(ExitCode::kUsage, "--vocab is empty, want the path of a vocabulary");
  }
  if (options.num_shards < 0 || options.num_shards >= kMostShards) {
    fail(ExitCode::kUsage, "--shards ", options.num_shards, ", want 0 to ", kMostShards - 1);
  }
  if (options.eval_samples < 0) {
    fail(ExitCode::kUsage, "--eval-samples ", options.eval_samples, ", want 0 or more");
  }
  if (options.eval_samples > 0 && options.num_shards > 0) {
    fail(ExitCode::kUsage, "--eval-samples ", options.eval_samples, " and --shards ",
         options.num_shards, ", want one of them: evaluation samples go into one file");
  }
  if (options.workers < 0)
    fail(ExitCode::kUsage, "--workers ", options.workers, ", want 0 or more");
}

PreparationPlan make_plan(const PrepareOptions& options, const std::vector<SourceFile>& sources,
                          const std::vector<std::string>& source_sha256, int64_t vocab_size) {
  const fs::path folder(options.output_dir);
  const auto num_parts = static_cast<int64_t>(sources.size());
  PreparationPlan plan;
  plan.generator = options.generator;
  plan.text_form = options.text_form;
  plan.tokenizer = read_tokenizer_settings(options.vocab_file);
  plan.parts_are_shards = options.num_shards == 0 && options.eval_samples == 0;
  plan.part_layout = plan.parts_are_shards ? options.layout : ShardLayout::kVariableLength;
  plan.manifest_path = (folder / kManifestName).string();
  plan.checksum_list_path = (folder / kChecksumListName).string();
  plan.manifest = Manifest{.tool_version = BERTHA_VERSION,
                           .unicode_version = unicode_version(),
                           .seed = options.generator.seed,
                           .limits = {.max_seq_tokens = options.generator.max_seq_tokens,
                                      .max_masked_per_seq = options.generator.max_masked_per_seq,
                                      .vocab_size = vocab_size},
                           .options = option_texts(options, plan.tokenizer)};
  if (options.eval_samples > 0) {
    plan.shard_paths.push_back((folder / eval_name(options.eval_samples)).string());
  }
  const int64_t num_shards = plan.parts_are_shards ? num_parts : options.num_shards;
  for (int64_t i = 0; i < num_shards; ++i) {
    plan.shard_paths.push_back((folder / shard_name(i, num_shards)).string());
  }
  const std::string key = generator_key(plan.manifest, plan.part_layout);
  for (int64_t i = 0; i < num_parts; ++i) {
    const auto at = static_cast<size_t>(i);
    const fs::path name = shard_name(i, num_parts);
    plan.parts.push_back(
        {.source = sources[at],
         .path = plan.parts_are_shards ? plan.shard_paths[at] : (folder / "work" / name).string(),
         .record_path = (folder / "work" / name.stem()).string() + ".json",
         .key = concat("text ", source_sha256[at], "; ", key, "; ", to_text(plan.tokenizer))});
    plan.manifest.sources.push_back(
        {.path = sources[at].path, .bytes = sources[at].bytes, .sha256 = source_sha256[at]});
  }
  return plan;
}

void check_output_folder(const PrepareOptions& options, const PreparationPlan& plan) {
  if (fs::exists(plan.manifest_path)) {
    check_same_facts(plan.manifest_path, facts_of(read_manifest(plan.manifest_path)),
                     facts_of(plan.manifest));
  }
  std::vector<std::string> names;
  for (const std::string& path : plan.shard_paths) names.push_back(fs::path(path).filename());
  check_nothing_foreign(options.output_dir, names);
}

bool is_already_done(const PrepareOptions& options, const PreparationPlan& plan,
                     Manifest& manifest) {
  if (!options.resume || !fs::exists(plan.manifest_path)) return false;
  manifest = read_manifest(plan.manifest_path);
  if (manifest.shards.size() != plan.shard_paths.size()) return false;
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    if (manifest.shards[i].name != fs::path(plan.shard_paths[i]).filename()) return false;
  }
  if (!are_intact(manifest.shards, options.output_dir, options.workers)) return false;
  for (const char* name : {"documents", "sentences", "masked_tokens"}) {
    if (manifest.counts.contains(name)) continue;
    fail(ExitCode::kData, plan.manifest_path, ": counts.", name, " is missing, want the number of ",
         name, "; make the data again with --no-resume");
  }
  return true;
}

}  // namespace bertha
