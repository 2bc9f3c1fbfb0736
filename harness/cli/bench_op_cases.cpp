#include "harness/cli/bench_op_cases.h"

#include <algorithm>
#include <ctime>
#include <iostream>
#include <set>
#include <utility>

#include "harness/report/files.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

bool is_named(const std::string& operation, const std::string& name) {
  return operation == name || operation.starts_with(name + "_");
}

}  // namespace

std::vector<OpCase> chosen_cases(std::vector<OpCase> all, const std::vector<std::string>& names) {
  std::set<std::string> known;
  for (const OpCase& op : all) known.insert(op.operation);
  for (const std::string& name : names) {
    if (std::ranges::any_of(known, [&](const auto& word) { return is_named(word, name); })) {
      continue;
    }
    std::string list;
    for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
    fail(ExitCode::kUsage, "--op ", name, " is no operation; want some of ", list, ".");
  }
  if (!names.empty()) {
    std::erase_if(all, [&](const OpCase& op) {
      return std::ranges::none_of(names,
                                  [&](const auto& name) { return is_named(op.operation, name); });
    });
  }
  return all;
}

void refuse_cases(const std::vector<OpCase>& cases, const std::vector<std::string>& names,
                  const std::string& why) {
  for (const std::string& name : names) {
    if (std::ranges::any_of(cases,
                            [&](const OpCase& op) { return is_named(op.operation, name); })) {
      fail(ExitCode::kUsage, "--op ", name, " ", why, ".");
    }
  }
}

std::vector<KernelRow> run_cases(OpBench& bench, const std::vector<OpCase>& cases,
                                 int64_t launches) {
  std::vector<KernelRow> rows;
  for (const OpCase& op : cases) {
    OpResult found = bench.run(op, launches);
    rows.push_back({.operation = found.operation,
                    .shape = found.shape,
                    .times_us = std::move(found.times_us),
                    .flops = found.flops,
                    .bytes = found.bytes,
                    .copy_us = found.copy_us,
                    .error = found.error,
                    .worst = found.worst,
                    .checked = found.checked});
  }
  return rows;
}

int finish_report(const KernelBenchReport& report, const std::string& json) {
  std::cout << kernel_bench_text(report);
  if (!json.empty()) write_text_file(json, kernel_bench_json(report));
  return static_cast<int>(all_verified(report) ? ExitCode::kSuccess : ExitCode::kNumeric);
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
