#include "data/prepare/preparation_plan.h"

#include <algorithm>
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
constexpr int64_t kPartMib = 8;
constexpr double kHoldOut = 0.01;
constexpr int64_t kMostHeldOutSamples = 10'000;  // as the published evaluation has
constexpr uint64_t kHeldOutSeeds = uint64_t{1} << 32;
constexpr const char* kHeldOutFolder = "eval";
constexpr const char* kHeldOutName = "part_eval.hdf5";

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

const char* document_form_name(DocumentForm form) {
  constexpr const char* kNames[] = {"auto", "blank", "line", "file"};
  return kNames[static_cast<size_t>(form)];
}

/// Numbers that differ for every part; the first one has the seed itself.
uint64_t seed_of_part(uint64_t seed, uint64_t part) {
  if (part == 0) return seed;
  uint64_t mixed = seed + part * 0x9e3779b97f4a7c15;  // SplitMix64
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

IntakeOptions intake_options(const PrepareOptions& options) {
  const int64_t part_mib = options.part_mib == kPartsByForm ? kPartMib : options.part_mib;
  const double by_form = options.eval_samples > 0 ? 0 : kHoldOut;
  return {.text_form = options.text_form,
          .documents = options.documents,
          .field = options.field,
          .ids = options.ids,
          .part_bytes = part_mib << 20,
          .hold_out = options.hold_out == kHoldOutByForm ? by_form : options.hold_out,
          .seed = options.generator.seed,
          .folder = (fs::path(options.output_dir) / "work").string(),
          .workers = options.workers};
}

std::map<std::string, std::string> option_texts(const PrepareOptions& options,
                                                const PreparationPlan& plan) {
  std::map<std::string, std::string> texts = {
      {"layout", layout_name(options.layout)},
      {"num_shards", concat(options.num_shards)},
      {"duplication", concat(options.generator.duplication)},
      {"masked_fraction", exact_text(options.generator.masked_fraction)},
      {"short_seq_probability", exact_text(options.generator.short_seq_probability)},
      {"eval_samples", concat(options.eval_samples)},
      {"vocab_sha256", vocabulary_sha256(options.vocab_file)},
      {kTokenizerOption, to_text(plan.tokenizer)}};
  // Named where it is not the published form, so that data made before stay what they were.
  if (!plan.is_published) {
    texts["text_form"] = options.ids                             ? "ids"
                         : options.text_form == TextForm::kProse ? "prose"
                                                                 : "lines";
    texts["documents"] = document_form_name(options.documents);
    texts["field"] = options.field;
    texts["part_mib"] = concat(plan.intake.part_bytes >> 20);
    texts["hold_out"] = exact_text(plan.intake.hold_out);
    texts["segments"] = options.generator.segments == Segments::kOne ? "one" : "pairs";
  }
  return texts;
}

/// Everything but the text that decides the samples of a part.
std::string generator_key(const Manifest& manifest, ShardLayout part_layout, uint64_t seed) {
  const auto& texts = manifest.options;
  const auto segments = texts.find("segments");
  return concat("tool ", manifest.tool_version, "; Unicode ", manifest.unicode_version,
                "; vocabulary ", texts.at("vocab_sha256"), "; seed ", seed, "; duplication ",
                texts.at("duplication"), "; max_seq_tokens ", manifest.limits.max_seq_tokens,
                "; max_masked_per_seq ", manifest.limits.max_masked_per_seq, "; masked_fraction ",
                texts.at("masked_fraction"), "; short_seq_probability ",
                texts.at("short_seq_probability"), "; layout ", layout_name(part_layout),
                segments != texts.end() && segments->second == "one" ? "; segments one" : "");
}

/// Everything that decides the shards, one name and value each.
DataFacts facts_of(const Manifest& manifest) {
  DataFacts facts = manifest.options;
  facts.emplace("text_form", "sentence_per_line");  // the published form, which the manifest omits
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
    fail(ExitCode::kUsage, "--vocab is missing, want the path of a vocabulary, or --ids");
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
  if (options.part_mib != kPartsByForm && (options.part_mib < 0 || options.part_mib > 1 << 20)) {
    fail(ExitCode::kUsage, "--part-mib ", options.part_mib, ", want 0 to ", 1 << 20);
  }
  if (options.hold_out != kHoldOutByForm && !(options.hold_out >= 0 && options.hold_out <= 0.5)) {
    fail(ExitCode::kUsage, "--hold-out ", options.hold_out, ", want a number from 0 to 0.5");
  }
  if (options.hold_out > 0 && options.eval_samples > 0) {
    fail(ExitCode::kUsage, "--hold-out ", options.hold_out, " and --eval-samples ",
         options.eval_samples, ", want one of them: both make evaluation data");
  }
  if (options.workers < 0)
    fail(ExitCode::kUsage, "--workers ", options.workers, ", want 0 or more");
}

bool is_published_form(const PrepareOptions& options, const std::vector<SourceFile>& sources) {
  return options.text_form == TextForm::kSentencePerLine &&
         options.documents == DocumentForm::kAuto && options.part_mib <= 0 &&
         options.hold_out <= 0 && !options.ids && options.generator.segments == Segments::kPairs &&
         std::ranges::all_of(sources, &SourceFile::is_plain);
}

PreparationPlan make_plan(const PrepareOptions& options, const std::vector<SourceFile>& sources,
                          const std::vector<std::string>& source_sha256, int64_t vocab_size) {
  const fs::path folder(options.output_dir);
  PreparationPlan plan;
  plan.is_published = is_published_form(options, sources);
  plan.generator = options.generator;
  plan.intake = intake_options(options);
  plan.tokenizer = read_tokenizer_settings(options.vocab_file);
  plan.eval_samples = options.eval_samples;
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
                           .options = option_texts(options, plan)};
  for (size_t i = 0; i < sources.size(); ++i) {
    plan.manifest.sources.push_back(
        {.path = sources[i].path, .bytes = sources[i].bytes, .sha256 = source_sha256[i]});
  }
  return plan;
}

