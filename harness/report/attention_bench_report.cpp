#include "harness/report/attention_bench_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/report/bench_json.h"
#include "harness/report/step_bench_report.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr size_t kWordColumns = 11;
constexpr size_t kFigureColumns = 10;
constexpr double kBarColumns = 60;

std::string left(std::string text, size_t columns = kWordColumns) {
  text.resize(std::max(columns, text.size() + 1), ' ');
  return text;
}

std::string right(const std::string& text) {
  return std::string(kFigureColumns - std::min(kFigureColumns, text.size()), ' ') + text;
}

const char* direction(bool is_backward) { return is_backward ? "backward" : "forward"; }

double median_us(const AttentionRow& row) { return percentile(row.times_us, 0.5); }

double flops_per_second(const AttentionRow& row) {
  const double us = median_us(row);
  return us > 0 ? row.flops / us * 1e6 : 0;
}

double share_of_peak(const AttentionBenchReport& report, const AttentionRow& row) {
  const double peak = report.peak_flops_per_second;
  return peak > 0 ? flops_per_second(row) / peak : 0;
}

const AttentionMix& mix_of(const AttentionBenchReport& report, const AttentionRow& row) {
  const auto found = std::ranges::find(report.mixes, row.mix, &AttentionMix::name);
  BERTHA_CHECK(found != report.mixes.end(), "no mix ", row.mix);
  return *found;
}

/// Three digits at least, whatever the device is.
std::string tflops_text(double flops_per_second) {
  const double tflops = flops_per_second / 1e12;
  return fixed_text(tflops, tflops < 1 ? 4 : 1);
}

double end_us(const AttentionTimeline& timeline) {
  double end = 0;
  for (const AttentionLaneRow& group : timeline.groups) end = std::max(end, group.span.end_us);
  return end;
}

/// kBarColumns for the whole timeline; = where the group may run.
std::string bar(const LaneSpan& span, double whole_us) {
  std::string text(static_cast<size_t>(kBarColumns), ' ');
  for (size_t column = 0; column < text.size(); ++column) {
    const double us = (static_cast<double>(column) + 0.5) / kBarColumns * whole_us;
    if (us >= span.begin_us && us < span.end_us) text[column] = '=';
  }
  return text;
}

}  // namespace

std::string kernels_of(const std::string& taken, bool is_backward) {
  const size_t comma = taken.find(", ");
  if (comma == std::string::npos) return taken;
  const std::string part = is_backward ? taken.substr(comma + 2) : taken.substr(0, comma);
  return part.substr(0, part.find(' '));
}

bool all_verified(const AttentionBenchReport& report) {
  return std::ranges::all_of(report.rows, [](const AttentionRow& row) { return row.error <= 1; });
}

std::string attention_bench_text(const AttentionBenchReport& report) {
  size_t kernel_columns = kWordColumns;
  for (const AttentionRow& row : report.rows) {
    kernel_columns = std::max(kernel_columns, row.kernels.size() + 1);
  }
  std::string text =
      concat("attention of ", report.model, ", ", report.precision, ", ", report.heads,
             " heads of ", report.head_size, ", ", report.device, ", ", report.date, "\n");
  if (!report.chosen.empty()) text += concat("the configuration takes ", report.chosen, "\n");
  for (const std::string& note : report.notes) text += note + "\n";
  text += left("mix") + right("rows") + right("sequences") + right("dropout") + "  " +
          left("direction") + left("kernels", kernel_columns) + right("verify") + right("median") +
          right("p99") + right("rate") + right("of peak") + "\n" + left("") + right("") +
          right("") + right("") + "  " + left("") + left("", kernel_columns) + right("(bounds)") +
          right("(us)") + right("(us)") + right("(TFLOP/s)") + right("(%)") + "\n";
  for (const AttentionRow& row : report.rows) {
    const AttentionMix& mix = mix_of(report, row);
    const double share = share_of_peak(report, row);
    text += left(row.mix) + right(concat(mix.token_rows)) + right(concat(mix.lengths.size())) +
            right(fixed_text(row.dropout, 2)) + "  " + left(direction(row.is_backward)) +
            left(row.kernels, kernel_columns) + right(fixed_text(row.error, 3)) +
            right(fixed_text(median_us(row), 1)) +
            right(fixed_text(percentile(row.times_us, 0.99), 1)) +
            right(tflops_text(flops_per_second(row))) +
            right(share > 0 ? fixed_text(100 * share, 1) : "-") +
            (row.error <= 1 ? "" : concat("  WRONG: ", row.worst)) + "\n";
  }
  text += concat("verify: largest difference from the CPU backend beside what roundings allow\n",
                 "rate: 4 D per pair of tokens of a sequence and head forward, 8 D backward; ",
                 "peak: a large product, ", report.peak_is_given ? "given, " : "measured, ",
                 tflops_text(report.peak_flops_per_second), " TFLOP/s\n");
  return text;
}

