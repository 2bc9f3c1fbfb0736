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
#include "data/random/draws.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxShards = 100'000;
constexpr int64_t kPartMib = 8;
constexpr double kHoldOut = 0.01;
constexpr int64_t kMaxHeldOutSamples = 10'000;  // as the published evaluation has
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

const char* document_form_name(DocumentForm form) {
  constexpr const char* kNames[] = {"auto", "blank", "line", "file"};
  return kNames[static_cast<size_t>(form)];
}

/// Numbers that differ for every part; the first one has the seed itself.
uint64_t seed_of_part(uint64_t seed, uint64_t part) {
  return part == 0 ? seed : mixed_seed(seed, part - 1);
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
  // Listed only if it is not the published form, so that the keys of earlier data do not change.
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

/// Adds the part of a text; its files are `path` and `record` + ".json" in the work folder.
void add_part(const ManifestSource& text, uint64_t seed, const std::string& path,
              const std::string& record, PreparationPlan& plan) {
  const Manifest& manifest = plan.manifest;
  const auto& texts = manifest.options;
  const char* const segments = plan.generator.segments == Segments::kOne ? "; segments one" : "";
  plan.parts.push_back(
      {.text = text,
       .seed = seed,
       .path = path,
       .record_path = (fs::path(plan.intake.folder) / (record + ".json")).string(),
       .key = concat("text ", text.sha256, "; tool ", manifest.tool_version, "; Unicode ",
                     manifest.unicode_version, "; vocabulary ", texts.at("vocab_sha256"), "; seed ",
                     seed, "; duplication ", texts.at("duplication"), "; max_seq_tokens ",
                     manifest.limits.max_seq_tokens, "; max_masked_per_seq ",
                     manifest.limits.max_masked_per_seq, "; masked_fraction ",
                     texts.at("masked_fraction"), "; short_seq_probability ",
                     texts.at("short_seq_probability"), "; layout ", layout_name(plan.part_layout),
                     segments, "; ", to_text(plan.tokenizer))});
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
    fail(ExitCode::kUsage,
         "no vocabulary is given; give the folder of a model with --model, a vocabulary with "
         "--vocab, or --ids");
  }
  check_range<int64_t>("--shards", options.num_shards, 0, kMaxShards - 1);
  check_range<int64_t>("--eval-samples", options.eval_samples, 0);
  check_range("--workers", options.workers, 0);
  if (options.part_mib != kPartsByForm) {
    check_range<int64_t>("--part-mib", options.part_mib, 0, 1 << 20);
  }
  if (options.hold_out != kHoldOutByForm) check_range("--hold-out", options.hold_out, 0.0, 0.5);
  if (options.eval_samples > 0 && options.num_shards > 0) {
    fail(ExitCode::kUsage, "--eval-samples ", options.eval_samples, " and --shards ",
         options.num_shards, ", want one of them: evaluation samples go into one file");
  }
  if (options.hold_out > 0 && options.eval_samples > 0) {
    fail(ExitCode::kUsage, "--hold-out ", options.hold_out, " and --eval-samples ",
         options.eval_samples, ", want one of them: both write evaluation data");
  }
}

bool is_published_form(const PrepareOptions& options, const std::vector<SourceFile>& sources) {
  return options.text_form == TextForm::kSentencePerLine &&
         options.documents == DocumentForm::kAuto && options.part_mib <= 0 &&
         options.hold_out <= 0 && !options.ids && options.generator.segments == Segments::kPairs &&
         std::ranges::all_of(sources, &SourceFile::is_plain);
}

PreparationPlan make_plan(const PrepareOptions& options, const std::vector<SourceFile>& sources,
                          std::vector<ManifestSource> texts, int64_t vocab_size) {
  PreparationPlan plan;
  plan.folder = options.output_dir;
  plan.is_published = is_published_form(options, sources);
  plan.generator = options.generator;
  plan.intake = intake_options(options);
  plan.tokenizer = read_tokenizer_settings(options.vocab_file);
  plan.eval_samples = options.eval_samples;
  plan.parts_are_shards = options.num_shards == 0 && options.eval_samples == 0;
  plan.part_layout = plan.parts_are_shards ? options.layout : ShardLayout::kVariableLength;
  plan.manifest = Manifest{.tool_version = BERTHA_VERSION,
                           .unicode_version = unicode_version(),
                           .seed = options.generator.seed,
                           .limits = {.max_seq_tokens = options.generator.max_seq_tokens,
                                      .max_masked_per_seq = options.generator.max_masked_per_seq,
                                      .vocab_size = vocab_size},
                           .options = option_texts(options, plan),
                           .sources = std::move(texts)};
  return plan;
}

