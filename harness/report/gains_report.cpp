#include "harness/report/gains_report.h"

#include <algorithm>

#include "harness/report/svg_chart.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

constexpr const char* kSources =
    "[1] Baidu, BERT in MLPerf Training v2.0, 8 A100, as its authors report\n"
    "[2] OneFlow, BatchNorm + ReLU with a bit mask, as its authors report\n";

double median(const std::vector<double>& values) { return percentile(values, 0.5); }

bool has_run(const GainRow& row) { return !row.off_ms.empty() && !row.on_ms.empty(); }

std::string percent_text(double percent) {
  return (percent < 0 ? "" : "+") + fixed_text(percent, 1) + " %";
}

std::string time_text(const std::vector<double>& ms) {
  const int decimals = median(ms) < 1 ? 4 : 3;
  if (ms.size() == 1) return fixed_text(ms.front(), decimals);
  return concat(fixed_text(median(ms), decimals), " (", fixed_text(percentile(ms, 0.1), decimals),
                " to ", fixed_text(percentile(ms, 0.9), decimals), ")");
}

ReportJson times_json(const std::vector<double>& ms) {
  return {{"median", median(ms)},
          {"p10", percentile(ms, 0.1)},
          {"p90", percentile(ms, 0.9)},
          {"all", ms}};
}

}  // namespace

std::vector<GainRow> gain_rows() {
  return {
      {"unpad-most", "un-padded batches", "all sequences padded to the most tokens", "un-padded",
       "2.3 x [1]", 130},
      {"unpad-longest", "un-padded batches", "padded to the longest of the batch", "un-padded"},
      {"attention-groups", "attention in groups of like lengths", "one group", "groups by 128",
       "3.5 % with streams [1]", 3.5},
      {"attention-streams", "groups of attention overlap", "one stream", "four streams",
       "3.5 % with groups [1]", 3.5, "operation"},
      {"attention-persistent", "attention in one launch", "cuda.attention grouped",
       "cuda.attention auto, no graphs"},
      {"exchange", "samples exchanged so that ranks have like numbers of tokens", "slices as read",
       "assigned by length"},
      {"exchange-ahead", "exchange ahead of the step", "while the GPU waits", "ahead", "1.5 % [1]",
       1.5},
      {"offsets-ahead", "offsets of un-padded batches ahead of the step", "while the GPU waits",
       "ahead", "1.3 % [1]", 1.3},
      {"embedding-gradient", "gradient of the word table sorted", "pairs of atomic adds",
       "sorted, f32"},
      {"embedding-half2", "rows added to the word table by pairs of atomic adds",
       "single atomic adds of 16 bits", "pairs", "10 % [1]", 10, "operation"},
      {"embedding-f32", "the same in 16 bits", "single atomic adds to a table in f32", "pairs", "",
       0, "operation"},
      {"gelu-gemms", "own kernels of GEMMs with a GELU", "cuda.gelu_gemms library",
       "cuda.gelu_gemms auto"},
      {"bias-epilogue", "bias and GELU in the GEMM", "GEMM, then two copies in place of them",
       "fused", "5.5 % bias and its gradient [1]", 5.5, "operation"},
      {"dgelu-epilogue", "gradient of GELU in the GEMM", "GEMM, then the gradient", "fused", "", 0,
       "operation"},
      {"dbias-epilogue", "bias gradient in the GEMM", "GEMM, then column sums by a GEMM with ones",
       "fused", "5.5 % with bias [1]", 5.5, "operation"},
      {"addto", "gradients added by the GEMM", "GEMM, then an addition", "fused", "1.1 % [1]", 1.1,
       "operation"},
      {"residual-ln", "dropout, residual and LayerNorm as one",
       "a copy in place of dropout, addition, LayerNorm; both directions", "fused", "2.3 % [1]",
       2.3, "operation"},
      {"lamb-flat", "LAMB over all tensors at once", "a call per tensor", "one call", "18.3 % [1]",
       18.3, "operation"},
      {"clip-after", "clipping after the sum over ranks", "optimizer.clip before",
       "optimizer.clip after"},
      {"rare-output", "loss read rarely", "after every step", "not at all",
       "0.4 and 0.17 %: rates, output and evaluation on the GPU [1]"},
      {"eval-on-device", "evaluation summed on the GPU", "read after every batch", "read once",
       "see rare-output", 0, "evaluation"},
      {"batch-norm-mask", "BatchNorm + ReLU keeps bits", "backward reads y", "backward reads bits",
       "12.9 %, 48.3 to 42.8 us [2]", 0, "operation"},
      {"batch-norm-bytes", "the same, against bytes", "a byte per element", "a bit", "", 0,
       "operation"},
      {"batch-norm-ballot", "bits without a ballot", "a ballot of the warp per element of a thread",
       "a byte of bits per thread", "", 0, "operation"},
      {"gemm-plans", "tuned GEMMs", "the library's first choice", "cuda.gemm_plans"},
      {"graphs", "forward and backward as graphs", "cuda.graphs off", "cuda.graphs auto"},
      {"fp8", "GEMMs in fp8", "train.precision as given", "train.precision fp8"}};
}

