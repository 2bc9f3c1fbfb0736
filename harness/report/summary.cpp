#include "harness/report/summary.h"

#include <algorithm>
#include <cmath>

#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/shell_word.h"

namespace bertha {
namespace {

constexpr size_t kColumns = 16;  // of the names

std::string row(const std::string& name, const std::string& value) {
  return fact_line(name, value, kColumns);
}

std::string accuracy_text(const std::optional<double>& accuracy) {
  return accuracy ? fixed_text(*accuracy, 4) : "never evaluated";
}

std::string verdict(const RunSummary& summary) {
  if (summary.target_accuracy <= 0) return "";
  return target_reached(summary) ? "  (target reached)" : "  (target missed)";
}

/// Keeps the learning rate of every step as scheduled: a schedule that has ended is not stretched,
/// because a rate that rises again would harm the trained model.
std::string command_after_miss(const RunSummary& summary) {
  const bool goes_on = summary.schedule_steps > summary.steps;
  const int64_t twice = 2 * summary.steps;
  std::string words =
      concat("bertha train --config ", shell_word(summary.config), " --output-dir ",
             shell_word(summary.run_dir + (goes_on ? "" : concat("-", twice, "-steps"))),
             // The run may have been asked to start from scratch, or from a checkpoint.
             " --resume auto");
  if (!goes_on) {
    words += concat(" --max-steps ", twice);
    if (summary.has_schedule_steps) words += concat(" --set optimizer.schedule_steps=", twice);
  } else if (summary.steps >= summary.max_steps) {
    words += concat(" --max-steps ", std::min(twice, summary.schedule_steps));
  }
  if (summary.max_samples > 0) words += concat(" --max-samples ", 2 * summary.max_samples);
  return words;
}

std::string next_command(const RunSummary& summary) {
  const bool is_trained = summary.max_steps > 0;  // else there is no number of steps to double
  if (is_trained && summary.target_accuracy > 0 && !target_reached(summary)) {
    return command_after_miss(summary);
  }
  return concat("bertha eval --config ", shell_word(summary.config), " --checkpoint ",
                shell_word(summary.checkpoint));
}

}  // namespace

bool target_reached(const RunSummary& summary) {
  return summary.target_accuracy > 0 && summary.accuracy &&
         *summary.accuracy >= summary.target_accuracy;
}

std::string summary_text(const RunSummary& summary) {
  std::string text = "\nResult\n";
  text += row("target", summary.target_accuracy > 0
                            ? fixed_text(summary.target_accuracy, 4) + " masked-LM accuracy"
                            : "none");
  text += row("reached", accuracy_text(summary.accuracy) + verdict(summary));
  if (summary.baseline_accuracy) {
    const bool covers_target =
        summary.target_accuracy > 0 && summary.target_accuracy <= *summary.baseline_accuracy;
    text += row("baseline",
                fixed_text(*summary.baseline_accuracy, 4) + "  (always the most frequent token)" +
                    (covers_target ? "; the target is not above it, so reaching it shows nothing; "
                                     "set train.target_accuracy higher"
                                   : ""));
  }
  text += row("steps", grouped_text(summary.steps));
  text += row("samples", grouped_text(summary.samples));
  text += row("time", duration_text(summary.seconds));
  if (summary.seqs_per_second > 0) {
    text += row("throughput",
                concat(scaled_text(summary.seqs_per_second), " sequences/s",
                       summary.tokens_per_second > 0
                           ? concat(", ", scaled_text(summary.tokens_per_second), " tokens/s")
                           : ""));
  }
  if (summary.joules_per_sample) {
    const double joules = *summary.joules_per_sample * static_cast<double>(summary.samples);
    text += row("energy", concat(grouped_text(std::llround(joules)), " J, ",
                                 scaled_text(*summary.joules_per_sample),
                                 " J per sample  (all GPUs, from the first step to the end, "
                                 "evaluations included)"));
  }
  text += row("logs", concat(summary.run_dir, "/metrics.jsonl, ", summary.run_dir, "/mllog"));
  text += row("checkpoint", summary.checkpoint.empty() ? "none" : summary.checkpoint);
  if (!summary.checkpoint.empty()) text += row("next", next_command(summary));
  return text;
}

}  // namespace bertha
