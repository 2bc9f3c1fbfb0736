#include "harness/report/plots.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "harness/report/files.h"
#include "harness/report/svg_chart.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

std::string three_decimals(double value) { return fixed_text(value, 3); }
std::string four_decimals(double value) { return fixed_text(value, 4); }

enum class XAxis { kSteps, kSamples };

template <class Record>
struct SeriesRequest {
  const std::vector<Record>& records;
  std::string label;
  double Record::*value;
  Markers markers = Markers::kNone;
  std::string (*last_text)(double value) = three_decimals;
  XAxis x = XAxis::kSteps;
};

/// The last value stands in the legend: it is what one looks for first.
template <class Record>
void add_series(const SeriesRequest<Record>& request, LineChart& chart) {
  if (request.records.empty()) return;
  ChartSeries series{.label = {}, .x = {}, .y = {}, .markers = request.markers};
  for (const Record& record : request.records) {
    const int64_t x = request.x == XAxis::kSteps ? record.step : record.samples;
    series.x.push_back(static_cast<double>(x));
    series.y.push_back(record.*request.value);
  }
  series.label = request.label + " " + request.last_text(series.y.back());
  chart.series.push_back(series);
}

LineChart loss_chart(const Metrics& metrics) {
  LineChart chart{.title = "Loss", .x_label = "step", .y_label = "loss (nats)"};
  add_series<StepRecord>({metrics.steps, "train", &StepRecord::loss}, chart);
  add_series<StepRecord>({metrics.steps, "masked tokens", &StepRecord::mlm_loss}, chart);
  add_series<StepRecord>({metrics.steps, "next sentence", &StepRecord::nsp_loss}, chart);
  add_series<EvalRecord>(
      {metrics.evals, "eval, masked tokens", &EvalRecord::mlm_loss, Markers::kCircles}, chart);
  chart.x_low = 0;
  chart.y_low = 0;
  return chart;
}

std::optional<MarkLine> target_line(const RunIdentity& run) {
  if (run.target_accuracy <= 0) return std::nullopt;
  return MarkLine{.label = "target " + fixed_text(run.target_accuracy, 3),
                  .value = run.target_accuracy};
}

LineChart accuracy_chart(const Metrics& metrics) {
  LineChart chart{
      .title = "Masked-token accuracy", .x_label = "step", .y_label = "accuracy (fraction)"};
  add_series<StepRecord>({metrics.steps, "train", &StepRecord::mlm_accuracy}, chart);
  add_series<EvalRecord>({metrics.evals, "eval", &EvalRecord::mlm_accuracy, Markers::kCircles},
                         chart);
  chart.target = target_line(metrics.run);
  chart.x_low = 0;
  chart.y_low = 0;
  return chart;
}

LineChart published_chart(const Metrics& metrics, const ChartBand& published) {
  LineChart chart{.title = "Masked-token accuracy beside published runs",
                  .x_label = "samples",
                  .y_label = "accuracy (fraction)"};
  add_series<EvalRecord>({.records = metrics.evals,
                          .label = "eval",
                          .value = &EvalRecord::mlm_accuracy,
                          .markers = Markers::kCircles,
                          .last_text = four_decimals,
                          .x = XAxis::kSamples},
                         chart);
  chart.band = published;
  chart.target = target_line(metrics.run);
  return chart;
}

LineChart throughput_chart(const Metrics& metrics) {
  LineChart chart{
      .title = "Throughput, all ranks", .x_label = "step", .y_label = "sequences per second"};
  add_series<StepRecord>(
      {metrics.steps, "train", &StepRecord::seqs_per_second, Markers::kNone, scaled_text}, chart);
  chart.x_low = 0;
  chart.y_low = 0;
  return chart;
}

LineChart learning_rate_chart(const Metrics& metrics) {
  LineChart chart{.title = "Learning rate", .x_label = "step", .y_label = "learning rate"};
  add_series<StepRecord>(
      {metrics.steps, "learning rate", &StepRecord::learning_rate, Markers::kNone, exponent_text},
      chart);
  chart.x_low = 0;
  chart.y_low = 0;
  return chart;
}

}  // namespace

void plot_metrics(const Metrics& metrics, const std::string& out_dir,
                  const std::optional<ChartBand>& published) {
  std::error_code error;
  std::filesystem::create_directories(out_dir, error);
  if (error) {
    fail(ExitCode::kData, out_dir, ": cannot make this folder: ", error.message(),
         "; choose a place that can be written");
  }
  write_text_file(out_dir + "/loss.svg", line_chart_svg(loss_chart(metrics)));
  write_text_file(out_dir + "/accuracy.svg", line_chart_svg(accuracy_chart(metrics)));
  write_text_file(out_dir + "/throughput.svg", line_chart_svg(throughput_chart(metrics)));
  write_text_file(out_dir + "/learning_rate.svg", line_chart_svg(learning_rate_chart(metrics)));
  if (published) {
    write_text_file(out_dir + "/accuracy_by_samples.svg",
                    line_chart_svg(published_chart(metrics, *published)));
  }
}

}  // namespace bertha
