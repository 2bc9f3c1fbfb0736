#include "harness/report/kernel_bench_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/report/bench_json.h"
#include "harness/report/step_bench_report.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr size_t kOperationColumns = 21;
constexpr size_t kFigureColumns = 11;

std::string left(std::string text, size_t columns) {
  text.resize(std::max(columns, text.size()), ' ');
  return text;
}

std::string right(const std::string& text, size_t columns = kFigureColumns) {
  return std::string(columns - std::min(columns, text.size()), ' ') + text;
}

double median_us(const KernelRow& row) { return percentile(row.times_us, 0.5); }

double per_second(double amount, double us) { return us > 0 ? amount / us * 1e6 : 0; }

/// FLOP/s of products, bytes/s of the rest.
double rate(const KernelRow& row) {
  return per_second(row.flops > 0 ? row.flops : row.bytes, median_us(row));
}

double roof(const KernelBenchReport& report, const KernelRow& row) {
  if (row.flops > 0) return report.peak_flops_per_second;
  if (report.peak_bytes_per_second > 0) return report.peak_bytes_per_second;
  return per_second(row.bytes, row.copy_us);
}

std::string rate_text(const KernelRow& row) {
  const double value = rate(row);
  if (row.flops == 0) return fixed_text(value / 1e9, 1) + " GB/s   ";
  return value < 1e12 ? fixed_text(value / 1e9, 1) + " GFLOP/s"
                      : fixed_text(value / 1e12, 1) + " TFLOP/s";
}

}  // namespace

double share_of_roof(const KernelBenchReport& report, const KernelRow& row) {
  const double limit = roof(report, row);
  return limit > 0 ? rate(row) / limit : 0;
}

bool all_verified(const KernelBenchReport& report) {
  return std::ranges::all_of(report.rows, [](const KernelRow& row) { return row.error <= 1; });
}

std::string kernel_bench_text(const KernelBenchReport& report) {
  size_t shape_columns = 5;
  for (const KernelRow& row : report.rows) {
    shape_columns = std::max(shape_columns, row.shape.size());
  }
  std::string text = concat("operations", report.model.empty() ? "" : " of " + report.model, ", ",
                            report.precision, ", ",
                            report.tokens > 0 ? concat(report.tokens, " token rows, ") : "",
                            report.device, ", ", report.date, "\n");
  text += left("operation", kOperationColumns) + left("shape", shape_columns) + right("verify") +
          right("median") + right("p99") + right("moved") + right("rate", 17) + right("of roof") +
          "\n" + left("", kOperationColumns + shape_columns) + right("(bounds)") + right("(us)") +
          right("(us)") + right("(MB)") + right("", 17) + right("(%)") + "\n";
  for (const KernelRow& row : report.rows) {
    const double share = share_of_roof(report, row);
    text += left(row.operation, kOperationColumns) + left(row.shape, shape_columns) +
            right(fixed_text(row.error, 3)) + right(fixed_text(median_us(row), 1)) +
            right(fixed_text(percentile(row.times_us, 0.99), 1)) +
            right(fixed_text(row.bytes / 1e6, 2)) + right(rate_text(row), 17) +
            right(share > 0 ? fixed_text(100 * share, 1) : "-") +
            (row.error <= 1 ? "" : concat("  WRONG: ", row.worst)) + "\n";
  }
  text += concat(
      "verify: largest difference from the CPU backend beside what roundings allow; at full size, "
      "the leading rows\nroof: ",
      report.peak_bytes_per_second > 0
          ? fixed_text(report.peak_bytes_per_second / 1e9, 1) + " GB/s, given"
          : "a plain copy of as many bytes",
      report.peak_flops_per_second > 0
          ? concat("; of products ", fixed_text(report.peak_flops_per_second / 1e12, 3), " TFLOP/s")
          : "",
      "\n");
  return text;
}

std::string kernel_bench_json(const KernelBenchReport& report) {
  using Json = nlohmann::ordered_json;
  Json json = bench_head_json(report);
  json.update({{"token_rows", report.tokens},
               {"peak_flops_per_second", report.peak_flops_per_second},
               {"verified", all_verified(report)},
               {"operations", Json::array()}});
  for (const KernelRow& row : report.rows) {
    Json entry{{"operation", row.operation}, {"shape", row.shape}};
    entry.update(bench_verdict_json(row));
    entry.update({{"compared", row.checked},
                  {"launches", row.times_us.size()},
                  {"median_us", median_us(row)},
                  {"p99_us", percentile(row.times_us, 0.99)},
                  {"flops", row.flops},
                  {"bytes", row.bytes},
                  {"per_second", rate(row)},
                  {"roof_per_second", roof(report, row)},
                  {"share_of_roof", share_of_roof(report, row)}});
    json["operations"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

}  // namespace bertha
