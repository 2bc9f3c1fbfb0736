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

// JSON values. These texts contain no control characters.
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

/// A value of the report: its name and value in the JSON, and its column in the table, if any.
struct Field {
  const char* name;
  std::string value;
  std::string title = {};  // title of the column; "" = none
  std::string unit = {};   // below the title
  std::string text = {};
  size_t columns = 11;   // at least
  bool is_name = false;  // on the left of its column
};

std::string json_fields(const std::vector<Field>& fields) {
  return joined(fields, ", ",
                [](const Field& field) { return concat("\"", field.name, "\": ", field.value); });
}

std::string json_value(const BenchMix& mix) {
  return concat("{",
                json_fields({{"name", json_value(mix.name)}, {"lengths", json_value(mix.lengths)}}),
                "}");
}

}  // namespace

double share_of_roof(const BenchReport& report, const OpResult& row) {
  const double limit = roof(report, row);
  return limit > 0 ? rate(row) / limit : 0;
}

namespace {

/// The fields of a row, in the order of the table.
std::vector<Field> fields_of(const BenchReport& report, const OpResult& row) {
  const double median = median_us(row), p99 = percentile(row.times_us, 0.99);
  const double share = share_of_roof(report, row);
  return {
      {"operation", json_value(row.operation), "operation", "", row.operation, 21, true},
      {"shape", json_value(row.shape), "shape", "", shape_text(row), 5, true},
      {"kernels", json_value(row.kernels)},
      {"verified", json_value(row.error <= 1)},
      {"error_over_allowed", json_value(row.error), "verify", "(bounds)", fixed_text(row.error, 3)},
      {"error_in", json_value(row.worst)},
      {"compared", json_value(row.checked)},
      {"launches", json_value(std::ssize(row.times_us))},
      {"median_us", json_value(median), "median", "(us)", fixed_text(median, 1)},
      {"p99_us", json_value(p99), "p99", "(us)", fixed_text(p99, 1)},
      {"flops", json_value(row.flops)},
      {"bytes", json_value(row.bytes), "moved", "(MB)", fixed_text(row.bytes / 1e6, 2)},
      {"per_second", json_value(rate(row)), "rate", "", rate_text(row), 17},
      {"roof_per_second", json_value(roof(report, row))},
      {"share_of_roof", json_value(share), "of roof", "(%)",
       share > 0 ? fixed_text(100 * share, 1) : "-"},
  };
}

using Row = std::vector<Field>;

/// One line of the table: what `part` selects of each field. Columns are as wide as their longest
/// text in `rows`.
std::string table_line(const Row& fields, std::string Field::*part, const std::vector<Row>& rows) {
  std::ostringstream line;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].title.empty()) continue;
    size_t columns = fields[i].columns;
    for (const Row& row : rows) columns = std::max(columns, row[i].text.size());
    line << (fields[i].is_name ? std::left : std::right) << std::setw(static_cast<int>(columns))
         << fields[i].*part;
  }
  return line.str();
}

}  // namespace

bool all_verified(const BenchReport& report) {
  return std::ranges::all_of(report.rows, [](const OpResult& row) { return row.error <= 1; });
}

std::string bench_text(const BenchReport& report) {
  std::vector<Row> rows;
  for (const OpResult& row : report.rows) rows.push_back(fields_of(report, row));
  const Row titles = fields_of(report, {});
  std::string text = concat("operations", report.model.empty() ? "" : " of " + report.model, ", ",
                            report.precision, ", ",
                            report.tokens > 0 ? concat(report.tokens, " token rows, ") : "",
                            report.device, ", ", report.date, "\n");
  for (const std::string& note : report.notes) text += note + "\n";
  text += table_line(titles, &Field::title, rows) + "\n" + table_line(titles, &Field::unit, rows) +
          "\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const OpResult& row = report.rows[i];
    text += table_line(rows[i], &Field::text, rows) +
            (row.error <= 1 ? "" : concat("  WRONG: ", row.worst)) + "\n";
  }
  text += concat(
      "verify: largest difference from the CPU backend as a share of the tolerance for roundings; "
      "at full size, in the leading rows\nroof: ",
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
      json_fields({{"model", json_value(report.model)},
                   {"device", json_value(report.device)},
                   {"precision", json_value(report.precision)},
                   {"date", json_value(report.date)},
                   {"token_rows", json_value(report.tokens)},
                   {"peak_flops_per_second", json_value(report.peak_flops_per_second)},
                   {"verified", json_value(all_verified(report))},
                   {"notes", json_value(report.notes)},
                   {"mixes", json_value(report.mixes)}});
  const std::string operations = joined(report.rows, ",\n  ", [&](const OpResult& row) {
    return concat("{", json_fields(fields_of(report, row)), "}");
  });
  return concat("{", head, ", \"operations\": [\n  ", operations, "]}\n");
}

bool is_chosen(const std::string& operation, const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    return operation == name || operation.starts_with(name + "_");
  });
}

void check_names(const std::vector<std::string>& names, const std::set<std::string>& operations) {
  for (const std::string& name : names) {
    if (std::ranges::none_of(operations, [&](const auto& op) { return is_chosen(op, {name}); })) {
      fail(ExitCode::kUsage, "--op ", name, " is not an operation; choose from ",
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