std::string attention_lanes_text(const std::vector<AttentionTimeline>& timelines) {
  std::string text;
  for (const AttentionTimeline& timeline : timelines) {
    double alone_us = 0;
    for (const AttentionLaneRow& group : timeline.groups) alone_us += group.alone_us;
    const double whole_us = end_us(timeline);
    text += concat("\nlanes of the grouped kernels, ", timeline.mix, ", dropout ",
                   fixed_text(timeline.dropout, 2), ", ", direction(timeline.is_backward), ": ",
                   fixed_text(whole_us, 1),
                   " us; each group by itself, summed: ", fixed_text(alone_us, 1), " us\n") +
            right("lane") + right("sequences") + right("longest") + right("alone") +
            right("begin") + right("end") + "\n";
    for (const AttentionLaneRow& group : timeline.groups) {
      text += right(concat(group.span.lane)) + right(concat(group.span.num_seqs)) +
              right(concat(group.span.longest_seq_tokens)) + right(fixed_text(group.alone_us, 1)) +
              right(fixed_text(group.span.begin_us, 1)) + right(fixed_text(group.span.end_us, 1)) +
              " |" + bar(group.span, whole_us) + "|\n";
    }
  }
  return text;
}

std::string attention_bench_json(const AttentionBenchReport& report) {
  using Json = nlohmann::ordered_json;
  Json json = bench_head_json(report);
  json.update({{"chosen", report.chosen},
               {"notes", report.notes},
               {"heads", report.heads},
               {"head_size", report.head_size},
               {"peak_flops_per_second", report.peak_flops_per_second},
               {"peak_is_given", report.peak_is_given},
               {"verified", all_verified(report)},
               {"mixes", Json::array()},
               {"rows", Json::array()},
               {"timelines", Json::array()}});
  for (const AttentionMix& mix : report.mixes) {
    json["mixes"].push_back(
        {{"name", mix.name}, {"token_rows", mix.token_rows}, {"lengths", mix.lengths}});
  }
  for (const AttentionRow& row : report.rows) {
    Json entry{{"mix", row.mix},
               {"dropout", row.dropout},
               {"direction", direction(row.is_backward)},
               {"kernels", row.kernels}};
    entry.update(bench_verdict_json(row));
    entry.update({{"calls", row.times_us.size()},
                  {"median_us", median_us(row)},
                  {"p99_us", percentile(row.times_us, 0.99)},
                  {"flops", row.flops},
                  {"flops_per_second", flops_per_second(row)},
                  {"share_of_peak", share_of_peak(report, row)}});
    json["rows"].push_back(std::move(entry));
  }
  for (const AttentionTimeline& timeline : report.timelines) {
    Json entry{{"mix", timeline.mix},
               {"dropout", timeline.dropout},
               {"direction", direction(timeline.is_backward)},
               {"groups", Json::array()}};
    for (const AttentionLaneRow& group : timeline.groups) {
      entry["groups"].push_back({{"lane", group.span.lane},
                                 {"sequences", group.span.num_seqs},
                                 {"longest", group.span.longest_seq_tokens},
                                 {"alone_us", group.alone_us},
                                 {"begin_us", group.span.begin_us},
                                 {"end_us", group.span.end_us}});
    }
    json["timelines"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

}  // namespace bertha
