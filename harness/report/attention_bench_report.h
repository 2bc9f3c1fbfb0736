#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/lane_span.h"

namespace bertha {

/// The sequences of one batch.
struct AttentionMix {
  std::string name;              // "histogram"
  std::vector<int32_t> lengths;  // tokens of each sequence, in the order of the batch
  int64_t token_rows = 0;        // T: live tokens and padding
};

/// One direction over one mix by one kind of kernels.
struct AttentionRow {
  std::string mix;
  double dropout = 0;
  bool is_backward = false;
  std::string kernels;           // "grouped"
  std::vector<double> times_us;  // one call each
  double flops = 0;   // useful ones: per pair of tokens of a sequence, 2 per multiply-add
  double error = 0;   // beside what roundings allow; above 1 is wrong
  std::string worst;  // the result that it is in
};

/// A group of sequences beside the others, and by itself.
struct AttentionLaneRow {
  LaneSpan span;
  double alone_us = 0;
};

/// The groups of one call of the grouped kernels.
struct AttentionTimeline {
  std::string mix;
  double dropout = 0;
  bool is_backward = false;
  std::vector<AttentionLaneRow> groups;
};

/// What `bertha bench attention` found on one device.
struct AttentionBenchReport {
  std::string model;
  std::string device;
  std::string precision;  // "bf16"
  std::string date;       // UTC
  std::string chosen;     // the kernels that the configuration takes; "" = there is one kind
  std::vector<std::string> notes;  // what was not measured, and why
  int64_t heads = 0;
  int64_t head_size = 0;
  double peak_flops_per_second = 0;  // of a large product
  bool peak_is_given = false;        // else measured in this run
  std::vector<AttentionMix> mixes;
  std::vector<AttentionRow> rows;
  std::vector<AttentionTimeline> timelines;
};

/// The kernels of one direction where a configuration takes "grouped forward, persistent backward";
/// the same for both where it takes "grouped".
std::string kernels_of(const std::string& taken, bool is_backward);

bool all_verified(const AttentionBenchReport& report);

/// The table for people.
std::string attention_bench_text(const AttentionBenchReport& report);
/// For people: what each group's stream did over time.
std::string attention_lanes_text(const std::vector<AttentionTimeline>& timelines);
/// The same figures, unrounded, and the lengths, as one JSON object with a newline at its end.
std::string attention_bench_json(const AttentionBenchReport& report);

}  // namespace bertha
