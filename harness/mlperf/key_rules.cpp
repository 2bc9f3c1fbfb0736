#include "harness/mlperf/key_rules.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

std::string unless(bool good, const char* complaint) { return good ? "" : complaint; }

bool has(const MlperfRecord& record, const char* field) {
  return record.metadata.is_object() && record.metadata.contains(field);
}

bool one_of(const nlohmann::json& value, std::initializer_list<const char*> choices) {
  return std::ranges::any_of(choices, [&](const char* choice) { return value == choice; });
}

std::string check_not_empty(const MlperfRecord& record, LogState&) {
  return unless(record.value != "", "value is empty");
}

std::string check_benchmark(const MlperfRecord& record, LogState&) {
  return unless(record.value == "bert", "value must be \"bert\"");
}

std::string check_division(const MlperfRecord& record, LogState& state) {
  state.init_limit_minutes = record.value == "open" ? 240 : 30;
  return unless(one_of(record.value, {"closed", "open"}), "value must be closed or open");
}

std::string check_status(const MlperfRecord& record, LogState&) {
  return unless(one_of(record.value, {"cloud", "onprem", "preview", "research"}),
                "value must be cloud, onprem, preview or research");
}

std::string check_positive(const MlperfRecord& record, LogState&) {
  return unless(number_or_nan(record.value) > 0, "value must be a number above 0");
}

std::string check_init_start(const MlperfRecord& record, LogState& state) {
  state.init_started = true;
  state.first_init_start_ms = std::min(state.first_init_start_ms, record.time_ms);
  return unless(!state.init_stopped && !state.run_started, "comes after init_stop or run_start");
}

std::string check_init_stop(const MlperfRecord& record, LogState& state) {
  state.init_stopped = true;
  if (!state.init_started) return "comes before init_start";
  if (state.run_started) return "comes after run_start";
  const double minutes = (record.time_ms - state.first_init_start_ms) / 60e3;
  if (minutes < state.init_limit_minutes) return "";
  if (state.init_limit_minutes == 0) return "comes before submission_division";
  return concat("comes ", fixed_text(minutes, 1), " minutes after init_start, allowed are ",
                state.init_limit_minutes);
}

std::string check_run_start(const MlperfRecord&, LogState& state) {
  state.run_started = true;
  return unless(state.init_stopped, "comes before init_stop");
}

std::string check_run_stop(const MlperfRecord& record, LogState& state) {
  if (!state.run_started) return "comes before run_start";
  return unless(has(record, "status"), "metadata has no status");
}

std::string check_block_start(const MlperfRecord& record, LogState& state) {
  if (!state.run_started) return "comes before run_start";
  const bool by_epochs = has(record, "epoch_count");
  const bool by_samples = has(record, "samples_count");
  if (!by_epochs && !by_samples) return "metadata has neither epoch_count nor samples_count";
  if (by_epochs && !has(record, "first_epoch_num")) return "metadata has no first_epoch_num";
  if (by_epochs && !(number_or_nan(record.metadata["epoch_count"]) > 0)) {
    return "epoch_count must be above 0";
  }
  return unless(!by_samples || number_or_nan(record.metadata["samples_count"]) >= 0,
                "samples_count must be at least 0");
}

std::string check_block_stop(const MlperfRecord& record, LogState&) {
  return unless(has(record, "first_epoch_num") || has(record, "samples_count"),
                "metadata has neither first_epoch_num nor samples_count");
}

std::string check_epoch_num(const MlperfRecord& record, LogState&) {
  return unless(has(record, "epoch_num"), "metadata has no epoch_num");
}

std::string check_progress(const MlperfRecord& record, LogState&) {
  return unless(has(record, "epoch_num") || has(record, "samples_count"),
                "metadata has neither epoch_num nor samples_count");
}

std::string check_eval_accuracy(const MlperfRecord& record, LogState&) {
  if (!record.value.is_number()) return "value must be a number";
  return unless(has(record, "epoch_num"), "metadata has no epoch_num (the samples trained)");
}

std::string check_seed(const MlperfRecord& record, LogState& state) {
  const auto place = seed_place(record);
  if (!place) return "value must be an integer and metadata have file and lineno";
  return unless(state.seeds.insert(*place).second,
                "the same source line has logged this seed before");
}

