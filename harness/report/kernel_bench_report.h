#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bertha {

/// One operation at one shape.
struct KernelRow {
  std::string operation;
  std::string shape;
  std::vector<double> times_us;  // one launch each
  double flops = 0;              // of products, per launch; 0 = bound by memory
  double bytes = 0;              // read and written, per launch
  double copy_us = 0;            // a plain copy of as many bytes; 0 = not measured
  double error = 0;              // beside what roundings allow; above 1 is wrong
  std::string worst;             // the result that it is in
  std::string checked;           // what was compared with the reference
};

/// What `bertha bench kernels` or `bertha bench rows` found on one device.
struct KernelBenchReport {
  std::string model;  // whose operations these are; "" = of no model
  std::string device;
  std::string precision;  // "bf16"
  std::string date;       // UTC
  int64_t tokens = 0;     // rows of the first batch; 0 = there is none
  // Roofs: measured in this run, or given.
  double peak_flops_per_second = 0;
  double peak_bytes_per_second = 0;  // 0 = each row has a copy of its own
  std::vector<KernelRow> rows;
};

/// Share of its roof that an operation reaches in the median; 0 = unknown.
double share_of_roof(const KernelBenchReport& report, const KernelRow& row);
/// True when every result is within its bound.
bool all_verified(const KernelBenchReport& report);

/// The table for people.
std::string kernel_bench_text(const KernelBenchReport& report);
/// The same figures, unrounded, as one JSON object with a newline at its end.
std::string kernel_bench_json(const KernelBenchReport& report);

}  // namespace bertha
