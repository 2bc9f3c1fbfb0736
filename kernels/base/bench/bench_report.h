#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "kernels/base/bench/op_bench.h"

namespace bertha {

/// The sequences of one batch.
struct BenchMix {
  std::string name;              // "all 512"
  std::vector<int32_t> lengths;  // tokens of each sequence, in the order of the batch
};

/// The results of an operation benchmark on one device.
struct BenchReport {
  std::string model = {};  // whose operations these are; "" = of no model
  std::string device = {};
  std::string precision = {};  // "bf16"
  std::string date = {};       // UTC
  int64_t tokens = 0;          // rows of the first batch; 0 = no batch
  // Roofs, measured in this run or given.
  double peak_flops_per_second = 0;
  double peak_bytes_per_second = 0;     // 0 = each row is compared with its own copy
  std::vector<std::string> notes = {};  // what was not measured, and why
  std::vector<BenchMix> mixes = {};
  std::vector<OpResult> rows = {};
};

/// Share of its roof that an operation reaches in the median; 0 = unknown.
double share_of_roof(const BenchReport& report, const OpResult& row);
/// True when every result is within its bound.
bool all_verified(const BenchReport& report);

/// The table for people.
std::string bench_text(const BenchReport& report);
/// The same figures, unrounded, as one JSON object with a newline at its end; null = not finite.
std::string bench_json(const BenchReport& report);

/// Whether one of the names is the operation's, with or without its end: "attention" chooses
/// attention_fwd and attention_bwd.
bool is_chosen(const std::string& operation, const std::vector<std::string>& names);
/// Error(kUsage) for a name that chooses none of the operations.
void check_names(const std::vector<std::string>& names, const std::set<std::string>& operations);

/// The cases that the names choose; without a name, all of them. Error(kUsage) for an unknown name.
template <class Set>
std::vector<BenchCase<Set>> chosen_cases(std::vector<BenchCase<Set>> all,
                                         const std::vector<std::string>& names) {
  std::set<std::string> operations;
  for (const auto& op : all) operations.insert(op.operation);
  check_names(names, operations);
  if (!names.empty()) {
    std::erase_if(all, [&](const auto& op) { return !is_chosen(op.operation, names); });
  }
  return all;
}

/// "2026-11-21".
std::string utc_date();

}  // namespace bertha
