#include "data/prepare/prepare.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "data/files/for_each_parallel.h"
#include "data/files/hashing.h"
#include "data/files/json_file.h"
#include "data/files/new_file.h"
#include "data/format/checksum_list.h"
#include "data/format/output_folder.h"
#include "data/format/shard_reader.h"
#include "data/format/shard_writer.h"
#include "data/prepare/byte_stream.h"
#include "data/prepare/intake.h"
#include "data/prepare/pairs_and_masks.h"
#include "data/prepare/part_reader.h"
#include "data/prepare/preparation_plan.h"
#include "data/prepare/source_files.h"
#include "data/prepare/vocabulary.h"
#include "data/prepare/wordpiece.h"
#include "kernels/base/error.h"
#include "kernels/base/seconds_since.h"

namespace bertha {
namespace {

/// The record of a finished part: the samples of one text.
struct PartRecord {
  std::string key;                        // everything that decides the part's content, as text
  std::map<std::string, int64_t> counts;  // the part's share of Manifest::counts
  int64_t samples = 0;
  int64_t bytes = 0;  // size of the part's file
  std::string xxh3;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PartRecord, key, counts, samples, bytes, xxh3)

constexpr const char* kTextUnit = "B of text";

/// The sources for the manifest. Pipes are still to be counted and hashed.
std::vector<ManifestSource> hash_sources(const std::vector<SourceFile>& sources, int workers,
                                         const WorkProgress& progress) {
  SharedProgress text(progress_of(progress, "hash", kTextUnit), total_bytes(sources));
  text.add(0);
  std::vector<ManifestSource> hashed(sources.size());
  for_each_parallel(std::ssize(sources), workers, [&](int64_t index) {
    const auto at = static_cast<size_t>(index);
    hashed[at] = {.path = sources[at].path, .bytes = sources[at].bytes, .sha256 = {}};
    if (sources[at].stream) return;
    hashed[at].sha256 = sha256_of_file(sources[at].path);
    text.add(sources[at].bytes);
  });
  return hashed;
}

/// The part's record, if it has the part's key and describes the samples' file, byte for byte;
/// otherwise nothing.
std::optional<PartRecord> find_finished_part(const PartPlan& part) {
  std::optional<PartRecord> record = read_json_record<PartRecord>(part.record_path);
  if (!record || record->key != part.key) return std::nullopt;
  const ManifestShard file{.name = part.path, .bytes = record->bytes, .xxh3 = record->xxh3};
  return are_intact({file}, "", 1) ? record : std::nullopt;
}

/// One part through the generator: writes the samples and then the record, each appearing by
/// rename.
PartRecord make_part(const PreparationPlan& plan, const PartPlan& part,
                     const Vocabulary& vocabulary, SharedProgress& text,
                     const std::function<bool()>& cancelled) {
  // Reading the text counts as one pass over it, besides one pass per duplication.
  const int64_t num_passes = 1 + plan.generator.duplication;
  int64_t told_bytes = 0;
  Documents documents;
  {
    WordPieceTokenizer tokenizer(vocabulary, plan.tokenizer);
    documents = read_documents(part.text.path, tokenizer, [&](int64_t bytes) {
      if (cancelled()) throw Cancelled();
      told_bytes += bytes / num_passes;
      text.add(bytes / num_passes);
    });
  }
  GeneratorOptions generator = plan.generator;
  generator.seed = part.seed;
  const GeneratedSamples samples = generate_samples(documents, vocabulary, generator);
  if (cancelled()) throw Cancelled();
  ShardWriter writer(part.path, plan.part_layout, plan.manifest.limits);
  for (int64_t place = 0; place < samples.size(); ++place) writer.append(samples.at(place));
  writer.finish();
  const bool is_lone = documents.size() == 1 && generator.segments == Segments::kPairs;
  PartRecord record{.key = part.key,
                    .counts = {{"documents", documents.size()},
                               {"sentences", documents.num_sentences()},
                               {"lone_documents", is_lone ? 1 : 0},
                               {"text_tokens", documents.num_tokens()},
                               {"unknown_tokens", std::ranges::count(documents.token_ids,
                                                                     vocabulary.special().unknown)},
                               {"dropped_tokens", samples.dropped_tokens}},
                    .samples = samples.size(),
                    .bytes = static_cast<int64_t>(std::filesystem::file_size(part.path)),
                    .xxh3 = xxh3_of_file(part.path)};
  write_new_file(part.record_path, nlohmann::json(record).dump(1) + "\n");
  text.add(part.text.bytes - told_bytes);
  return record;
}

/// All parts, finished ones of an earlier run among them.
std::vector<PartRecord> make_parts(const PrepareOptions& options, const PreparationPlan& plan,
                                   const Vocabulary& vocabulary, SharedProgress& text,
                                   int64_t& num_reused) {
  std::vector<PartRecord> records(plan.parts.size());
  std::atomic<int64_t> reused{0};
  for_each_parallel(static_cast<int64_t>(plan.parts.size()), options.workers,
                    [&](int64_t index, const std::function<bool()>& cancelled) {
                      const PartPlan& part = plan.parts[static_cast<size_t>(index)];
                      PartRecord& record = records[static_cast<size_t>(index)];
                      if (options.resume) {
                        if (auto found = find_finished_part(part)) {
                          record = *std::move(found);
                          ++reused;
                          text.add(0, -part.text.bytes);
                          return;
                        }
                      }
                      record = make_part(plan, part, vocabulary, text, cancelled);
                    });
  num_reused = reused;
  return records;
}

/// Copies samples of the parts, in order, into the shards: all, or those that are picked for
/// evaluation. Stores one part and one shard in memory.
void write_shards(const PrepareOptions& options, const PreparationPlan& plan,
                  const std::vector<PartRecord>& records, const ItemProgress& progress) {
  if (plan.parts_are_shards) return;
  const auto num_shards = std::ssize(plan.shard_names);
  int64_t num_samples = 0;
  for (const PartRecord& record : records) num_samples += record.samples;
  std::vector<int64_t> selection;
  if (plan.eval_samples > 0) {
    const bool are_asked_for = options.eval_samples > 0;  // then fewer are an error
    selection = eval_selection(
        num_samples, are_asked_for ? plan.eval_samples : std::min(num_samples, plan.eval_samples));
    num_samples = std::ssize(selection);
  }
  const std::vector<int64_t> sizes = shard_sizes(num_samples, num_shards);
  if (progress) progress(0, num_shards);
  std::optional<ShardWriter> writer;
  size_t shard = 0;
  int64_t first_id = 0, written = 0;
  for (const PartPlan& part : plan.parts) {
    const SampleSet samples = read_shard(part.path, first_id, plan.manifest.limits);
    first_id += samples.size();
    for (int64_t i = 0; i < samples.size(); ++i) {
      const SampleView sample = samples[i];
      if (plan.eval_samples > 0 && !std::ranges::binary_search(selection, sample.id)) continue;
      if (!writer) writer.emplace(plan.shard_path(shard), options.layout, plan.manifest.limits);
      writer->append(sample);
      if (++written < sizes[shard]) continue;
      writer->finish();
      writer.reset();
      written = 0;
      ++shard;
      if (progress) progress(static_cast<int64_t>(shard), num_shards);
    }
  }
  BERTHA_CHECK(static_cast<int64_t>(shard) == num_shards && !writer, shard, " shards of ",
               num_shards);
}

/// Makes the shards, the checksum list and the manifest that are planned.
Manifest make_data(const PrepareOptions& options, const PreparationPlan& plan,
                   const Vocabulary& vocabulary, const WorkProgress& progress,
                   int64_t& parts_reused) {
  int64_t text_bytes = 0;
  for (const PartPlan& part : plan.parts) text_bytes += part.text.bytes;
  SharedProgress text(progress_of(progress, "generate", kTextUnit), text_bytes);
  text.add(0);
  const std::vector<PartRecord> parts = make_parts(options, plan, vocabulary, text, parts_reused);
  write_shards(options, plan, parts, progress_of(progress, "write", "shards"));

  // Every shard is read back.
  std::vector<ShardRecord> shards(plan.shard_names.size());
  const ItemProgress shard_progress = progress_of(progress, "check", "shards");
  if (shard_progress) shard_progress(0, std::ssize(shards));
  const auto describe = [&](int64_t index) {
    const auto at = static_cast<size_t>(index);
    shards[at] = describe_shard(plan.shard_path(at), plan.manifest.limits);
  };
  for_each_parallel(std::ssize(shards), options.workers, describe, shard_progress);

  Manifest manifest = plan.manifest;
  manifest.counts["text_files"] = std::ssize(manifest.sources);
  for (const PartRecord& part : parts) {
    for (const auto& [name, count] : part.counts) manifest.counts[name] += count;
  }
  for (const ManifestSource& source : manifest.sources) {
    manifest.counts["text_bytes"] += source.bytes;
  }
  add_shards(shards, manifest);
  write_checksum_list((plan.folder / kChecksumListName).string(), manifest.shards);
  write_manifest(plan.manifest_path(), manifest);
  return manifest;
}

/// The text of a sample, with its [MASK], as much as fits into a few lines.
std::string text_of_sample(const SampleView& sample, const Vocabulary& vocabulary) {
  constexpr size_t kMaxBytes = 480;
  std::string text;
  for (const TokenId id : sample.token_ids) {
    const std::string& wordpiece = vocabulary.wordpiece(id);
    const bool goes_on = wordpiece.starts_with("##");
    if (text.size() + wordpiece.size() > kMaxBytes) return text + " ...";
    if (!goes_on && !text.empty()) text += ' ';
    text += goes_on ? wordpiece.substr(2) : wordpiece;
  }
  return text;
}

/// The sample in the middle of the first shard, as text.
std::string some_sample(const PrepareOptions& options, const Manifest& manifest,
                        const Vocabulary& vocabulary) {
  ShardRows rows((std::filesystem::path(options.output_dir) / manifest.shards.at(0).name).string());
  const SampleSet samples =
      rows.read(rows.num_rows() / 2, 1, manifest.limits, [](const Violation&) {}).samples;
  return text_of_sample(samples[0], vocabulary);
}

/// Brings the text into parts of the published form, if it is not; returns those held out, too.
Intake cut_text(const PrepareOptions& options, const std::vector<SourceFile>& sources,
                PreparationPlan& plan, const WorkProgress& progress) {
  make_work_folder(options.output_dir);
  SharedProgress text(progress_of(progress, "read", kTextUnit), total_bytes(sources));
  text.add(0);
  Intake intake = write_text_parts(sources, plan.intake, [&](int64_t bytes) { text.add(bytes); });
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].stream) continue;
    plan.manifest.sources[i].bytes = sources[i].stream->bytes_read();
    plan.manifest.sources[i].sha256 = sources[i].stream->sha256();
  }
  plan_parts(options, intake.parts, plan);
  plan.manifest.counts["held_out_documents"] = intake.held_out_documents;
  return intake;
}

