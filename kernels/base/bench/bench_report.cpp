#include "kernels/base/bench/bench_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <iomanip>

#include "kernels/base/error.h"
#include "kernels/base/figures.h"
#include "kernels/base/joined.h"

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

double median_us(const OpResult& row) { return percentile(row.times_us, 0.5); }

double per_second(double amount, double us) { return us > 0 ? amount / us * 1e6 : 0; }

/// FLOP/s of GEMMs, bytes/s of the rest.
double rate(const OpResult& row) {
  return per_second(row.flops > 0 ? row.flops : row.bytes, median_us(row));
}

double roof(const BenchReport& report, const OpResult& row) {
  if (row.flops > 0) return report.peak_flops_per_second;
  if (report.peak_bytes_per_second > 0) return report.peak_bytes_per_second;
  return per_second(row.bytes, row.copy_us);
}

std::string rate_text(const OpResult& row) {
  const double value = rate(row);
  if (row.flops == 0) return fixed_text(value / 1e9, 1) + " GB/s   ";
  return value < 1e12 ? fixed_text(value / 1e9, 1) + " GFLOP/s"
                      : fixed_text(value / 1e12, 1) + " TFLOP/s";
}

std::string shape_text(const OpResult& row) {
  return row.kernels.empty() ? row.shape : concat(row.shape, ", ", row.kernels);
}

// Values of JSON. Texts here have no characters below the space.
std::string json_value(const std::string& text) { return concat(std::quoted(text)); }
std::string json_value(bool value) { return value ? "true" : "false"; }
/// The shortest text that reads back as the same number.
std::string json_value(auto number) {
  if (!std::isfinite(static_cast<double>(number))) return "null";
  char text[32];
  return {text, std::to_chars(std::begin(text), std::end(text), number).ptr};
}
std::string json_value(const BenchMix& mix);
template <class T>
std::string json_value(const std::vector<T>& values) {
  return concat("[", joined(values, ", ", [](const T& value) { return json_value(value); }), "]");
}

/// {"name": value, ...} of names and values in turn.
template <class... Rest>
std::string json_object(const char* name, const auto& value, const Rest&... rest) {
  std::string text = concat("{\"", name, "\": ", json_value(value));
  if constexpr (sizeof...(rest) == 0)
    return text + "}";
  else
    return text + ", " + json_object(rest...).substr(1);
}

std::string json_value(const BenchMix& mix) {
  return json_object("name", mix.name, "lengths", mix.lengths);
}

}  // namespace

double share_of_roof(const BenchReport& report, const OpResult& row) {
  const double limit = roof(report, row);
  return limit > 0 ? rate(row) / limit : 0;
}

bool all_verified(const BenchReport& report) {
  return std::ranges::all_of(report.rows, [](const OpResult& row) { return row.error <= 1; });
}

std::string bench_text(const BenchReport& report) {
  size_t shape_columns = 5;
  for (const OpResult& row : report.rows) {
    shape_columns = std::max(shape_columns, shape_text(row).size());
  }
  std::string text = concat("operations", report.model.empty() ? "" : " of " + report.model, ", ",
                            report.precision, ", ",
                            report.tokens > 0 ? concat(report.tokens, " token rows, ") : "",
                            report.device, ", ", report.date, "\n");
  for (const std::string& note : report.notes) text += note + "\n";
  text += left("operation", kOperationColumns) + left("shape", shape_columns) + right("verify") +
          right("median") + right("p99") + right("moved") + right("rate", 17) + right("of roof") +
          "\n" + left("", kOperationColumns + shape_columns) + right("(bounds)") + right("(us)") +
          right("(us)") + right("(MB)") + right("", 17) + right("(%)") + "\n";
  for (const OpResult& row : report.rows) {
    const double share = share_of_roof(report, row);
    text += left(row.operation, kOperationColumns) + left(shape_text(row), shape_columns) +
            right(fixed_text(row.error, 3)) + right(fixed_text(median_us(row), 1)) +
            right(fixed_text(percentile(row.times_us, 0.99), 1)) +
            right(fixed_text(row.bytes / 1e6, 2)) + right(rate_text(row), 17) +
            right(share > 0 ? fixed_text(100 * share, 1) : "-") +
            (row.error <= 1 ? "" : concat("  WRONG: ", row.worst)) + "\n";
  }
  text += concat(
      "verify: largest difference from the CPU backend compared with what roundings allow; at full "
      "size, in the leading rows\nroof: ",
      report.peak_bytes_per_second > 0
          ? fixed_text(report.peak_bytes_per_second / 1e9, 1) + " GB/s, given"
          : "a plain copy of as many bytes",
      report.peak_flops_per_second > 0
          ? concat("; of GEMMs ", fixed_text(report.peak_flops_per_second / 1e12, 3), " TFLOP/s")
          : "",
      "\n");
  return text;
}

std::string bench_json(const BenchReport& report) {
  const std::string head =
      json_object("model", report.model, "device", report.device, "precision", report.precision,
                  "date", report.date, "token_rows", report.tokens, "peak_flops_per_second",
                  report.peak_flops_per_second, "verified", all_verified(report), "notes",
                  report.notes, "mixes", report.mixes);
  const std::string operations = joined(report.rows, ",\n  ", [&](const OpResult& row) {
    return json_object("operation", row.operation, "shape", row.shape, "kernels", row.kernels,
                       "verified", row.error <= 1, "error_over_allowed", row.error, "error_in",
                       row.worst, "compared", row.checked, "launches", std::ssize(row.times_us),
                       "median_us", median_us(row), "p99_us", percentile(row.times_us, 0.99),
                       "flops", row.flops, "bytes", row.bytes, "per_second", rate(row),
                       "roof_per_second", roof(report, row), "share_of_roof",
                       share_of_roof(report, row));
  });
  return concat(head.substr(0, head.size() - 1), ", \"operations\": [\n  ", operations, "]}\n");
}

bool is_chosen(const std::string& operation, const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    return operation == name || operation.starts_with(name + "_");
  });
}

void check_names(const std::vector<std::string>& names, const std::set<std::string>& operations) {
  for (const std::string& name : names) {
    if (std::ranges::none_of(operations, [&](const auto& op) { return is_chosen(op, {name}); })) {
      fail(ExitCode::kUsage, "--op ", name, " is no operation; want some of ",
           joined(operations, ", "), ".");
    }
  }
}

std::string utc_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", &parts);
  return text;
}

}  // namespace bertha