std::vector<GainRow> chosen_gain_rows(const std::vector<std::string>& names) {
  std::vector<GainRow> rows = gain_rows();
  for (const std::string& name : names) {
    if (std::ranges::find(rows, name, &GainRow::name) != rows.end()) continue;
    fail(ExitCode::kUsage, "--only ", name, " is no row; want some of ",
         joined(rows, ", ", &GainRow::name), ".");
  }
  std::erase_if(rows, [&](const GainRow& row) {
    return !names.empty() && std::ranges::find(names, row.name) == names.end();
  });
  return rows;
}

double gain_percent(const GainRow& row) {
  const double on = median(row.on_ms);
  return on > 0 ? 100 * (median(row.off_ms) / on - 1) : 0;
}

double step_gain_percent(const GainsReport& report, const GainRow& row) {
  if (!has_run(row)) return 0;
  if (row.scope == "step") return gain_percent(row);
  const double lost_ms = (median(row.off_ms) - median(row.on_ms)) * row.calls_per_step;
  return report.step_ms > 0 ? 100 * lost_ms / report.step_ms : 0;
}

std::string gains_text(const GainsReport& report) {
  std::string text =
      concat("what each technique gains: ", report.model, ", ", report.precision, ", ",
             counted_text(report.ranks, "rank"), ", ", report.device, ", ", report.date, "\n");
  if (report.step_ms > 0) {
    text += concat("step as configured: ", fixed_text(report.step_ms, 3), " ms, ",
                   fixed_text(report.tokens_per_step, 0), " tokens\n");
  }
  TextTable table{{"row", "scope", "off, ms (p10 to p90)", "on, ms (p10 to p90)", "faster by",
                   "of the step", "the source"}};
  std::string about;
  for (const GainRow& row : report.rows) {
    about += concat("  ", row.name, ": ", row.technique, "; off: ", row.off, "; on: ", row.on,
                    row.reason.empty() ? "" : "\n    not run: " + row.reason, "\n");
    if (!has_run(row)) {
      table.push_back({row.name, row.scope, "-", "-", "-", "-", row.source});
      continue;
    }
    const double of_step = step_gain_percent(report, row);
    table.push_back({row.name, row.scope, time_text(row.off_ms), time_text(row.on_ms),
                     percent_text(gain_percent(row)), of_step == 0 ? "-" : percent_text(of_step),
                     row.source});
  }
  return concat(text, aligned_text(table), "\n", about, kSources);
}

ReportJson gains_json(const GainsReport& report) {
  ReportJson json{{"model", report.model},         {"device", report.device},
                  {"precision", report.precision}, {"date", report.date},
                  {"ranks", report.ranks},         {"tokens_per_step", report.tokens_per_step},
                  {"step_ms", report.step_ms},     {"rows", ReportJson::array()}};
  for (const GainRow& row : report.rows) {
    ReportJson made{{"name", row.name},     {"technique", row.technique},
                    {"scope", row.scope},   {"off", row.off},
                    {"on", row.on},         {"source", row.source},
                    {"reason", row.reason}, {"source_percent", nullptr}};
    if (row.source_percent > 0) made["source_percent"] = row.source_percent;
    if (has_run(row)) {
      made["off_ms"] = times_json(row.off_ms);
      made["on_ms"] = times_json(row.on_ms);
      made["gain_percent"] = gain_percent(row);
      made["calls_per_step"] = row.calls_per_step;
      made["off_tokens"] = row.off_tokens;
      made["on_tokens"] = row.on_tokens;
      made["step_gain_percent"] = nullptr;
      if (const double of_step = step_gain_percent(report, row); of_step != 0) {
        made["step_gain_percent"] = of_step;
      }
    }
    json["rows"].push_back(made);
  }
  return json;
}

std::string gains_svg(const GainsReport& report) {
  std::vector<LabelledBar> bars;
  for (const GainRow& row : report.rows) {
    const double percent = step_gain_percent(report, row);
    if (percent != 0) bars.push_back({row.name, percent, row.source_percent});
  }
  const std::string gpu = report.device.substr(0, report.device.find(','));
  return bars_svg(concat("Gain of each technique, ", report.model, ", ", gpu),
                  "more steps per second with it (%)", "reported by its source", bars);
}

}  // namespace bertha