/// Python's int() also takes the text of an integer, and cuts fractions off.
std::optional<int64_t> whole_number(const nlohmann::json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  constexpr double kMost = 9.2e18;  // 64 bits hold it
  if (value.is_number()) {
    return static_cast<int64_t>(std::clamp(std::trunc(value.get<double>()), -kMost, kMost));
  }
  if (!value.is_string()) return std::nullopt;
  std::istringstream text(value.get<std::string>());
  int64_t number = 0;
  text >> number;
  return text && text.eof() ? std::optional<int64_t>(number) : std::nullopt;
}

}  // namespace

double number_or_nan(const nlohmann::json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::optional<SeedPlace> seed_place(const MlperfRecord& record) {
  const std::optional<int64_t> seed = whole_number(record.value);
  if (!seed || !has(record, "file") || !has(record, "lineno")) return std::nullopt;
  return SeedPlace(record.metadata["file"].dump(), record.metadata["lineno"].dump(), *seed);
}

std::vector<KeyRule> key_rules(RuleSet rule_set, Division division) {
  const bool old = rule_set == RuleSet::k4_0_0;
  // 5.0.0 took these three out of the logs: the description of the system has them.
  const Demand submitter = old ? Demand::kRequired : Demand::kAdvised;
  const Demand closed = division == Division::kClosed ? Demand::kRequired : Demand::kAdvised;
  const RecordCheck epoch = old ? check_epoch_num : check_progress;
  return {
      {"cache_clear", Occurs::kAtLeastOnce},
      {"submission_benchmark", Occurs::kExactlyOnce, check_benchmark},
      {"submission_division", Occurs::kExactlyOnce, check_division},
      {"submission_org", Occurs::kExactlyOnce, check_not_empty, "", submitter},
      {"submission_platform", Occurs::kExactlyOnce, check_not_empty, "", submitter},
      {"submission_status", Occurs::kExactlyOnce, check_status, "", submitter},
      {"seed", Occurs::kAtLeastOnce, check_seed, "", closed},
      {"init_start", Occurs::kAtLeastOnce, check_init_start},
      {"init_stop", Occurs::kExactlyOnce, check_init_stop},
      {"run_start", Occurs::kExactlyOnce, check_run_start},
      {"run_stop", Occurs::kExactlyOnce, check_run_stop},
      {"block_start", Occurs::kOnceOrItsPartner, check_block_start, "epoch_start"},
      {"block_stop", Occurs::kOnceOrItsPartner, check_block_stop, "epoch_stop"},
      {"epoch_start", Occurs::kOnceOrItsPartner, epoch, "block_start"},
      {"epoch_stop", Occurs::kOnceOrItsPartner, epoch, "block_stop"},
      {"eval_start", Occurs::kOnceOrItsPartner, check_progress, "block_start"},
      {"eval_stop", Occurs::kOnceOrItsPartner, check_progress, "block_stop"},
      {"eval_accuracy", Occurs::kAtLeastOnce, check_eval_accuracy},
      {"train_samples", Occurs::kExactlyOnce, check_not_empty},
      {"eval_samples", Occurs::kExactlyOnce, check_not_empty},
      {"gradient_accumulation_steps", Occurs::kExactlyOnce, check_positive, "", closed},
      {"global_batch_size", Occurs::kExactlyOnce, nullptr, "", closed},
      {"opt_base_learning_rate", Occurs::kExactlyOnce, nullptr, "", closed},
      {"opt_lamb_epsilon", Occurs::kExactlyOnce, nullptr, "", closed},
      {"opt_learning_rate_training_steps", Occurs::kExactlyOnce, nullptr, "", closed},
      {"opt_learning_rate_warmup_steps", Occurs::kExactlyOnce, nullptr, "", closed},
      {"num_warmup_steps", Occurs::kExactlyOnce, nullptr, "", closed},
      {"start_warmup_step", Occurs::kExactlyOnce, nullptr, "", closed},
      {"opt_lamb_beta_1", Occurs::kExactlyOnce, nullptr, "", closed},
      {"opt_lamb_beta_2", Occurs::kExactlyOnce, nullptr, "", closed},
      {"opt_lamb_weight_decay_rate", Occurs::kExactlyOnce, nullptr, "", closed},
  };
}

}  // namespace bertha