void plan_parts(const PrepareOptions& options, const std::vector<ManifestSource>& texts,
                PreparationPlan& plan) {
  const int64_t num_parts = std::ssize(texts);
  plan.shard_names = options.eval_samples > 0
                         ? std::vector{eval_name(options.eval_samples)}
                         : shard_names(plan.parts_are_shards ? num_parts : options.num_shards);
  for (int64_t i = 0; i < num_parts; ++i) {
    const auto at = static_cast<size_t>(i);
    const fs::path name = shard_name(i, num_parts);
    const fs::path folder = plan.parts_are_shards ? plan.folder : fs::path(plan.intake.folder);
    const uint64_t seed = plan.generator.seed;
    add_part(texts[at], plan.is_published ? seed : seed_of_part(seed, at), (folder / name).string(),
             name.stem().string(), plan);
  }
}

PreparationPlan plan_held_out(const PreparationPlan& plan,
                              const std::vector<ManifestSource>& texts) {
  PreparationPlan eval = plan;
  eval.folder = plan.folder / kHeldOutFolder;
  eval.parts.clear();
  eval.shard_names = {kHeldOutName};
  eval.generator.duplication = 1;
  eval.manifest.options["duplication"] = "1";
  eval.manifest.options["num_shards"] = "0";
  eval.manifest.counts.clear();
  eval.eval_samples = kMaxHeldOutSamples;
  eval.parts_are_shards = false;
  eval.part_layout = ShardLayout::kVariableLength;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string name = concat("held_out_", i);
    add_part(texts[i], seed_of_part(plan.generator.seed, kHeldOutSeeds + i),
             (fs::path(plan.intake.folder) / (name + ".hdf5")).string(), name, eval);
  }
  return eval;
}

void check_same_data(const PreparationPlan& plan) {
  const std::string path = plan.manifest_path();
  if (!fs::exists(path)) return;
  const DataFacts found = facts_of(read_manifest(path));
  const DataFacts wanted = facts_of(plan.manifest);
  // First: on it depends which others there are.
  check_same_facts(path, found, {*wanted.find("text_form")});
  check_same_facts(path, found, wanted);
}

void check_output_folder(const PreparationPlan& plan) {
  std::vector<std::string> names = plan.shard_names;
  if (names.empty()) {  // before the text is cut
    if (has_work_folder(plan.folder)) return;
    if (fs::exists(plan.manifest_path())) {
      for (const auto& shard : read_manifest(plan.manifest_path()).shards) {
        names.push_back(shard.name);
      }
    }
    check_nothing_foreign(plan.folder / kHeldOutFolder, {kHeldOutName});
  }
  check_nothing_foreign(plan.folder, names);
}

bool is_already_done(const PrepareOptions& options, const PreparationPlan& plan,
                     PrepareSummary& summary) {
  const std::string path = plan.manifest_path();
  if (!options.resume || !fs::exists(path)) return false;
  Manifest& manifest = summary.manifest;
  manifest = read_manifest(path);
  // Without names the parts are not planned yet; the same facts give the same parts.
  if (!plan.shard_names.empty() &&
      !std::ranges::equal(manifest.shards, plan.shard_names, {}, &ManifestShard::name)) {
    return false;
  }
  if (!are_intact(manifest.shards, plan.folder, options.workers)) return false;
  for (const char* name : {"documents", "sentences", "masked_tokens"}) {
    if (manifest.counts.contains(name)) continue;
    fail(ExitCode::kData, path, ": counts.", name, " is missing, want the number of ", name,
         "; prepare the data again with --no-resume");
  }
  const auto held_out = manifest.counts.find("held_out_documents");
  if (held_out == manifest.counts.end() || held_out->second == 0) return true;
  const fs::path eval = plan.folder / kHeldOutFolder;
  if (!fs::exists(eval / kManifestName)) return false;
  summary.held_out = read_manifest(eval / kManifestName);
  return are_intact(summary.held_out->shards, eval, options.workers);
}

}  // namespace bertha
