#include "harness/report/summary.h"

#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr size_t kNameColumns = 14;

std::string row(std::string name, const std::string& value) {
  name.resize(kNameColumns, ' ');
  return concat("  ", name, value, "\n");
}

std::string accuracy_text(const std::optional<double>& accuracy) {
  return accuracy ? fixed_text(*accuracy, 4) : "never evaluated";
}

std::string verdict(const RunSummary& summary) {
  if (summary.target_accuracy <= 0) return "";
  return target_reached(summary) ? "  (target reached)" : "  (target missed)";
}

std::string next_command(const RunSummary& summary) {
  const std::string config = concat(" --config ", summary.run_dir, "/resolved.yaml");
  if (summary.target_accuracy > 0 && !target_reached(summary)) {
    // The run may have been told to start afresh; to go on it must not be.
    return concat("bertha train", config, " --output-dir ", summary.run_dir,
                  " --resume auto --max-steps ", 2 * summary.steps);
  }
  return concat("bertha eval", config, " --checkpoint ", summary.checkpoint);
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
    text += row("baseline",
                fixed_text(*summary.baseline_accuracy, 4) + "  (always the most frequent token)");
  }
  text += row("steps", std::to_string(summary.steps));
  text += row("samples", std::to_string(summary.samples));
  text += row("time", duration_text(summary.seconds));
  if (summary.seqs_per_second > 0) {
    text += row("throughput",
                concat(scaled_text(summary.seqs_per_second), " sequences/s",
                       summary.tokens_per_second > 0
                           ? concat(", ", scaled_text(summary.tokens_per_second), " tokens/s")
                           : ""));
  }
  text += row("logs", concat(summary.run_dir, "/metrics.jsonl, ", summary.run_dir, "/mllog"));
  if (summary.plots) text += row("plots", summary.run_dir + "/plots");
  text += row("checkpoint", summary.checkpoint.empty() ? "none" : summary.checkpoint);
  if (!summary.checkpoint.empty()) text += row("next", next_command(summary));
  return text;
}

}  // namespace bertha
