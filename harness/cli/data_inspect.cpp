#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include "data/format/manifest.h"
#include "data/format/stats.h"
#include "data/format/verify.h"
#include "data/prepare/source_files.h"
#include "harness/cli/data_commands.h"
#include "harness/cli/log_sink.h"
#include "harness/cli/options.h"
#include "harness/cli/progress_line.h"
#include "harness/report/json_report.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
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

/// Of the manifest beside the data; none without one.
std::map<std::string, int64_t> counts_of(const std::string& path) {
  return find_manifest(path).value_or(Manifest()).counts;
}

void print_findings(const std::string& path, const VerifyReport& report) {
  constexpr size_t kShown = 100;
  for (size_t i = 0; i < std::min(report.findings.size(), kShown); ++i) {
    print_text(report.findings[i].text() + '\n');
  }
  if (report.findings.size() > kShown) {
    std::cout << "... and " << report.findings.size() - kShown << " more\n";
  }
  std::cout << path << ": " << counted_text(report.num_shards, "shard") << ", "
            << counted_text(report.num_samples, "sample") << ", " << bytes_text(report.num_bytes)
            << (report.has_manifest ? "" : ", no manifest.json to compare with") << ": "
            << (report.ok() ? "sound" : counted_text(std::ssize(report.findings), "finding"))
            << '\n';
}

ReportJson verify_json(const std::string& path, const VerifyReport& report) {
  ReportJson findings = ReportJson::array();
  for (const Finding& finding : report.findings) {
    findings.push_back({{"shard", finding.shard},
                        {"row", finding.row},
                        {"dataset", finding.dataset},
                        {"what", finding.what}});
  }
  return {{"path", path},
          {"sound", report.ok()},
          {"has_manifest", report.has_manifest},
          {"shards", report.num_shards},
          {"samples", report.num_samples},
          {"bytes", report.num_bytes},
          {"counts", counts_of(path)},
          {"findings", findings}};
}

ReportJson stats_json(const std::string& path, const DataStats& stats, const SampleLimits& limits) {
  return {{"path", path},
          {"shards", stats.num_shards},
          {"samples", stats.num_samples},
          {"tokens", stats.num_tokens},
          {"masked_tokens", stats.num_masked},
          {"mean_tokens", stats.mean_tokens()},
          {"shortest_tokens", stats.shortest_tokens()},
          {"longest_tokens", stats.longest_tokens()},
          {"mean_masked", stats.mean_masked()},
          {"random_next_fraction", stats.random_next_fraction()},
          {"max_seq_tokens", limits.max_seq_tokens},
          {"padding_fraction", stats.padding_fraction(limits.max_seq_tokens)},
          {"counts", counts_of(path)},
          {"token_length_histogram", stats.token_length_histogram}};
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
  const VerifyReport report = verify_data(
      options.path, verify, progress_of(progress_lines(context.terminal), "verify", "shards"));
  const ExitCode code = report.ok() ? ExitCode::kSuccess : ExitCode::kData;
  if (prints_text(options.json)) {
    print_text_counts(options.path, counts_of(options.path));
    print_findings(options.path, report);
  }
  write_json_report(options.json, "data verify", code, verify_json(options.path, report));
  return static_cast<int>(code);
}

void print_stats(const DataStats& stats, const SampleLimits& limits, int64_t columns) {
  std::cout << "shards         " << grouped_text(stats.num_shards) << "\nsamples        "
            << grouped_text(stats.num_samples) << "\ntokens         "
            << grouped_text(stats.num_tokens) << ", " << fixed_text(stats.mean_tokens(), 1)
            << " per sample, " << stats.shortest_tokens() << " to " << stats.longest_tokens()
            << "\nmasked         " << grouped_text(stats.num_masked) << ", "
            << fixed_text(stats.mean_masked(), 1) << " per sample\nrandom next    "
            << fixed_text(100 * stats.random_next_fraction(), 1) << "%\npadding        "
            << fixed_text(100 * stats.padding_fraction(limits.max_seq_tokens), 1) << "% of rows of "
            << limits.max_seq_tokens << " tokens\n\ntokens per sample\n";
  const int64_t width = std::clamp<int64_t>(columns, 60, 120);
  for (const std::string& line : histogram_lines(stats.token_length_histogram, width)) {
    std::cout << line << '\n';
  }
}

