#include "harness/report/rank_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/report/text_format.h"

namespace bertha {
namespace {

constexpr int kSlowRecords = 3;
/// Sequences are distributed so that ranks differ by a few percent at most.
constexpr double kSlowTimes = 1.25;
constexpr double kMuchWaiting = 0.1;  // share of a step

double median_without(const std::vector<RankTimes>& ranks, size_t left_out,
                      float RankTimes::*value) {
  std::vector<double> others;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (r != left_out) others.push_back(static_cast<double>(ranks[r].*value));
  }
  return percentile(others, 0.5);
}

size_t most_of(const std::vector<RankTimes>& ranks, float RankTimes::*value) {
  const auto most = std::ranges::max_element(ranks, {}, value);
  return static_cast<size_t>(most - ranks.begin());
}

double mean_of(const std::vector<RankTimes>& ranks, float RankTimes::*value) {
  double sum = 0;
  for (const RankTimes& rank : ranks) sum += static_cast<double>(rank.*value);
  return sum / static_cast<double>(ranks.size());
}

}  // namespace

RankSummary summary_of(const std::vector<RankTimes>& ranks) {
  if (ranks.empty()) return {};
  const size_t slowest = most_of(ranks, &RankTimes::compute_ms);
  const size_t waiting = most_of(ranks, &RankTimes::data_wait_ms);
  const float lowest_mhz = std::ranges::min(ranks, {}, &RankTimes::sm_mhz).sm_mhz;
  return {.slowest = static_cast<int64_t>(slowest),
          .slowest_compute_ms = static_cast<double>(ranks[slowest].compute_ms),
          .others_compute_ms = median_without(ranks, slowest, &RankTimes::compute_ms),
          .longest_waiting = static_cast<int64_t>(waiting),
          .longest_wait_ms = static_cast<double>(ranks[waiting].data_wait_ms),
          .mean_wait_ms = mean_of(ranks, &RankTimes::data_wait_ms),
          .power_watts = mean_of(ranks, &RankTimes::power_watts) * std::ssize(ranks),
          .lowest_sm_mhz = static_cast<double>(lowest_mhz)};
}

std::vector<std::string> RankWatch::add(const std::vector<RankTimes>& ranks, double step_ms) {
  std::vector<std::string> sentences;
  if (ranks.empty()) return sentences;
  for (const auto& sentence : {slow_rank(ranks), data_wait(ranks, step_ms)}) {
    if (sentence) sentences.push_back(*sentence);
  }
  return sentences;
}

std::optional<std::string> RankWatch::slow_rank(const std::vector<RankTimes>& ranks) {
  const RankSummary found = summary_of(ranks);
  const double times = found.slowest_compute_ms / found.others_compute_ms;
  const bool is_slow = ranks.size() > 1 && found.others_compute_ms > 0 && times >= kSlowTimes;
  slow_records_ = !is_slow ? 0 : found.slowest == slow_rank_ ? slow_records_ + 1 : 1;
  slow_rank_ = is_slow ? found.slowest : -1;
  if (slow_records_ < kSlowRecords || !named_ranks_.insert(slow_rank_).second) return {};
  const auto slowest = static_cast<size_t>(slow_rank_);
  const double mhz = static_cast<double>(ranks[slowest].sm_mhz);
  const double others_mhz = median_without(ranks, slowest, &RankTimes::sm_mhz);
  const std::string clocks =
      mhz > 0 && mhz < 0.95 * others_mhz
          ? fmt::format("; its SMs run at {} MHz, those of the others at {}",
                        grouped_text(std::llround(mhz)), grouped_text(std::llround(others_mhz)))
          : "";
  return fmt::format(
      "{} is slow: its forward and backward take {} ms per step, {:.2f} times the {} ms of the "
      "other{}, in {} consecutive records, and the others wait for it{}. Look for other programs "
      "on "
      "its machine, and run bertha doctor there",
      name_of_rank_(slow_rank_), ms_text(found.slowest_compute_ms), times,
      ms_text(found.others_compute_ms), ranks.size() > 2 ? "s' median" : "", kSlowRecords, clocks);
}

std::optional<std::string> RankWatch::data_wait(const std::vector<RankTimes>& ranks,
                                                double step_ms) {
  const RankSummary found = summary_of(ranks);
  const double share = step_ms > 0 ? found.mean_wait_ms / step_ms : 0;
  waiting_records_ = share >= kMuchWaiting ? waiting_records_ + 1 : 0;
  if (waiting_records_ < kSlowRecords || named_data_) return {};
  named_data_ = true;
  const std::string most = ranks.size() == 1 ? ""
                                             : fmt::format(", {} for {:.0f} %, the longest",
                                                           name_of_rank_(found.longest_waiting),
                                                           100 * found.longest_wait_ms / step_ms);
  return fmt::format(
      "training waited for data during {:.0f} % of the time in {} consecutive records{}. Move "
      "data.train to a faster disk, raise data.prefetch_steps, or give each rank more cores; "
      "bertha bench loader measures the data pipeline alone",
      100 * share, kSlowRecords, most);
}

}  // namespace bertha
