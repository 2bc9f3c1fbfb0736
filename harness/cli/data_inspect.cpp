#include <algorithm>
#include <filesystem>
#include <map>
#include <ranges>

#include "data/format/manifest.h"
#include "data/format/stats.h"
#include "data/format/verify.h"
#include "data/prepare/source_files.h"
#include "harness/cli/data_commands.h"
#include "harness/cli/options.h"
#include "harness/cli/progress_line.h"
#include "harness/report/report.h"
#include "harness/report/text_format.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

struct InspectOptions {
  std::string path;
  SampleLimits limits;
  int64_t threads = 0;
  std::string checksum_list;
  std::string json;
};

/// The counts of the manifest next to the data; empty without one.
std::map<std::string, int64_t> counts_of(const std::string& path) {
  return find_manifest(path).value_or(Manifest()).counts;
}

Report report_of(const std::string& path, const VerifyReport& found) {
  constexpr size_t kShown = 100;
  Report report;
  const auto counts = counts_of(path);
  report.table(text_of_counts(path, counts));
  report.put("counts", counts);
  report.put("findings", ReportJson::array());
  for (const Finding& finding : found.findings) {
    report.put("findings/-", {{"shard", finding.shard},
                              {"row", finding.row},
                              {"dataset", finding.dataset},
                              {"what", finding.what}});
  }
  for (const Finding& finding : found.findings | std::views::take(kShown)) {
    report.line("{}", finding.text());
  }
  if (found.findings.size() > kShown) {
    report.line("... and {} more", found.findings.size() - kShown);
  }
  report.line("{}: {}, {}, {}{}: {}", figure("path", path),
              figure("shards", found.num_shards, counted("shard")),
              figure("samples", found.num_samples, counted("sample")),
              figure("bytes", found.num_bytes, bytes_text),
              figure("has_manifest", found.has_manifest,
                     [](bool has) { return has ? "" : ", no manifest.json to compare with"; }),
              found.ok() ? "sound" : counted_text(std::ssize(found.findings), "finding"));
  report.put("sound", found.ok());
  return report;
}

std::string percent_text(double fraction) { return fmt::format("{:.1f}%", 100 * fraction); }

/// `columns`: width of the terminal.
Report report_of(const std::string& path, const DataStats& stats, const SampleLimits& limits,
                 int64_t columns) {
  Report report(15, 0);
  report.put("path", path);
  report.row("shards", "{}", figure("shards", stats.num_shards, grouped_text));
  report.row("samples", "{}", figure("samples", stats.num_samples, grouped_text));
  report.row("tokens", "{}, {:.1f} per sample, {} to {}",
             figure("tokens", stats.num_tokens, grouped_text),
             figure("mean_tokens", stats.mean_tokens()),
             figure("shortest_tokens", stats.shortest_tokens()),
             figure("longest_tokens", stats.longest_tokens()));
  report.row("masked", "{}, {:.1f} per sample",
             figure("masked_tokens", stats.num_masked, grouped_text),
             figure("mean_masked", stats.mean_masked()));
  const auto manifest = find_manifest(path).value_or(Manifest());
  const auto segments = manifest.options.find("segments");
  const bool has_pairs = segments == manifest.options.end() || segments->second != "one";
  report.row("random next", "{}{}",
             figure("random_next_fraction", stats.random_next_fraction(), percent_text),
             figure("has_pairs", has_pairs,
                    [](bool has) { return has ? "" : ": one segment per sample, no pairs"; }));
  report.row(
      "padding", "{} of rows of {} tokens",
      figure("padding_fraction", stats.padding_fraction(limits.max_seq_tokens), percent_text),
      figure("max_seq_tokens", limits.max_seq_tokens));
  report.line("\ntokens per sample");
  const int64_t width = std::clamp<int64_t>(columns, 60, 120);
  for (const std::string& line : histogram_lines(stats.token_length_histogram, width)) {
    report.table_line("{}", line);
  }
  report.put("token_length_histogram", stats.token_length_histogram);
  report.table(text_of_counts(path, manifest.counts));
  report.put("counts", manifest.counts);
  return report;
}

int run_verify(const CLI::App& command, const InspectOptions& options,
               const CommandContext& context) {
  VerifyOptions verify;
  verify.num_threads = options.threads;
  verify.checksum_list = options.checksum_list;
  const bool limits_given = is_given(command, "--vocab-size") ||
                            is_given(command, "--max-seq-tokens") ||
                            is_given(command, "--max-masked-per-seq");
  if (limits_given) verify.limits = limits_for(command, options.limits, options.path);
  const VerifyReport found = verify_data(
      options.path, verify, progress_of(progress_lines(context.terminal), "verify", "shards"));
  const ExitCode code = found.ok() ? ExitCode::kSuccess : ExitCode::kData;
  write_report(report_of(options.path, found), options.json, "data verify", code);
  return static_cast<int>(code);
}

int run_stats(const CLI::App& command, const InspectOptions& options,
              const CommandContext& context) {
  const SampleLimits limits = limits_for(command, options.limits, options.path);
  const DataStats stats =
      stats_of_data(options.path, limits, options.threads,
                    progress_of(progress_lines(context.terminal), "read", "shards"));
  write_report(report_of(options.path, stats, limits, context.terminal.columns), options.json,
               "data stats", ExitCode::kSuccess);
  return 0;
}

