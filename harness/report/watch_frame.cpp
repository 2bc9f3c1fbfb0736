#include "harness/report/watch_frame.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "harness/report/plots.h"
#include "harness/report/target_estimate.h"
#include "harness/report/text_chart.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kNameColumns = 12;
constexpr int64_t kLeastChartRows = 5, kLeastChartColumns = 24;
constexpr int64_t kSideBySideColumns = 110;
constexpr size_t kEvents = 3;

using Lines = std::vector<std::string>;
using Fields = std::vector<std::string>;

/// "speed       6.27k sequences/s   61 ms per step": as many fields as fit a line, the rest below.
void add_fields(const std::string& name, const Fields& fields, int64_t columns, Lines& lines) {
  std::string line = fitted(name, kNameColumns);
  bool is_empty = true;
  for (const std::string& field : fields) {
    if (field.empty()) continue;
    const std::string more = (is_empty ? "" : "   ") + field;
    if (!is_empty && columns_of(line) + columns_of(more) > columns) {
      lines.push_back(line);
      line = std::string(kNameColumns, ' ') + field;
    } else {
      line += more;
    }
    is_empty = false;
  }
  if (!is_empty) lines.push_back(line);
}

void add_sentence(const std::string& name, const std::string& text, int64_t columns, Lines& lines) {
  std::istringstream wrapped(wrapped_text(fitted(name, kNameColumns) + text, columns));
  for (std::string line; std::getline(wrapped, line);) lines.push_back(line);
}

std::string bar(double share, int64_t columns) {
  const auto full =
      static_cast<int64_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(columns));
  std::string text;
  for (int64_t i = 0; i < columns; ++i) text += i < full ? "\u2588" : "\u2591";
  return text;
}

std::string percent(double share) { return fixed_text(100 * share, 0) + " %"; }

Fields progress_fields(const Metrics& metrics, const WatchView& view) {
  const RunIdentity& run = metrics.run;
  if (metrics.steps.empty()) return {"no step yet"};
  const StepRecord& last = metrics.steps.back();
  const double share =
      run.max_steps > 0 ? static_cast<double>(last.step) / static_cast<double>(run.max_steps) : 0;
  Fields fields{concat("step ", grouped_text(last.step), " of ", grouped_text(run.max_steps)),
                bar(share, view.columns < 100 ? 10 : 20) + " " + percent(share),
                counted_text(last.samples, "sample")};
  if (!view.goes_on) return fields;
  const double seconds_per_step = last.step_ms / 1e3;
  const auto steps_left = static_cast<double>(std::max<int64_t>(run.max_steps - last.step, 0));
  fields.push_back("end in " + duration_text(steps_left * seconds_per_step));
  if (const auto target = seconds_to_target(metrics.evals, run.target_accuracy, last.samples,
                                            last.seqs_per_second)) {
    fields.push_back("target in " + estimate_text(*target));
  }
  return fields;
}

Fields training_fields(const StepRecord& last) {
  return {"mlm loss " + fixed_text(last.mlm_loss, 3),
          "accuracy " + fixed_text(last.mlm_accuracy, 3),
          figure_text("nsp loss", last.nsp_loss),
          "learning rate " + exponent_text(last.learning_rate),
          "gradient norm " + scaled_text(last.gradient_norm),
          last.skipped_steps > 0 ? counted_text(last.skipped_steps, "skipped update") : "",
          last.spikes > 0 ? counted_text(last.spikes, "spike") + " of the norm" : ""};
}

Fields evaluation_fields(const Metrics& metrics) {
  if (metrics.evals.empty()) return {"none yet"};
  const EvalRecord& last = metrics.evals.back();
  const double target = metrics.run.target_accuracy;
  return {concat("accuracy ", fixed_text(last.mlm_accuracy, 4),
                 target > 0 ? concat(", target ", fixed_text(target, 4)) : ""),
          "mlm loss " + fixed_text(last.mlm_loss, 3),
          figure_text("nsp accuracy", last.nsp_accuracy), "at step " + grouped_text(last.step),
          fixed_text(last.seconds, 1) + " s"};
}

Fields speed_fields(const StepRecord& last, const RunIdentity& run) {
  const RankSummary& ranks = last.ranks;
  return {scaled_text(last.seqs_per_second) + " sequences/s",
          scaled_text(last.tokens_per_second) + " tokens/s",
          ms_text(last.step_ms) + " ms per step",
          run.peak_flops_per_second > 0
              ? "MFU " + percent(last.flops_per_second / run.peak_flops_per_second)
              : "",
          ranks.power_watts > 0 ? scaled_text(ranks.power_watts) + " watts" : "",
          ranks.lowest_sm_mhz > 0 ? concat(run.world_size > 1 ? "lowest clock " : "clock ",
                                           grouped_text(std::llround(ranks.lowest_sm_mhz)), " MHz")
                                  : "",
          last.memory_bytes > 0 ? bytes_text(last.memory_bytes) + " of device memory" : ""};
}

