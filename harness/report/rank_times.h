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

/// What one rank measured since the last record, per step. All ranks get all of it: f32 [W, 4].
struct RankTimes {
  float compute_ms = 0;  // forward and backward on the device; waits for other ranks lie elsewhere
  float data_wait_ms = 0;
  float power_watts = 0;  // of its GPU; 0 = not known
  float sm_mhz = 0;       // of its GPU; 0 = not known
};
inline constexpr int64_t kRankNumbers = 4;
static_assert(sizeof(RankTimes) == kRankNumbers * sizeof(float));

/// All ranks together, for a record.
RankSummary summary_of(const std::vector<RankTimes>& ranks);

/// Finds ranks that hold up the others, and runs that wait for data, in the records of a run.
class RankWatch {
 public:
  using NameOfRank = std::function<std::string(int64_t rank)>;  // "rank 3 of 8 on node7"

  explicit RankWatch(NameOfRank name_of_rank) : name_of_rank_(std::move(name_of_rank)) {}

  /// Takes the times of all ranks in the steps of a record. Returns sentences to warn with: each
  /// rank is named once, and the data once, when it has held up the others for kSlowRecords
  /// records in a row.
  std::vector<std::string> add(const std::vector<RankTimes>& ranks, double step_ms);

 private:
  std::optional<std::string> slow_rank(const std::vector<RankTimes>& ranks);
  std::optional<std::string> data_wait(const std::vector<RankTimes>& ranks, double step_ms);

  NameOfRank name_of_rank_;
  int64_t slow_rank_ = -1;  // the slowest of the last record, if it was slow
  int slow_records_ = 0;    // in a row
  int waiting_records_ = 0;
  std::set<int64_t> named_ranks_;
  bool named_data_ = false;
};

}  // namespace bertha
