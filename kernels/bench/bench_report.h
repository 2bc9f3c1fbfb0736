#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/bench/op_bench.h"

namespace bertha {

/// The sequences of one batch.
struct BenchMix {
  std::string name;              // "all 512"
  std::vector<int32_t> lengths;  // tokens of each sequence, in the order of the batch
};

/// What a benchmark of operations found on one device.
struct BenchReport {
  std::string model;  // whose operations these are; "" = of no model
  std::string device;
  std::string precision;  // "bf16"
  std::string date;       // UTC
  int64_t tokens = 0;     // rows of the first batch; 0 = there is none
  // Roofs, measured in this run or given.
  double peak_flops_per_second = 0;
  double peak_bytes_per_second = 0;     // 0 = each row has a copy of its own
  std::vector<std::string> notes = {};  // what was not measured, and why
  std::vector<BenchMix> mixes = {};
  std::vector<OpResult> rows;
};

/// Share of its roof that an operation reaches in the median; 0 = unknown.
double share_of_roof(const BenchReport& report, const OpResult& row);
/// True when every result is within its bound.
bool all_verified(const BenchReport& report);

/// The table for people.
std::string bench_text(const BenchReport& report);
/// The same figures, unrounded, as one JSON object with a newline at its end.
std::string bench_json(const BenchReport& report);

/// Those of the named operations, all without a name. A name without its end stands for several:
/// "attention" for attention_fwd and attention_bwd. Error(kUsage) for an unknown name.
std::vector<OpCase> chosen_cases(std::vector<OpCase> all, const std::vector<std::string>& names);
/// Error(kUsage) when a name stands for one of these, which cannot run: "--op NAME <why>."
void refuse_cases(const std::vector<OpCase>& cases, const std::vector<std::string>& names,
                  const std::string& why);

/// "2026-11-21".
std::string utc_date();

}  // namespace bertha
