#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/run_records.h"

namespace bertha {

/// A rank's measurements since the last record, per step. All ranks receive all: f32 [W, 4].
struct RankTimes {
  float compute_ms = 0;  // forward and backward on the device, without waits for other ranks
  float data_wait_ms = 0;
  float power_watts = 0;  // of its GPU; 0 = unknown
  float sm_mhz = 0;       // of its GPU; 0 = unknown
};
inline constexpr int64_t kRankNumbers = 4;
static_assert(sizeof(RankTimes) == kRankNumbers * sizeof(float));

/// The figures of all ranks together, for a record.
RankSummary summary_of(const std::vector<RankTimes>& ranks);

/// Finds ranks that delay the others, and runs that wait for data, in the records of a run.
class RankWatch {
 public:
  using NameOfRank = std::function<std::string(int64_t rank)>;  // "rank 3 of 8 on node7"

  explicit RankWatch(NameOfRank name_of_rank) : name_of_rank_(std::move(name_of_rank)) {}

  /// Adds the times of all ranks in the steps of a record. Returns warnings: one for each rank, and
  /// one for the data, after it has delayed the others for kSlowRecords consecutive records.
  std::vector<std::string> add(const std::vector<RankTimes>& ranks, double step_ms);

 private:
  std::optional<std::string> slow_rank(const std::vector<RankTimes>& ranks);
  std::optional<std::string> data_wait(const std::vector<RankTimes>& ranks, double step_ms);

  NameOfRank name_of_rank_;
  int64_t slow_rank_ = -1;  // the slowest rank of the last record, if it was slow
  int slow_records_ = 0;    // consecutive
  int waiting_records_ = 0;
  std::set<int64_t> named_ranks_;
  bool named_data_ = false;
};

}  // namespace bertha