int run_stats(const CLI::App& command, const InspectOptions& options,
              const CommandContext& context) {
  const SampleLimits limits = limits_for(command, options.limits, options.path);
  const DataStats stats =
      stats_of_data(options.path, limits, options.threads,
                    progress_of(progress_lines(context.terminal), "read", "shards"));
  if (prints_text(options.json)) {
    print_stats(stats, limits, context.terminal.columns);
    print_text_counts(options.path, counts_of(options.path));
  }
  write_json_report(options.json, "data stats", ExitCode::kSuccess,
                    stats_json(options.path, stats, limits));
  return 0;
}

void add_path(CLI::App& command, InspectOptions& options) {
  add_text(command, "path", options.path, "PATH", "Folder of shards, or one shard").required();
  add_count(command, "--threads", options.threads, "Threads; 0 = one per core (default)");
  add_limit_options(command, options.limits);
  add_json(command, options.json);
}

}  // namespace

void print_text_counts(const std::string& path, const std::map<std::string, int64_t>& counts) {
  struct Share {
    const char *count, *whole;
    double most;
    const char *name, *remedy;
  };
  constexpr Share kShares[] = {
      // WordNet's glosses in pairs, 23 tokens, lose 5 % in sequences of 128 tokens and 15 % in 64.
      {"dropped_tokens", "text_tokens", 0.25, "of the text cut off",
       "its sentences are long for the sequences; write a sentence per line, give --prose for "
       "ordinary prose, or raise --max-seq-tokens"},
      {"unknown_tokens", "text_tokens", 0.05, "of the text [UNK]",
       "the vocabulary lacks it; train one on this text with `bertha data vocab`"},
      {"lone_documents", "documents", 0.05, "of the documents alone in their file",
       "their random next sentences are their own; put them into one file, with a blank line "
       "between documents"}};
  std::string shares, left_out;
  for (const Share& share : kShares) {
    const auto part = counts.find(share.count), whole = counts.find(share.whole);
    if (part == counts.end() || whole == counts.end() || whole->second == 0) continue;
    const double value = static_cast<double>(part->second) / static_cast<double>(whole->second);
    const std::string text = concat(fixed_text(100 * value, 1), "% ", share.name);
    shares += (shares.empty() ? "" : ", ") + text;
    if (value > share.most) {
      log_line(LogLevel::kWarning, concat(path, ": ", text, ": ", share.remedy));
    }
  }
  for (const auto& [name, text] : kLeftOutReasons) {
    const auto part = counts.find(name);
    if (part != counts.end()) left_out += concat("; ", text, ": ", part->second);
  }
  if (!shares.empty()) std::cout << shares << '\n';
  if (!left_out.empty()) std::cout << "not read in the folders of text" << left_out << '\n';
}

void add_layout_option(CLI::App& command, ShardLayout& layout) {
  add_choice(
      command, "--layout", {"variable", "fixed"},
      [&layout](size_t place) {
        layout = place == 0 ? ShardLayout::kVariableLength : ShardLayout::kFixedLength;
      },
      "How sequences are stored: at their own length (default), or all padded to the longest");
}

void add_limit_options(CLI::App& command, SampleLimits& limits) {
  const auto limit = [&](const std::string& name, int64_t& value, const std::string& doc,
                         int64_t least, int64_t most) {
    add_count(command, name, value, doc + " (default: that of manifest.json, else {})", least,
              most);
  };
  // What a manifest may say: positions and ids are int16.
  limit("--vocab-size", limits.vocab_size, "Entries of the vocabulary", 1, 32768);
  limit("--max-seq-tokens", limits.max_seq_tokens, "Longest sequence", 1, 32767);
  limit("--max-masked-per-seq", limits.max_masked_per_seq, "Most masked tokens of a sequence", 0,
        32767);
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
                                  "against the rules; exit code 4 when something is wrong.",
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
  CLI::App& stats =
      add_command(data, chosen,
                  {.name = "stats",
                   .description = "Counts of a data folder, and the histogram of sequence lengths.",
                   .examples = {"bertha data stats data/train",
                                "bertha data stats data/train --json lengths.json",
                                "bertha data stats data/eval/part_eval_10k.hdf5"}});
  InspectOptions& options = set_action<InspectOptions>(stats, chosen, run_stats);
  add_path(stats, options);
}

}  // namespace bertha
