#include "harness/report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/report/text_format.h"
#include "kernels/base/shell_word.h"

namespace bertha {
namespace {

std::string row(const char* name, const std::string& value) {
  return fmt::format("  {:<14}{}\n", name, value);
}

std::string accuracy_text(const std::optional<double>& accuracy) {
  return accuracy ? fixed_text(*accuracy, 4) : "never evaluated";
}

std::string verdict(const RunSummary& summary) {
  if (summary.target_accuracy <= 0) return "";
  return target_reached(summary) ? "  (target reached)" : "  (target missed)";
}

/// The command to train on. Keeps the scheduled learning rate of every step: a schedule that has
/// ended is not extended, because a rate that rises again would harm the trained model.
std::string command_after_miss(const RunSummary& summary) {
  const bool goes_on = summary.schedule_steps > summary.steps;
  const int64_t twice = 2 * summary.steps;
  // --resume auto, because this run may have been started from scratch or from a checkpoint.
  std::string words = fmt::format(
      "bertha train --config {} --output-dir {} --resume auto", shell_word(summary.config),
      shell_word(summary.run_dir + (goes_on ? "" : fmt::format("-{}-steps", twice))));
  if (!goes_on) {
    words += fmt::format(" --max-steps {}", twice);
    if (summary.has_schedule_steps) {
      words += fmt::format(" --set optimizer.schedule_steps={}", twice);
    }
  } else if (summary.steps >= summary.max_steps) {
    words += fmt::format(" --max-steps {}", std::min(twice, summary.schedule_steps));
  }
  if (summary.max_samples > 0) {
    words += fmt::format(" --max-samples {}", 2 * summary.max_samples);
  }
  return words;
}

std::string next_command(const RunSummary& summary) {
  const bool is_trained = summary.max_steps > 0;  // else there are no steps to double
  if (is_trained && summary.target_accuracy > 0 && !target_reached(summary)) {
    return command_after_miss(summary);
  }
  if (summary.has_initial_weights && summary.target_accuracy <= 0) {
    return fmt::format("bertha checkpoint export {} --output my_bert", shell_word(summary.run_dir));
  }
  return fmt::format("bertha eval --config {} --checkpoint {}", shell_word(summary.config),
                     shell_word(summary.checkpoint));
}

}  // namespace

bool target_reached(const RunSummary& summary) {
  return summary.target_accuracy > 0 && summary.accuracy &&
         *summary.accuracy >= summary.target_accuracy;
}

std::string summary_text(const RunSummary& summary) {
  std::string text = "\nResult\n";
  const bool has_target = summary.target_accuracy > 0;
  if (has_target) {
    text += row("target", fixed_text(summary.target_accuracy, 4) + " masked-LM accuracy");
  }
  text +=
      row(has_target ? "reached" : "accuracy", accuracy_text(summary.accuracy) + verdict(summary));
  if (summary.baseline_accuracy) {
    const bool covers_target = has_target && summary.target_accuracy <= *summary.baseline_accuracy;
    text += row(has_target ? "baseline" : "guessing",
                fixed_text(*summary.baseline_accuracy, 4) + "  (always the most frequent token)" +
                    (covers_target ? "; the target is not above it, so reaching it shows nothing; "
                                     "raise train.target_accuracy"
                                   : ""));
  }
  text += row("steps", grouped_text(summary.steps));
  text += row("samples", grouped_text(summary.samples));
  text += row("time", duration_text(summary.seconds));
  if (summary.seqs_per_second > 0) {
    text += row("throughput",
                fmt::format("{} sequences/s{}", scaled_text(summary.seqs_per_second),
                            summary.tokens_per_second > 0
                                ? ", " + scaled_text(summary.tokens_per_second) + " tokens/s"
                                : ""));
  }
  if (summary.joules_per_sample) {
    const double joules = *summary.joules_per_sample * static_cast<double>(summary.samples);
    text += row("energy", fmt::format("{} J, {} J per sample  (all GPUs, from the first step to "
                                      "the end, evaluations included)",
                                      grouped_text(std::llround(joules)),
                                      scaled_text(*summary.joules_per_sample)));
  }
  text += row("logs", fmt::format("{0}/metrics.jsonl, {0}/mllog", summary.run_dir));
  text += row("checkpoint", summary.checkpoint.empty() ? "none" : summary.checkpoint);
  if (!summary.checkpoint.empty()) text += row("next", next_command(summary));
  return text;
}

}  // namespace bertha