Fields phase_fields(const StepRecord& last) {
  if (!(last.step_ms > 0)) return {};
  Fields fields;
  const std::pair<const char*, double> phases[] = {{"waiting for data", last.data_wait_ms},
                                                   {"forward", last.forward_ms},
                                                   {"backward", last.backward_ms},
                                                   {"exchange", last.communication_ms},
                                                   {"optimizer", last.optimizer_ms}};
  for (const auto& [name, ms] : phases) {
    fields.push_back(concat(name, " ", ms_text(ms), " ms, ", percent(ms / last.step_ms)));
  }
  return fields;
}

Fields rank_fields(const StepRecord& last, const RunIdentity& run) {
  const RankSummary& ranks = last.ranks;
  if (run.world_size < 2 || !(ranks.slowest_compute_ms > 0)) return {};
  return {concat("forward + backward longest on rank ", ranks.slowest, ": ",
                 ms_text(ranks.slowest_compute_ms), " ms, the others ",
                 ms_text(ranks.others_compute_ms), " ms"),
          concat("data waited for longest by rank ", ranks.longest_waiting, ": ",
                 ms_text(ranks.longest_wait_ms), " ms, mean ", ms_text(ranks.mean_wait_ms), " ms")};
}

void add_charts(const Metrics& metrics, const WatchView& view, int64_t rows, Lines& lines) {
  if (view.columns < kLeastChartColumns) return;
  const Chart loss = masked_loss_chart(metrics), accuracy = accuracy_chart(metrics);
  if (view.columns >= kSideBySideColumns) {
    if (rows < kLeastChartRows) return;
    const int64_t width = (view.columns - 2) / 2;
    const Lines left = chart_lines(loss, width, rows), right = chart_lines(accuracy, width, rows);
    for (size_t i = 0; i < left.size(); ++i) lines.push_back(left[i] + "  " + right[i]);
    return;
  }
  const int64_t each = rows / 2 >= kLeastChartRows ? rows / 2 : rows;
  if (each < kLeastChartRows) return;
  for (const Chart& chart : {accuracy, loss}) {
    const Lines part = chart_lines(chart, view.columns, each);
    lines.insert(lines.end(), part.begin(), part.end());
    if (each == rows) return;  // there is room for one only
  }
}

Lines last_lines(const Metrics& metrics, const WatchView& view) {
  Lines lines;
  if (view.alarms.empty()) add_sentence("alarms", "none", view.columns, lines);
  for (size_t i = 0; i < view.alarms.size(); ++i) {
    add_sentence(i == 0 ? "alarms" : "", view.alarms[i], view.columns, lines);
  }
  const size_t first = metrics.events.size() - std::min(metrics.events.size(), kEvents);
  for (size_t i = first; i < metrics.events.size(); ++i) {
    const EventRecord& event = metrics.events[i];
    const std::string time = local_time_text(event.time_ms).substr(11, 8);
    lines.push_back(fitted(i == first ? "events" : "", kNameColumns) + time + " " +
                    event.text.substr(0, event.text.find('\n')));
  }
  return lines;
}

}  // namespace

std::string watch_frame(const Metrics& metrics, const WatchView& view) {
  const RunIdentity& run = metrics.run;
  Lines lines;
  add_fields(
      "run",
      {view.run_dir, run.model, scaled_text(static_cast<double>(run.parameters)) + " parameters",
       counted_text(run.world_size, "rank") + " on " + run.device},
      view.columns, lines);
  const auto seconds =
      static_cast<double>(std::max<int64_t>(view.now_ms - metrics.last_time_ms, 0));
  add_fields("state",
             {view.state, metrics.last_time_ms > 0
                              ? concat("last record ", duration_text(seconds / 1e3), " ago")
                              : ""},
             view.columns, lines);
  add_fields("progress", progress_fields(metrics, view), view.columns, lines);
  if (!metrics.steps.empty()) {
    const StepRecord& last = metrics.steps.back();
    add_fields("training", training_fields(last), view.columns, lines);
    add_fields("evaluation", evaluation_fields(metrics), view.columns, lines);
    add_fields("speed", speed_fields(last, run), view.columns, lines);
    add_fields("a step", phase_fields(last), view.columns, lines);
    add_fields("ranks", rank_fields(last, run), view.columns, lines);
  }
  const Lines end = last_lines(metrics, view);
  add_charts(metrics, view, view.rows - std::ssize(lines) - std::ssize(end), lines);
  lines.insert(lines.end(), end.begin(), end.end());
  std::string text;
  for (std::string& line : lines) {
    line = fitted(line, view.columns);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace bertha
