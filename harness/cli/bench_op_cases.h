#pragma once

#include <string>
#include <vector>

#include "harness/report/kernel_bench_report.h"
#include "kernels/bench/op_bench.h"

namespace bertha {

// What `bertha bench kernels` and `bertha bench rows` share.

/// Those of the named operations, all without a name. A name without its end stands for several:
/// "attention" for attention_fwd and attention_bwd. Error(kUsage) for an unknown name.
std::vector<OpCase> chosen_cases(std::vector<OpCase> all, const std::vector<std::string>& names);

/// Error(kUsage) when a name stands for one of these, which cannot run: "--op NAME <why>."
void refuse_cases(const std::vector<OpCase>& cases, const std::vector<std::string>& names,
                  const std::string& why);

/// Checks and times each, `launches` times.
std::vector<KernelRow> run_cases(OpBench& bench, const std::vector<OpCase>& cases,
                                 int64_t launches);

/// Prints the report, writes it to the file `json` unless that is empty, and returns the exit code:
/// kNumeric when a result is wrong.
int finish_report(const KernelBenchReport& report, const std::string& json);

/// "2026-11-21".
std::string utc_date();

}  // namespace bertha
