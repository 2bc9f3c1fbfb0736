#include "harness/report/plots.h"

#include <type_traits>

#include "data/files/new_file.h"
#include "harness/report/files.h"
#include "harness/report/text_format.h"

namespace bertha {
namespace {

std::string three_decimals(double value) { return fixed_text(value, 3); }
std::string four_decimals(double value) { return fixed_text(value, 4); }

/// The legend has the last value: it is what one looks for first. Records without one are left out.
template <class Record, class Value>
void add_series(Chart& chart, const std::vector<Record>& records, const std::string& label,
                Value Record::*value, std::string (*last_text)(double value) = three_decimals,
                int64_t Record::*x = &Record::step) {
  ChartSeries series{
      .label = label, .x = {}, .y = {}, .circles = std::is_same_v<Record, EvalRecord>};
  for (const Record& record : records) {
    const std::optional<double> y = record.*value;
    if (!y) continue;
    series.x.push_back(static_cast<double>(record.*x));
    series.y.push_back(*y);
  }
  if (series.y.empty()) return;
  series.label += " " + last_text(series.y.back());
  chart.series.push_back(series);
}

std::optional<MarkLine> target_line(const RunIdentity& run) {
  if (run.target_accuracy <= 0) return std::nullopt;
  return MarkLine{.label = "target " + fixed_text(run.target_accuracy, 3),
                  .value = run.target_accuracy};
}

}  // namespace

Chart accuracy_chart(const Metrics& metrics) {
  Chart chart{.title = "Masked-token accuracy",
              .x_label = "step",
              .y_label = "accuracy (fraction)",
              .mark = target_line(metrics.run)};
  add_series(chart, metrics.steps, "train", &StepRecord::mlm_accuracy);
  add_series(chart, metrics.evals, "eval", &EvalRecord::mlm_accuracy);
  return chart;
}

Chart masked_loss_chart(const Metrics& metrics) {
  Chart chart{.title = "Masked-token loss", .x_label = "step", .y_label = "loss (nats)"};
  add_series(chart, metrics.steps, "train", &StepRecord::mlm_loss);
  add_series(chart, metrics.evals, "eval", &EvalRecord::mlm_loss);
  return chart;
}

void plot_metrics(const Metrics& metrics, const std::string& out_dir,
                  const std::optional<ChartBand>& published) {
  const RunIdentity& run = metrics.run;
  const std::vector<StepRecord>& steps = metrics.steps;
  const std::vector<EvalRecord>& evals = metrics.evals;
  make_folder(out_dir, "choose a place that can be written");
  const auto write = [&](const char* name, const Chart& chart) {
    write_new_file(out_dir + "/" + name + ".svg", chart_svg(chart));
  };

  Chart loss{.title = "Loss", .x_label = "step", .y_label = "loss (nats)"};
  add_series(loss, steps, "next sentence", &StepRecord::nsp_loss);
  // Without next sentences the sum is the loss of the masked tokens.
  if (!loss.series.empty()) add_series(loss, steps, "train", &StepRecord::loss);
  add_series(loss, steps, "masked tokens", &StepRecord::mlm_loss);
  add_series(loss, evals, "eval, masked tokens", &EvalRecord::mlm_loss);
  write("loss", loss);

  write("accuracy", accuracy_chart(metrics));

  Chart throughput{
      .title = "Throughput, all ranks", .x_label = "step", .y_label = "sequences per second"};
  add_series(throughput, steps, "train", &StepRecord::seqs_per_second, scaled_text);
  write("throughput", throughput);

  Chart rate{.title = "Learning rate", .x_label = "step", .y_label = "learning rate"};
  add_series(rate, steps, "learning rate", &StepRecord::learning_rate, exponent_text);
  write("learning_rate", rate);

  if (!published) return;
  Chart compared{.title = "Masked-token accuracy beside published runs",
                 .x_label = "samples",
                 .y_label = "accuracy (fraction)",
                 .band = published,
                 .mark = target_line(run),
                 .from_zero = false};
  add_series(compared, evals, "eval", &EvalRecord::mlm_accuracy, four_decimals,
             &EvalRecord::samples);
  write("accuracy_by_samples", compared);
}

void plot_accuracies(const std::vector<Metrics>& runs, const std::vector<std::string>& names,
                     const std::string& path) {
  Chart chart{.title = "Masked-token accuracy on the evaluation set",
              .x_label = "samples",
              .y_label = "accuracy (fraction)"};
  for (size_t i = 0; i < runs.size(); ++i) {
    add_series(chart, runs[i].evals, names[i], &EvalRecord::mlm_accuracy, four_decimals,
               &EvalRecord::samples);
  }
  write_new_file(path, chart_svg(chart));
}

}  // namespace bertha