void plan_parts(const PrepareOptions& options, const std::vector<TextPart>& texts,
                PreparationPlan& plan) {
  const fs::path folder(options.output_dir);
  const int64_t num_parts = std::ssize(texts);
  if (options.eval_samples > 0) {
    plan.shard_paths.push_back((folder / eval_name(options.eval_samples)).string());
  }
  const int64_t num_shards = plan.parts_are_shards ? num_parts : options.num_shards;
  for (int64_t i = 0; i < num_shards; ++i) {
    plan.shard_paths.push_back((folder / shard_name(i, num_shards)).string());
  }
  for (int64_t i = 0; i < num_parts; ++i) {
    const auto at = static_cast<size_t>(i);
    const fs::path name = shard_name(i, num_parts);
    const uint64_t seed =
        plan.is_published ? plan.generator.seed : seed_of_part(plan.generator.seed, at);
    plan.parts.push_back(
        {.source = texts[at].file,
         .seed = seed,
         .path = plan.parts_are_shards ? plan.shard_paths[at] : (folder / "work" / name).string(),
         .record_path = (folder / "work" / name.stem()).string() + ".json",
         .key = concat("text ", texts[at].sha256, "; ",
                       generator_key(plan.manifest, plan.part_layout, seed), "; ",
                       to_text(plan.tokenizer))});
  }
}

PreparationPlan plan_held_out(const PreparationPlan& plan, const PrepareOptions& options,
                              const std::vector<TextPart>& texts) {
  const fs::path folder = fs::path(options.output_dir) / kHeldOutFolder;
  PreparationPlan eval = plan;
  eval.parts.clear();
  eval.shard_paths = {(folder / kHeldOutName).string()};
  eval.manifest_path = (folder / kManifestName).string();
  eval.checksum_list_path = (folder / kChecksumListName).string();
  eval.generator.duplication = 1;
  eval.manifest.options["duplication"] = "1";
  eval.manifest.options["num_shards"] = "0";
  eval.manifest.counts.clear();
  eval.eval_samples = kMostHeldOutSamples;
  eval.parts_are_shards = false;
  eval.part_layout = ShardLayout::kVariableLength;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string path =
        (fs::path(options.output_dir) / "work" / concat("held_out_", i)).string();
    const uint64_t seed = seed_of_part(plan.generator.seed, kHeldOutSeeds + i);
    eval.parts.push_back({.source = texts[i].file,
                          .seed = seed,
                          .path = path + ".hdf5",
                          .record_path = path + ".json",
                          .key = concat("text ", texts[i].sha256, "; ",
                                        generator_key(eval.manifest, eval.part_layout, seed), "; ",
                                        to_text(plan.tokenizer))});
  }
  return eval;
}

void check_same_data(const PreparationPlan& plan) {
  if (!fs::exists(plan.manifest_path)) return;
  const DataFacts found = facts_of(read_manifest(plan.manifest_path));
  const DataFacts wanted = facts_of(plan.manifest);
  // First: on it depends which others there are.
  check_same_facts(plan.manifest_path, found, {*wanted.find("text_form")});
  check_same_facts(plan.manifest_path, found, wanted);
}

void check_output_folder(const PrepareOptions& options, const PreparationPlan& plan) {
  std::vector<std::string> names;
  for (const std::string& path : plan.shard_paths) names.push_back(fs::path(path).filename());
  if (plan.shard_paths.empty()) {  // before the text is cut
    if (has_work_folder(options.output_dir)) return;
    if (fs::exists(plan.manifest_path)) {
      for (const auto& shard : read_manifest(plan.manifest_path).shards)
        names.push_back(shard.name);
    }
    check_nothing_foreign((fs::path(options.output_dir) / kHeldOutFolder).string(), {kHeldOutName});
  }
  check_nothing_foreign(options.output_dir, names);
}

bool is_already_done(const PrepareOptions& options, const PreparationPlan& plan,
                     PrepareSummary& summary) {
  if (!options.resume || !fs::exists(plan.manifest_path)) return false;
  Manifest& manifest = summary.manifest;
  manifest = read_manifest(plan.manifest_path);
  // Without paths the parts are not known yet, and the same facts give the same parts.
  if (!plan.shard_paths.empty() && manifest.shards.size() != plan.shard_paths.size()) return false;
  for (size_t i = 0; i < plan.shard_paths.size(); ++i) {
    if (manifest.shards[i].name != fs::path(plan.shard_paths[i]).filename()) return false;
  }
  if (!are_intact(manifest.shards, options.output_dir, options.workers)) return false;
  for (const char* name : {"documents", "sentences", "masked_tokens"}) {
    if (manifest.counts.contains(name)) continue;
    fail(ExitCode::kData, plan.manifest_path, ": counts.", name, " is missing, want the number of ",
         name, "; make the data again with --no-resume");
  }
  const auto held_out = manifest.counts.find("held_out_documents");
  if (held_out == manifest.counts.end() || held_out->second == 0) return true;
  const std::string eval = plan_held_out(plan, options, {}).manifest_path;
  if (!fs::exists(eval)) return false;
  summary.held_out = read_manifest(eval);
  return are_intact(summary.held_out->shards, fs::path(eval).parent_path(), options.workers);
}

}  // namespace bertha