void remove_texts(const Intake& intake) {
  std::error_code ignored;
  for (const auto* parts : {&intake.parts, &intake.held_out}) {
    for (const ManifestSource& part : *parts) std::filesystem::remove(part.path, ignored);
  }
}

void check_published(const std::vector<SourceFile>& sources) {
  const auto other = std::ranges::find_if_not(sources, &SourceFile::is_plain);
  if (other == sources.end()) return;
  fail(ExitCode::kUsage, other->path,
       ": --official needs files of plain text, one sentence per line; convert the text first");
}

}  // namespace

std::vector<int64_t> eval_selection(int64_t num_samples, int64_t num_selected) {
  if (num_samples < num_selected) {
    fail(ExitCode::kData, "--eval-samples ", num_selected, ", but the text yields only ",
         num_samples, " samples; ask for at most that many or give more text");
  }
  const double ratio = static_cast<double>(num_samples) / static_cast<double>(num_selected);
  std::vector<int64_t> selection;
  for (int64_t i = 0; i < num_selected; ++i) {
    selection.push_back(static_cast<int64_t>(static_cast<double>(i) * ratio));
  }
  return selection;
}

std::string id_vocabulary(const std::string& special, int64_t vocab_size, TokenIds& ids) {
  std::map<std::string, std::string> names = {
      {"cls", "[CLS]"}, {"sep", "[SEP]"}, {"pad", "[PAD]"}, {"mask", "[MASK]"}, {"unk", "[UNK]"}};
  std::map<int64_t, std::string> tokens;
  std::istringstream words(special);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t equals = std::min(word.find('='), word.size());
    const auto name = names.extract(word.substr(0, equals));
    const std::string number = word.substr(std::min(equals + 1, word.size()));
    const char* const end = number.data() + number.size();
    int64_t id = -1;
    if (std::from_chars(number.data(), end, id).ptr != end || name.empty() || id < 0 ||
        id >= vocab_size || !tokens.emplace(id, name.mapped()).second) {
      fail(ExitCode::kUsage, "--special-ids: found \"", word,
           "\", want cls=N,sep=N,pad=N,mask=N,unk=N with five different ids below --vocab-size ",
           vocab_size);
    }
    if (name.key() != "unk") ids.reserved.insert(id);
  }
  if (!names.empty()) {
    fail(ExitCode::kUsage, "--special-ids: ", names.begin()->first, " is missing, want ",
         "cls=N,sep=N,pad=N,mask=N,unk=N");
  }
  ids.count = vocab_size;
  std::string lines;
  for (int64_t id = 0; id < vocab_size; ++id) {
    const auto token = tokens.find(id);
    lines += (token == tokens.end() ? concat(id) : token->second) + "\n";
  }
  return lines;
}