void add_path(CLI::App& command, InspectOptions& options) {
  add_text(command, "path", options.path, "PATH", "Folder of shards, or one shard").required();
  add_count(command, "--threads", options.threads, "Threads; 0 = one per core (default)");
  add_limit_options(command, options.limits);
  add_json(command, options.json);
}

}  // namespace

std::string text_of_counts(const std::string& path, const std::map<std::string, int64_t>& counts) {
  struct Share {
    const char *count, *whole;
    double most;
    const char *name, *remedy;
  };
  constexpr Share kShares[] = {
      // WordNet's glosses in pairs, 23 tokens, lose 5 % in sequences of 128 tokens and 15 % in 64.
      {"dropped_tokens", "text_tokens", 0.25, "of the text cut off",
       "its sentences are too long for the sequences; write a sentence per line, give --prose for "
       "ordinary prose, or raise --max-seq-tokens; --segments one loses nothing"},
      {"unknown_tokens", "text_tokens", 0.05, "of the text [UNK]",
       "the vocabulary lacks it; choose a model whose vocabulary has it, or, to train from random "
       "weights, build one from this text with `bertha data vocab`"},
      {"lone_documents", "documents", 0.05, "of the documents alone in their file",
       "their random next sentences come from themselves; put them into one file, with a blank "
       "line between documents"}};
  std::string shares, left_out;
  for (const Share& share : kShares) {
    const auto part = counts.find(share.count), whole = counts.find(share.whole);
    if (part == counts.end() || whole == counts.end() || whole->second == 0) continue;
    const double value = static_cast<double>(part->second) / static_cast<double>(whole->second);
    const std::string text = fmt::format("{} {}", percent_text(value), share.name);
    shares += (shares.empty() ? "" : ", ") + text;
    if (value > share.most) {
      log_line(LogLevel::kWarning, fmt::format("{}: {}: {}", path, text, share.remedy));
    }
  }
  for (const auto& [name, text] : kLeftOutReasons) {
    const auto part = counts.find(name);
    if (part != counts.end()) left_out += fmt::format("; {}: {}", text, part->second);
  }
  if (!shares.empty()) shares += '\n';
  if (!left_out.empty()) shares += "not read in the folders of text" + left_out + '\n';
  return shares;
}

void add_layout_option(CLI::App& command, ShardLayout& layout) {
  add_choice(
      command, "--layout", {"variable", "fixed"},
      [&layout](size_t place) {
        layout = place == 0 ? ShardLayout::kVariableLength : ShardLayout::kFixedLength;
      },
      "How sequences are stored: variable = at their own length (default), fixed = all padded to "
      "the longest");
}

void add_limit_options(CLI::App& command, SampleLimits& limits) {
  const auto limit = [&](const std::string& name, int64_t& value, const std::string& doc,
                         int64_t least, int64_t most) {
    add_count(command, name, value, doc + " (default: that of manifest.json, else {})", least,
              most);
  };
  // The limits of a manifest: positions are int16.
  limit("--vocab-size", limits.vocab_size, "Entries of the vocabulary", 1, kMaxVocabEntries);
  limit("--max-seq-tokens", limits.max_seq_tokens, "Longest sequence", 1, 32767);
  limit("--max-masked-per-seq", limits.max_masked_per_seq,
        "Maximum number of masked tokens per sequence", 0, 32767);
}

SampleLimits limits_for(const CLI::App& command, const SampleLimits& options,
                        const std::string& path) {
  SampleLimits limits;
  if (const auto manifest = find_manifest(path)) limits = manifest->limits;
  if (is_given(command, "--vocab-size")) limits.vocab_size = options.vocab_size;
  if (is_given(command, "--max-seq-tokens")) limits.max_seq_tokens = options.max_seq_tokens;
  if (is_given(command, "--max-masked-per-seq")) {
    limits.max_masked_per_seq = options.max_masked_per_seq;
  }
  return limits;
}

void add_data_verify(CLI::App& data, Chosen& chosen) {
  CLI::App& verify =
      add_command(data, chosen,
                  {.name = "verify",
                   .description = "Checks a data folder against its manifest and every sample "
                                  "against the rules; exit code 4 if something is wrong.",
                   .examples = {"bertha data verify data/train",
                                "bertha data verify data/train/part_00000_of_00008.hdf5",
                                "bertha data verify data/train --vocab-size 30522 --threads 8",
                                "bertha data verify hdf5_4320_shards_varlength "
                                "--chk 4320_shards_varlength.chk"}});
  InspectOptions& options = set_action<InspectOptions>(verify, chosen, run_verify);
  add_path(verify, options);
  add_text(verify, "--chk", options.checksum_list, "FILE",
           "Published checksum list to compare the token ids with");
}

void add_data_stats(CLI::App& data, Chosen& chosen) {
  CLI::App& stats = add_command(
      data, chosen,
      {.name = "stats",
       .description = "Prints the counts of a data folder and its histogram of sequence lengths.",
       .examples = {"bertha data stats data/train",
                    "bertha data stats data/train --json lengths.json",
                    "bertha data stats data/eval/part_eval_10k.hdf5"}});
  InspectOptions& options = set_action<InspectOptions>(stats, chosen, run_stats);
  add_path(stats, options);
}

}  // namespace bertha
