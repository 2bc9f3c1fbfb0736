#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/report/json_report.h"

namespace bertha {

/// One technique of the sources, off and on. Times are those of `scope`.
struct GainRow {
  std::string name;       // "unpad-most", for --only
  std::string technique;  // "un-padded, padded to 512"
  std::string off;        // what is compared: "all sequences of 512 tokens"
  std::string on;
  std::string source = {};     // what the source reports: "2.3 x [1]"; "" = nothing
  double source_percent = 0;   // the same as a number, 130; 0 = none
  std::string scope = "step";  // step, evaluation or operation
  // Found.
  std::vector<double> off_ms = {};  // one time each, in turns
  std::vector<double> on_ms = {};
  double calls_per_step = 0;  // of an operation; 0 = a step has none
  int64_t off_tokens = 0;     // of the first batch over all ranks, padding included
  int64_t on_tokens = 0;
  std::string reason = {};  // why it did not run; "" = it did
};

/// Every row, in the order of the table, without what is found.
std::vector<GainRow> gain_rows();
/// Those of the names, in the table's order; all without a name. Error(kUsage) for an unknown one.
std::vector<GainRow> chosen_gain_rows(const std::vector<std::string>& names);

struct GainsReport {
  std::string model;
  std::string device;
  std::string precision;
  std::string date;  // UTC
  int64_t ranks = 1;
  double tokens_per_step = 0;  // live, of all ranks
  double step_ms = 0;          // median of the configuration as given; 0 = no step was timed
  std::vector<GainRow> rows;
};

/// Percent more per second with the technique, of the scope: 100 (off / on - 1) of the medians.
double gain_percent(const GainRow& row);
/// The same of a whole step: of an operation, what a step would take longer without. 0 = unknown.
double step_gain_percent(const GainsReport& report, const GainRow& row);

/// The table for people.
std::string gains_text(const GainsReport& report);
/// The same, unrounded.
ReportJson gains_json(const GainsReport& report);
/// Bars of the gains of a step, beside them what the sources report.
std::string gains_svg(const GainsReport& report);

}  // namespace bertha