PrepareSummary prepare_data(const PrepareOptions& options, const WorkProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  check_options(options);
  for (const std::string& input : options.inputs) {
    std::error_code ignored;
    if (!std::filesystem::equivalent(input, options.output_dir, ignored)) continue;
    fail(ExitCode::kUsage, options.output_dir,
         ": is also a folder of --text; choose another output folder");
  }
  std::map<std::string, int64_t> left_out;
  const std::vector<SourceFile> sources =
      list_source_files(options.inputs, options.missing, &left_out, options.output_dir);
  if (options.published_form_only) check_published(sources);
  const Vocabulary vocabulary = Vocabulary::load(options.vocab_file);
  PreparationPlan plan = make_plan(
      options, sources, hash_sources(sources, options.workers, progress), vocabulary.size());
  plan.manifest.counts = std::move(left_out);
  plan.manifest.special_ids = vocabulary.special();
  const FileLock lock = lock_output_folder(options.output_dir);
  if (plan.is_published) plan_parts(options, plan.manifest.sources, plan);
  const bool has_pipe = std::ranges::any_of(
      sources, [](const SourceFile& source) { return source.stream != nullptr; });
  if (!has_pipe) check_same_data(plan);
  check_output_folder(plan);

  PrepareSummary summary;
  summary.already_done = !has_pipe && is_already_done(options, plan, summary);
  Intake intake;
  if (!summary.already_done && !plan.is_published) {
    intake = cut_text(options, sources, plan, progress);
    check_same_data(plan);
    check_output_folder(plan);
    summary.already_done = has_pipe && is_already_done(options, plan, summary);
  }
  if (!summary.already_done) {
    make_work_folder(options.output_dir);
    if (!intake.held_out.empty()) {
      const PreparationPlan held_out = plan_held_out(plan, intake.held_out);
      make_folder(held_out.folder);
      int64_t reused = 0;
      summary.held_out = make_data(options, held_out, vocabulary, {}, reused);
      for (const PartPlan& part : held_out.parts) {
        std::filesystem::remove(part.path);
        std::filesystem::remove(part.record_path);
      }
    }
    summary.manifest = make_data(options, plan, vocabulary, progress, summary.parts_reused);
  }
  remove_texts(intake);
  // The records of parts that are shards are kept: a shard that is lost later is prepared alone.
  if (!plan.parts_are_shards) remove_work_folder(options.output_dir);
  summary.sample = some_sample(options, summary.manifest, vocabulary);
  summary.elapsed_seconds = seconds_since(start);
  return summary;
}

}  // namespace bertha
