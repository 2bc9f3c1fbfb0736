#include "harness/mlperf/eval_cadence.h"

#include <cmath>

#include "harness/config/run_plan.h"
#include "harness/mlperf/key_rules.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// The largest that a batch can be, so that no damaged number overflows the rule.
constexpr double kMostBatchSeqs = 1 << 24;

struct Evaluations {
  int64_t batch_seqs = 0;       // 0 = not in the log
  std::vector<double> samples;  // trained before each evaluation, but for those before any training
};

Evaluations evaluations_of(const std::vector<MlperfRecord>& records) {
  Evaluations found;
  for (const MlperfRecord& record : records) {
    if (record.key == "global_batch_size") {
      const double batch = number_or_nan(record.value);
      if (batch >= 1 && batch <= kMostBatchSeqs) found.batch_seqs = static_cast<int64_t>(batch);
    }
    if (record.key != "eval_accuracy" || !record.metadata.is_object()) continue;
    const double samples = number_or_nan(record.metadata.value("epoch_num", nlohmann::json()));
    if (samples > 0) found.samples.push_back(samples);
  }
  return found;
}

}  // namespace

std::string eval_cadence_complaint(const std::vector<MlperfRecord>& records) {
  const Evaluations found = evaluations_of(records);
  if (found.batch_seqs == 0) return "";
  const auto batch = static_cast<double>(found.batch_seqs);
  const int64_t interval = eval_interval_samples(found.batch_seqs);
  for (size_t i = 0; i < found.samples.size(); ++i) {
    const double samples = found.samples[i];
    const int64_t wanted = interval * (static_cast<int64_t>(i) + 1);
    const double away = samples - static_cast<double>(wanted);
    if (std::abs(away) <= batch + samples / 500) continue;
    const bool at_the_end = i > 0 && i + 1 == found.samples.size() && away < 0;
    if (at_the_end) continue;
    return concat("eval_accuracy: evaluation ", i + 1, " comes after ",
                  static_cast<int64_t>(samples), " samples; with a global batch of ",
                  found.batch_seqs, " the rule is every ", interval, ", so after ", wanted);
  }
  return "";
}

}  // namespace bertha
